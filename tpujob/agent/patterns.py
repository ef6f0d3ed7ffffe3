"""Searches the program's output for the patterns of `watch:`. A user's pattern may take forever on a line, so the main
thread searches, where a timer can interrupt the search, and not the thread that reads the output.
"""

from __future__ import annotations

import collections
import re
import signal
import threading
from typing import (
    Any,
    Callable,
    Deque,
    Dict,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    cast,
)

from tpujob.agent.base import Note
from tpujob.agent.common_forms import CommonForms
from tpujob.protocol import WatchPatterns
from tpujob.protocol.text import visible

WIDTH = 16 * 1024  #: bytes of a line that are searched
NARROW = 1000  #: characters of a line for a pattern that is too slow on long lines
WAITING = 4 * 1024 * 1024  #: bytes that wait for the search; beyond, the oldest are skipped
BATCH = 100  #: lines that are searched at once
SEARCH_TIMEOUT = (
    0.25  #: seconds of CPU time for `BATCH` lines; usual patterns take a microsecond a line
)
STRIKES = 3  #: lines on which a pattern may take too long before it is dropped


class _TooSlow(Exception):
    pass


class Match(NamedTuple):
    """A line that matches a pattern."""

    name: str  #: of the pattern: progress, checkpoint or resume
    step: Optional[int]
    steps: Optional[int]
    values: Dict[str, float]  #: of the other groups: `loss`, and metrics


class _Search:
    """The search for one pattern."""

    def __init__(self, name: str, pattern: str) -> None:
        """Raise re.error, TypeError, RecursionError or OverflowError for a pattern that Python cannot compile."""
        self.name, self.pattern = name, re.compile(pattern)
        self.strikes, self.width = 0, WIDTH  #: characters of a line


class PatternWatch:
    """A search of the output for patterns. `lines` counts all lines, `signs` the lines that match `progress`."""

    def __init__(
        self, patterns: Optional[WatchPatterns], note: Note, wake: Callable[[], None]
    ) -> None:
        """Only the main thread may call it. `wake` makes the main thread call `search` soon."""
        self.lines = 0
        self.signs = 0
        self._matches: List[Match] = []  #: since the last `take_matches`
        self._newest_step: Optional[int] = None  #: in a match of `progress`
        self.first_step: Optional[int] = None  #: the attempt's first step; None: unknown
        self._first_matches: List[int] = []  #: the first two steps in matches of `progress`
        self._resumes = False  #: whether a line has said where the program resumes
        self.nonfinite: Optional[Tuple[str, Optional[int]]] = None  #: the first match, its step
        self._note, self._wake = note, wake
        self._line = 0  #: number of the line that is searched, in its batch
        self._waiting: Deque[bytes] = collections.deque()
        self._bytes = 0
        self._lock = threading.Lock()
        self._armed = False
        texts: Dict[str, Any] = dict(patterns or {})
        self.found = CommonForms() if texts.get("find") else None
        self._searches: List[_Search] = []
        for name in ("nonfinite", "progress", "checkpoint", "resume"):
            for text in _several(texts.get(name)):
                try:
                    self._searches.append(_Search(name, text))
                except (re.error, TypeError, RecursionError, OverflowError) as error:
                    note("watch.%s is not watched for: %s" % (name, error))
        self.has_progress_pattern = any(search.name == "progress" for search in self._searches)
        if self._searches:
            signal.signal(signal.SIGVTALRM, self._on_alarm)

    def take_matches(self) -> List[Match]:
        """Return the matches since the last call, in the order of their lines."""
        matches, self._matches = self._matches, []
        return matches

    def add_lines(self, lines: List[bytes]) -> None:
        """Add lines for the next search. Fast; any thread may call it."""
        self.lines += len(lines)
        if not self._searches and not self.found:
            return
        with self._lock:
            before = self._bytes
            for line in lines:
                self._waiting.append(line[:WIDTH])
                self._bytes += min(len(line), WIDTH) + 64
            while self._bytes > WAITING:
                self._bytes -= len(self._waiting.popleft()) + 64
        if before < WAITING // 4 <= self._bytes:
            self._wake()

    def search(self) -> None:
        """Search the lines that were added. Only the main thread may call it."""
        while self._searches or self.found:
            with self._lock:
                count = min(BATCH, len(self._waiting))
                batch = [self._waiting.popleft() for _ in range(count)]
                self._bytes -= sum(len(line) + 64 for line in batch)
            if not batch:
                return
            lines = [visible(line.decode("utf-8", "replace")) for line in batch]
            matches: List[Tuple[int, str, Any]] = []
            for search in list(self._searches):
                self._search(search, lines, matches)
            for number, name, match in sorted(matches, key=lambda found: found[0]):
                self._take(name, match, lines[number])
            if self.found:
                self.found.read(lines)

    def _search(
        self, search: _Search, lines: List[str], matches: List[Tuple[int, str, Any]]
    ) -> None:
        """Add the matches of one pattern, each with the number of its line."""
        rest = iter(range(len(lines)))
        while True:
            try:
                return self._run_limited(lambda: self._scan(search, lines, rest, matches))
            except _TooSlow:  # skips this line
                if len(lines[self._line]) > NARROW < search.width:
                    search.width = NARROW
                    text = "watch.%s takes too long on long lines: only their first %d characters are searched"
                    self._note(text % (search.name, NARROW))
                    continue
                search.strikes += 1
                if search.strikes >= STRIKES:
                    self._drop(search)
                    text = "watch.%s takes too long on this output: it is not watched for any more"
                    return self._note(text % search.name)

    def _scan(
        self,
        search: _Search,
        lines: List[str],
        rest: Iterator[int],
        matches: List[Tuple[int, str, Any]],
    ) -> None:
        for self._line in rest:
            match = search.pattern.search(lines[self._line], 0, search.width)
            if match:
                matches.append((self._line, search.name, match))

    def _take(self, name: str, match: Any, line: str) -> None:
        step, steps = (_whole(match.groupdict().get(key)) for key in ("step", "steps"))
        if name == "nonfinite":
            self.nonfinite = self.nonfinite or (line.strip(), step)
            self._searches = [search for search in self._searches if search.name != name]
            return
        values = {
            key: value
            for key, text in match.groupdict().items()
            if key not in ("step", "steps") and (value := _number(text)) is not None
        }
        if name == "progress":
            self.signs += 1
            self._newest_step = self._newest_step if step is None else step
            if step is not None and len(self._first_matches) < 2:
                self._infer_first_step(step)
        elif name == "checkpoint" and step is None:
            step = self._newest_step
        elif name == "resume":
            if step is None or len(self._first_matches) == 2:
                return  # a program resumes before its steps: this line says something else
            self._resumes, self.first_step = True, step + 1
        self._matches.append(Match(name, step, steps, values))

    def _drop(self, search: _Search) -> None:
        self._searches.remove(search)
        self.has_progress_pattern = any(search.name == "progress" for search in self._searches)

    def _infer_first_step(self, step: int) -> None:
        """Infer the first step, unless the program says where it resumes: one that prints each k-th step has made k - 1
        steps before its first print."""
        if self._first_matches and step <= self._first_matches[0]:
            return
        self._first_matches.append(step)
        first, interval = self._first_matches[0], step - self._first_matches[0]
        if self._resumes:
            return
        if first <= 1:
            self.first_step = first
        elif interval and first % interval == 0:
            self.first_step = first - interval + 1

    def _run_limited(self, work: Callable[[], None]) -> None:
        """Call `work`. Raises _TooSlow after SEARCH_TIMEOUT seconds of CPU time, which a busy host does not use up."""
        self._armed = True
        signal.setitimer(signal.ITIMER_VIRTUAL, SEARCH_TIMEOUT)
        try:
            work()
        finally:
            self._armed = False
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)

    def _on_alarm(self, _number: int, _frame: Any) -> None:
        if self._armed:
            self._armed = False
            raise _TooSlow


def _several(value: Any) -> Sequence[Any]:
    return cast("List[Any]", value) if isinstance(value, list) else [value] if value else []


def _whole(text: Optional[str]) -> Optional[int]:
    """Return a whole number, also of `1,006`, `12.0` and `1.2k`; None: it is none."""
    digits = (text or "").replace(",", "").replace("_", "").lower()
    try:
        value = float(digits[:-1]) * 1000 if digits.endswith("k") else float(digits)
        return round(value) if value == round(value) or digits.endswith("k") else None
    except (ValueError, OverflowError):
        return None


def _number(text: Optional[str]) -> Optional[float]:
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return None
