"""Search in a log. Matches are counted by segment, and the counts are kept: the next match costs one segment, and a
growing log is searched from its old end on."""

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from operator import attrgetter
from threading import Lock
from typing import Any, Protocol

import re2 as _re2

from tpujob.errors import BadRequest
from tpujob.lib.lru import LruDict
from tpujob.lib.tries import Deadline
from tpujob.service.logs.lines import StampedLine, raw_of, shown, time_of, tracebacks, whole
from tpujob.service.logs.reader import HostLog, LogReader, Place
from tpujob.service.logs.segment_reader import AT_ONCE, SegmentReader
from tpujob.service.logs.segments import Key, Segment

re2: Any = _re2  # which has no types

MAX_PATTERN = 1000  #: characters of what is looked for
MEMORY = 1 << 20  #: bytes that a pattern may take; RE2 keeps the last 128
MAX_SPANS = 50  #: of one text


@dataclass(frozen=True, slots=True)
class LogPattern:
    """A text, a pattern or tracebacks to search for, in lines as people see them."""

    text: str = ""
    regexp: bool = False
    ignore_case: bool = False
    traceback: bool = False

    def __post_init__(self) -> None:
        """Raises BadRequest."""
        if self.traceback and self.text:
            raise BadRequest("a search is for a text or for tracebacks, not for both")
        if not self.traceback and not self.text:
            raise BadRequest("a search needs a text")
        if len(self.text) > MAX_PATTERN:
            raise BadRequest(f"a search takes at most {MAX_PATTERN:,} characters")


class Matcher(Protocol):
    def lines(self, data: bytes) -> list[int]:
        """Return which of the stored lines match, counted from 0."""
        ...

    def spans(self, texts: list[str]) -> list[list[tuple[int, int]]]:
        """Return the parts of each text that match, to be marked."""
        ...


def matcher(query: LogPattern) -> Matcher:
    """Return the matcher of a query. Raises BadRequest for an invalid pattern."""
    if query.traceback:
        return _Tracebacks()
    return _Regexp(query) if query.regexp else _Literal(query)


class _Tracebacks:
    def lines(self, data: bytes) -> list[int]:
        return tracebacks(shown(data))

    def spans(self, texts: list[str]) -> list[list[tuple[int, int]]]:
        return [[] for _ in texts]


class _Literal:
    def __init__(self, query: LogPattern) -> None:
        self._fold = query.ignore_case
        self._text = query.text.lower() if self._fold else query.text
        self._ascii = self._text.isascii()
        self._bytes = self._text.encode("utf-8", "replace")

    def lines(self, data: bytes) -> list[int]:
        data = shown(data)
        if self._fold and not self._ascii:
            texts = raw_of(data).decode("utf-8", "replace").lower().split("\n")
            return [i for i, text in enumerate(texts) if self._text in text]
        data = data.lower() if self._fold else data
        if self._bytes not in data:
            return []
        lines = enumerate(data.split(b"\n"))
        maybe = [(i, line) for i, line in lines if self._bytes in line]
        return [i for i, line in maybe if self._bytes in raw_of(line)]  # the time is no part of it

    def spans(self, texts: list[str]) -> list[list[tuple[int, int]]]:
        return [list(self._places(text)) for text in texts]

    def _places(self, text: str) -> Iterator[tuple[int, int]]:
        if self._fold:
            text = text.replace("İ", "i").lower()  # no other letter's small form is longer
        at = text.find(self._text)
        while at >= 0:
            yield at, at + len(self._text)
            at = text.find(self._text, at + len(self._text))


class _Regexp:
    """RE2: the time of a search grows with the text alone, whatever the pattern."""

    def __init__(self, query: LogPattern) -> None:
        options = re2.Options()
        options.case_sensitive = not query.ignore_case
        options.log_errors = False
        options.max_mem = MEMORY
        try:
            self._pattern = re2.compile(query.text.encode("utf-8", "replace"), options)
        except re2.error as error:
            why = error.args[0].decode("utf-8", "replace")
            raise BadRequest(
                f"{query.text[:80]!r} is not a pattern: {why}",
                hint="Patterns are those of RE2: no look-around, no \\1. Without --regexp the text is taken literally.",
            ) from None

    def lines(self, data: bytes) -> list[int]:
        lines = raw_of(shown(data)).split(b"\n")[:-1]
        return [i for i, line in enumerate(lines) if self._pattern.search(line)]

    def spans(self, texts: list[str]) -> list[list[tuple[int, int]]]:
        return [
            [match.span() for match in islice(self._pattern.finditer(text), MAX_SPANS)]
            for text in texts
        ]


CACHE_SIZE = 100_000  #: counts
_TIME = attrgetter("at")


@dataclass(frozen=True, slots=True)
class Counted:
    """The number of matching lines by segment. Segments that were not reached are missing."""

    counts: Mapping[Key, int]
    complete: bool
    searched: int  #: bytes


class Searches:
    """Threads may share it."""

    def __init__(self, reader: SegmentReader) -> None:
        self._reader = reader
        self._known: LruDict[tuple[bytes, Key], int] = LruDict(CACHE_SIZE)
        self._lock = Lock()

    def count(
        self, log: LogReader, query: LogPattern, by: Matcher, until: Deadline, time: Deadline
    ) -> Counted:
        """Count the matches of all segments, or of as many as `time` allows. What was counted before costs nothing."""
        segments = [segment for host_log in log.logs.values() for segment in host_log.segments]
        mark = blake2b(repr(query).encode(errors="replace"), digest_size=16).digest()
        with self._lock:
            cached = {s.key: self._known.get((mark, s.key)) for s in segments}
        counts = {key: count for key, count in cached.items() if count is not None}
        missing = [s for s in segments if s.key not in counts]
        while missing and time.remaining():
            some, missing = missing[:AT_ONCE], missing[AT_ONCE:]
            read = self._reader.side_by_side(lambda s: self._reader.read(s, until), some)
            for segment, data in zip(some, read, strict=True):
                count = counts[segment.key] = len(by.lines(whole(data)))
                with self._lock:
                    self._known[mark, segment.key] = count
                if not time.remaining():
                    break
        searched = sum(s.size for s in segments if s.key in counts)
        return Counted(counts, all(s.key in counts for s in segments), searched)

    def after(
        self, log: LogReader, place: Place, counted: Counted, by: Matcher, limit: int, until: Deadline
    ) -> list[StampedLine]:  # fmt: skip
        """Return the first matches after a place."""

        def matches(of: HostLog, place: int) -> Iterator[StampedLine]:
            for segment in of.segments:
                if segment.last > place and counted.counts.get(segment.key):
                    yield from (x for x in self._matches(segment, by, until) if x.number > place)

        streams = [matches(of, place.get(host, 0)) for host, of in log.logs.items()]
        return list(islice(heapq.merge(*streams, key=_TIME), limit))

    def before(
        self, log: LogReader, place: Place, counted: Counted, by: Matcher, until: Deadline
    ) -> tuple[int, StampedLine | None]:
        """Return how many matches are before a place, and the last of them."""
        total, lasts = 0, list[StampedLine]()
        for host, of in log.logs.items():
            end, last = place.get(host, 0), None
            for segment in reversed(of.segments):
                count = counted.counts.get(segment.key, 0)
                if not count or segment.first > end:
                    continue
                if last is None or segment.last > end:
                    earlier = [x for x in self._matches(segment, by, until) if x.number <= end]
                    count, last = len(earlier), earlier[-1] if earlier else last
                total += count
            if last:
                lasts.append(last)
        return total, max(lasts, key=lambda x: (x.at, x.host), default=None)

    def _matches(self, segment: Segment, by: Matcher, until: Deadline) -> list[StampedLine]:
        data = whole(self._reader.read(segment, until))
        lines = data.split(b"\n")
        return [
            StampedLine(segment.host, segment.first + i, time_of(lines[i]), raw_of(lines[i]))
            for i in by.lines(data)
        ]
