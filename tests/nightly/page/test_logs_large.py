"""A million lines of each of four hosts in each of three attempts, after the slices are gone: any line in one small
request, exact search, each line once. `TPUJOB_LOG_LINES=100000` makes it smaller."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.flow.page import lab
from tests.flow.page.conftest import Site
from tests.support import long_logs
from tests.support.long_logs import HOSTS
from tests.support.stage import Stage
from tpujob.domain.model import Job

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

LINES = int(os.environ.get("TPUJOB_LOG_LINES", "1000000"))
ATTEMPTS = 3
HTML = {"accept": "text/html"}


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, Job]]:
    site = Site(Stage(tmp_path_factory.mktemp("large")))
    site.stage.clock.time = long_logs.BEGAN + 100_000
    site.start()
    (job,) = lab.store_jobs(site.stage.store, [long_logs.ended_job(ATTEMPTS)])
    size = long_logs.ship(site.stage.bucket, job, LINES)
    print(f"{LINES * HOSTS * ATTEMPTS:,} lines, {size / 1e6:,.0f} MB")
    yield site, job
    site.stop()


@pytest.fixture
def site(large: tuple[Site, Job]) -> Site:
    return large[0]


@pytest.mark.parametrize(
    ("query", "options"),
    [
        ("q=loss+3.9", ["-F", "loss 3.9"]),
        ("q=LOSS+3.95&i=1", ["-F", "-i", "LOSS 3.95"]),
        ("q=step+.*99+loss+[34]&re=1", ["-E", "step .*99 loss [34]"]),
        ("q=s", ["-F", "s"]),
    ],
)
def test_the_count_of_a_search_is_that_of_grep(
    large: tuple[Site, Job], query: str, options: list[str], tmp_path: Path
):
    site, job = large
    attempt, counts = 2, list[int]()
    for host in range(HOSTS):
        where = f"{site.url}/jobs/{job.id}/logs.txt?attempt={attempt}&host={host}"
        file = tmp_path / f"{host}"
        with httpx.stream("GET", where, headers=HTML) as got, file.open("wb") as into:
            for piece in got.iter_bytes():
                into.write(piece)
        grep = subprocess.run(["grep", "-a", "-c", *options, file], capture_output=True, check=True)
        counts.append(int(grep.stdout))
        file.unlink()
    found = _searched(f"{site.url}/jobs/{job.id}/logs.json?attempt={attempt}&{query}")
    assert found["matching"] == sum(counts)
    only = _searched(f"{site.url}/jobs/{job.id}/logs.json?attempt={attempt}&host=1&{query}")
    assert only["matching"] == counts[1]


def _searched(url: str) -> dict[str, Any]:
    """Asks until all of it was searched."""
    found: dict[str, Any] = {}
    for _ in range(50):
        found = httpx.get(url, timeout=60).json()["found"]
        if found["complete"]:
            return found
    raise AssertionError(f"never done: {found}")


def test_the_whole_has_each_line_once(large: tuple[Site, Job]):
    site, job = large
    for attempt in range(1, ATTEMPTS + 1):
        wrote = {host: hashlib.sha256() for host in range(HOSTS)}
        numbers = dict.fromkeys(range(HOSTS), 0)
        where = f"{site.url}/jobs/{job.id}/logs.txt?attempt={attempt}"
        with httpx.stream("GET", where, headers=HTML, timeout=60) as got:
            for text in got.iter_lines():
                host, _, said = text.partition("| ")
                wrote[int(host)].update(said.encode() + b"\n")
                numbers[int(host)] += 1
        assert set(numbers.values()) == {LINES}
        for host in range(HOSTS):
            expected = hashlib.sha256()
            for number in range(1, LINES + 1):
                expected.update(long_logs.line(number, host, attempt) + b"\n")
            assert wrote[host].digest() == expected.digest(), "every line, once, in order"
