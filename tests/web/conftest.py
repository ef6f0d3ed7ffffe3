"""One real server for all tests of this folder, in front of the scripted backend of each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.web.scripted import Front, ScriptedJobs, job_view, served


@pytest.fixture(scope="session")
def front() -> Iterator[tuple[Front, str]]:
    front = Front()
    with served(front) as url:
        yield front, url


@pytest.fixture
def api(front: tuple[Front, str]) -> Iterator[ScriptedJobs]:
    api = ScriptedJobs(job_view())
    front[0].now = api
    yield api
    front[0].settle()


@pytest.fixture
def url(front: tuple[Front, str], api: ScriptedJobs) -> str:
    return front[1]
