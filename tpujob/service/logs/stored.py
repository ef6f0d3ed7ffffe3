"""How an attempt's log lies in the bucket: the paths and metadata of its objects, as segments of each host. Pure.

A host's log is in segments of its own and in pieces of objects that one host writes for many; the numbers of lines put
them into order. What was written twice, as nobody had confirmed it, counts once. A segment of an older agent may grow
at its end, the one that stands for dropped lines is written again, every other object never changes; the oldest of the
tail of a very long log may be gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tpujob.ports import Blob
from tpujob.protocol import paths, segment
from tpujob.protocol.segment import SegmentFacts

#: bytes of a segment that are read; agents write little more than half of that, and what is beyond is not theirs
MOST = 8 * 1024 * 1024
#: the number of a piece in an object of many hosts is this and the number of its first line
SHARED = 10**12

Key = tuple[str, int, int, int]


@dataclass(frozen=True, slots=True)
class Segment:
    """Lines of one host, one after the other."""

    host: int
    number: int  #: unlike that of any other of the host
    path: str
    size: int
    generation: int
    facts: SegmentFacts | None  #: None: its lines are known only once they were counted
    data: bytes | None = None  #: what it holds, if it is not stored yet
    offset: int = 0  #: bytes of its object before it

    @property
    def key(self) -> Key:
        """What changes with its content."""
        return self.path, self.generation, self.offset, self.size

    @property
    def last(self) -> int:
        """The number of its last line, if that is known."""
        return self.facts.line + self.facts.lines - 1 if self.facts else 0


def segments(workdir: str, attempt: int, found: Iterable[Blob]) -> dict[int, list[Segment]]:
    """Of each host, in order."""
    by_host: dict[int, list[Segment]] = {}
    for blob in found:
        for one in _of(workdir, attempt, blob):
            by_host.setdefault(one.host, []).append(one)
    return {host: in_order(each) for host, each in by_host.items()}


def after(all_of: Sequence[Segment], number: int, line: int) -> list[Segment]:
    """Those with lines after that one; where lines are not numbered, from the segment of that number on."""
    return [s for s in all_of if (s.last > line if s.facts else s.number >= number)]


def _of(workdir: str, attempt: int, blob: Blob) -> list[Segment]:
    if paths.is_shared_log(workdir, attempt, blob.path):
        return [
            Segment(
                host, SHARED + facts.line, blob.path, size, blob.generation, facts, None, offset
            )
            for host, facts, offset, size in segment.read_shared(blob.metadata, blob.size)
            if size <= MOST
        ]
    of, host, number = paths.read_log_path(workdir, blob.path) or (0, 0, -1)
    if of != attempt:
        return []
    size, facts = min(blob.size, MOST), segment.read(blob.metadata)
    if facts and facts.lines > size:  # a line has a byte at least
        facts = None
    return [Segment(host, number, blob.path, size, blob.generation, facts)]


def in_order(found: Sequence[Segment]) -> list[Segment]:
    """Those of one host, each line once."""
    if not all(one.facts for one in found):
        return sorted((s for s in found if s.number < SHARED), key=lambda s: s.number)
    kept: list[Segment] = []
    for one in sorted(found, key=lambda s: (s.facts.line if s.facts else 0, -s.last)):
        if one.last > (kept[-1].last if kept else 0):
            kept.append(one)
    if kept and kept[-1].facts and any(_closes(one, kept[-1].last) for one in found):
        kept[-1] = replace(kept[-1], facts=kept[-1].facts._replace(open=False))
    return kept


def _closes(one: Segment, last: int) -> bool:
    """Whether it says that this was the last line."""
    return bool(one.facts and not one.facts.lines and not one.facts.open and one.last >= last)
