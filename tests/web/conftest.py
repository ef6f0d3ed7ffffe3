"""A served scripted backend for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.web.scripted import ScriptedJobs, job_view, served


@pytest.fixture
def api() -> ScriptedJobs:
    return ScriptedJobs(job_view())


@pytest.fixture
def url(api: ScriptedJobs) -> Iterator[str]:
    with served(api) as where:
        yield where
