"""Searches the program's output for the patterns of `watch:`. A user's pattern may take forever on a line, so the main
thread searches, where a timer can interrupt the search, and not the thread that reads the output.
"""

from __future__ import annotations

import collections
import re
import signal
import threading
from typing import Any, Callable, Deque, Dict, Iterator, List, Optional, Pattern, Tuple

from tpujob.agent.base import Note
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


class PatternWatch:
    """A search of the output for patterns. `lines` counts all lines, `signs` the lines that match `progress`."""

    def __init__(
        self, patterns: Optional[WatchPatterns], note: Note, wake: Callable[[], None]
    ) -> None:
        """Only the main thread may call it. `wake` makes the main thread call `search` soon."""
        self.lines = 0
        self.signs = 0
        #: the newest step of each pattern since the last `take_steps`, by the pattern's name
        self._steps: Dict[str, int] = {}
        self.first_step: Optional[int] = None  #: the attempt's first step; None: unknown
        self._first_matches: List[int] = []  #: the first two steps in matches of `progress`
        self.nonfinite: Optional[Tuple[str, Optional[int]]] = None  #: the first match, its step
        self._note, self._wake = note, wake
        self._patterns: Dict[str, Pattern[str]] = {}
        self._strikes: Dict[str, int] = collections.Counter()
        self._widths: Dict[str, int] = {}  #: characters of a line for each pattern
        self._line = ""  #: the line that is searched
        self._waiting: Deque[bytes] = collections.deque()
        self._bytes = 0
        self._lock = threading.Lock()
        self._armed = False
        texts: Dict[str, Any] = dict(patterns or {})
        for name in ("nonfinite", "progress", "checkpoint", "resume"):
            try:
                if texts.get(name):
                    self._patterns[name] = re.compile(texts[name])
                    self._widths[name] = WIDTH
            except (re.error, TypeError, RecursionError, OverflowError) as error:
                note("watch.%s is not watched for: %s" % (name, error))
        if self._patterns:
            signal.signal(signal.SIGVTALRM, self._on_alarm)

    @property
    def has_progress_pattern(self) -> bool:
        return "progress" in self._patterns

    def take_steps(self) -> Dict[str, int]:
        """Return the newest step of each pattern since the last call."""
        steps, self._steps = self._steps, {}
        return steps

    def add_lines(self, lines: List[bytes]) -> None:
        """Add lines for the next search. Fast; any thread may call it."""
        self.lines += len(lines)
        if not self._patterns:
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
        while self._patterns:
            with self._lock:
                count = min(BATCH, len(self._waiting))
                batch = [self._waiting.popleft() for _ in range(count)]
                self._bytes -= sum(len(line) + 64 for line in batch)
            if not batch:
                return
            lines = [visible(line.decode("utf-8", "replace")) for line in batch]
            for name in list(self._patterns):
                self._search_pattern(name, iter(lines))

    def _search_pattern(self, name: str, lines: Iterator[str]) -> None:
        while True:
            try:
                return self._run_limited(lambda: self._scan(name, lines))
            except _TooSlow:  # skips this line
                if len(self._line) > NARROW < self._widths[name]:
                    self._widths[name] = NARROW
                    text = "watch.%s takes too long on long lines: only their first %d characters are searched"
                    self._note(text % (name, NARROW))
                    continue
                self._strikes[name] += 1
                if self._strikes[name] >= STRIKES:
                    del self._patterns[name]
                    text = "watch.%s takes too long on this output: it is not watched for any more"
                    return self._note(text % name)

    def _scan(self, name: str, lines: Iterator[str]) -> None:
        pattern, width = self._patterns[name], self._widths[name]
        for self._line in lines:
            line, match = self._line, pattern.search(self._line, 0, width)
            if match and name == "nonfinite":
                self.nonfinite = (line.strip(), _step(match))
                del self._patterns[name]  # once is enough
                return
            if match:
                self._note_match(name, _step(match))

    def _note_match(self, name: str, step: Optional[int]) -> None:
        if step is not None:
            self._steps[name] = step
        if name == "progress":
            self.signs += 1
            if step is not None and len(self._first_matches) < 2:
                self._infer_first_step(step)

    def _infer_first_step(self, step: int) -> None:
        """Infer the first step: a program that prints each k-th step has made k - 1 steps before its first print."""
        if self._first_matches and step <= self._first_matches[0]:
            return
        self._first_matches.append(step)
        first, interval = self._first_matches[0], step - self._first_matches[0]
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


def _step(match: Any) -> Optional[int]:
    try:
        return int(match.group("step").replace(",", "").replace("_", ""))
    except (IndexError, AttributeError, ValueError):
        return None
