"""Logs of millions of lines, as agents leave them: an ended job, and segments of about a mebibyte."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from tpujob.domain.model import Attempt, DesiredState, Endpoint, Job, Outcome, Slice, State
from tpujob.domain.spec import parse
from tpujob.ports import Blobs
from tpujob.protocol import paths
from tpujob.protocol.segment import SegmentFacts, to_metadata

HOSTS = 4
SEGMENT = 14_000  #: lines
BEGAN = 1_760_000_000.0


def ended_job(attempts: int, bucket: str = "gs://tpujob-bench") -> Job:
    """Return a job of four hosts, whose slices are gone."""
    hosts = tuple(Endpoint(n, f"10.0.0.{n}") for n in range(HOSTS))
    slices = tuple(
        Slice(
            f"tj-000001-{k}", k, "v4-32", "us-central2-b", "spot", "base", 12.9, BEGAN,
            endpoints=hosts, gone_at=BEGAN + 90_000,
        )
        for k in range(1, attempts + 1)
    )  # fmt: skip
    made = tuple(
        Attempt(k, f"tj-000001-{k}", BEGAN, ended_at=BEGAN + 80_000, outcome=Outcome.SUCCEEDED)
        for k in range(1, attempts + 1)
    )
    return Job(
        id="",
        name="long",
        user="ada",
        spec=parse({"name": "long", "tpu": {"type": "v4-32"}, "run": {"command": "true"}}),
        state=State.SUCCEEDED,
        wish=DesiredState.RUN,
        created_at=BEGAN,
        state_since=BEGAN + 90_000,
        finished_at=BEGAN + 90_000,
        bucket=bucket,
        slices=slices,
        attempts=made,
    )


def line(number: int, host: int, attempt: int) -> bytes:
    """Return a line of that host."""
    if number % 250_000 == 0:
        return b"Traceback (most recent call last):"
    return b"step %d loss %.4f on %d of %d, 123456 tokens/s" % (
        number,
        4 - number / 1e6,
        host,
        attempt,
    )


def segments(lines: int, host: int, attempt: int) -> Iterator[tuple[int, SegmentFacts, bytes]]:
    for number, first in enumerate(range(1, lines + 1, SEGMENT), 1):
        last = min(first + SEGMENT, lines + 1)
        text = b"".join(
            b"%.3f %b\n" % (BEGAN + n / 20, line(n, host, attempt)) for n in range(first, last)
        )
        yield number, SegmentFacts(first, last - first, BEGAN + first / 20), text


def ship(blobs: Blobs, job: Job, lines: int) -> int:
    """Write that many lines of each host and attempt; return the number of bytes."""

    def put(attempt: int, host: int) -> int:
        size = 0
        for number, facts, text in segments(lines, host, attempt):
            path = paths.log_path(job.workdir_of(attempt), attempt, host, number)
            blobs.put(path, text, metadata=to_metadata(facts), timeout=60)
            size += len(text)
        return size

    pairs = [(a.number, host) for a in job.attempts for host in range(HOSTS)]
    with ThreadPoolExecutor(2) as pool:
        return sum(pool.map(lambda pair: put(*pair), pairs))
