"""What a backend spends on following 64 hosts that print a million lines a minute, for one reader.

Run: python -m tests.bench.bench_live [LINES]. Messages are parsed, kept and joined as those of agents are; the network,
SSH and the bucket are left out. Each host stores its lines every two seconds of its own time.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from dataclasses import replace
from typing import Any

from tests.support import long_logs
from tests.support.shelf import Shelf
from tpujob.domain.model import Endpoint, State
from tpujob.protocol import live, paths
from tpujob.protocol.segment import SegmentFacts, written
from tpujob.service.logs import Logs
from tpujob.service.logs.live_stream import LEAST, ROOM, Tails
from tpujob.service.logs.live_tail import Ring

HOSTS, SECONDS, STORED_EVERY = 64, 60, 2


class Heard:
    """As `Live`, fed by hand."""

    def __init__(self) -> None:
        self.rings = {host: Ring(max(LEAST, ROOM // HOSTS)) for host in range(HOSTS)}
        self.settled_at = 0.0

    def take(self, message: str) -> None:
        tail = live.read_tail(json.loads(message))
        assert tail
        ring = self.rings[tail.host]
        settled = ring.settled
        ring.take(tail)
        if ring.settled > settled:
            self.settled_at = time.monotonic()

    def tails(self, *_: object) -> Tails:
        found = {host: ring.now() for host, ring in self.rings.items()}
        return Tails(found, True, False, self.settled_at)


def main() -> None:
    lines = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    each = lines // HOSTS // SECONDS  #: of a host in a second
    slice = replace(long_logs.ended_job(1).slices[0], type="v4-512", gone_at=None)
    slice = replace(slice, endpoints=tuple(Endpoint(n, f"10.0.0.{n}") for n in range(HOSTS)))
    job = replace(long_logs.ended_job(1), id="000042", state=State.RUNNING, slices=(slice,))
    shelf, heard = Shelf(), Heard()
    blobs: Any = shelf
    followed: Any = heard
    logs = Logs(blobs, followed)
    cursor, read, spent, longest = "", 0, 0.0, 0.0
    for second in range(SECONDS):
        messages = [_message(shelf, job.workdir_of(1), host, second, each) for host in range(HOSTS)]
        began = time.process_time()
        for message in messages:
            heard.take(message)
        more = True
        while more:
            block = logs.block(job, cursor=cursor)
            cursor, more = block.cursor, block.more
            read += block.data.count(b"\n")
        took = time.process_time() - began
        spent, longest = spent + took, max(longest, took)
    assert read == each * HOSTS * SECONDS, f"{read:,} lines were read"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{read:,} lines of {HOSTS} hosts, each once, in {SECONDS} s of their time")
    print(f"CPU {spent:.1f} s in all, {longest:.2f} s at most for a second; memory {peak:.0f} MB")


def _message(shelf: Shelf, workdir: str, host: int, second: int, each: int) -> str:
    """What a host tells of a second; what is older than two is stored by then."""
    stored = second // STORED_EVERY * STORED_EVERY
    if second and second % STORED_EVERY == 0:
        first = (second - STORED_EVERY) * each + 1
        path = paths.log_path(workdir, 1, host, second // STORED_EVERY)
        shelf.objects[path] = _lines(host, first, STORED_EVERY * each)
        at = long_logs.BEGAN + first / 1000
        shelf.facts[path] = written(SegmentFacts(first, STORED_EVERY * each, at))
    first = second * each + 1
    tail = live.TailMessage(host, first - 1, first, each, stored * each, _lines(host, first, each))
    return json.dumps(live.written(tail))


def _lines(host: int, first: int, count: int) -> bytes:
    return b"".join(
        b"%.3f %b\n" % (long_logs.BEGAN + n / 1000, long_logs.line(n, host, 1))
        for n in range(first, first + count)
    )


if __name__ == "__main__":
    main()
