"""Searches the program's output for the patterns of `watch:`. They are a user's, and one may take forever on a line:
the main thread searches, where a timer can interrupt it, never the thread that reads the output.
"""

from __future__ import annotations

import collections
import re
import signal
import threading
from typing import Any, Callable, Deque, Dict, Iterator, List, Optional, Pattern, Tuple

from tpujob.agent.base import Note
from tpujob.protocol import WatchPatterns

WIDTH = 1000  #: bytes of a line that are searched
WAITING = 4 * 1024 * 1024  #: bytes of output that wait to be searched; beyond, the oldest are not
#: seconds of CPU time for `BATCH` lines; a usual pattern takes a microsecond for one
PATIENCE = 0.25
BATCH = 100
STRIKES = 3  #: lines on which a pattern may take too long before it is given up


class _TooSlow(Exception):
    pass


class PatternWatch:
    """`lines` counts the lines of output, `signs` those that the progress pattern matched."""

    def __init__(
        self, patterns: Optional[WatchPatterns], note: Note, wake: Callable[[], None]
    ) -> None:
        """From the main thread. `wake` makes `look` be called soon."""
        self.lines = self.signs = 0
        #: the newest step that each pattern named since the last `take_steps`, by the name of the pattern
        self._steps: Dict[str, int] = {}
        self.first_step: Optional[int] = None  #: that was made; None: the output does not show it
        self._first: List[int] = []  #: that the progress pattern named: two at most
        self.nonfinite: Optional[Tuple[str, Optional[int]]] = None  #: the first such line, its step
        self._note, self._wake = note, wake
        self._patterns: Dict[str, Pattern[str]] = {}
        self._strikes: Dict[str, int] = collections.Counter()
        self._waiting: Deque[bytes] = collections.deque()
        self._bytes = 0
        self._lock = threading.Lock()
        self._armed = False
        given: Dict[str, Any] = dict(patterns or {})
        for name in ("nonfinite", "progress", "checkpoint", "resume"):
            try:
                if given.get(name):
                    self._patterns[name] = re.compile(given[name])
            except (re.error, TypeError, RecursionError, OverflowError) as error:
                note("watch.%s is not watched for: %s" % (name, error))
        if self._patterns:
            signal.signal(signal.SIGVTALRM, self._on_alarm)

    @property
    def progress(self) -> bool:
        """Whether a pattern tells progress."""
        return "progress" in self._patterns

    def take_steps(self) -> Dict[str, int]:
        taken, self._steps = self._steps, {}
        return taken

    def hear(self, lines: List[bytes]) -> None:
        """Add lines. Quick, from any thread."""
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

    def look(self) -> None:
        """Search the lines that have come. From the main thread only."""
        while self._patterns:
            with self._lock:
                count = min(BATCH, len(self._waiting))
                batch = [self._waiting.popleft() for _ in range(count)]
                self._bytes -= sum(len(line) + 64 for line in batch)
            if not batch:
                return
            lines = [line.decode("utf-8", "replace") for line in batch]
            for name in list(self._patterns):
                self._search(name, iter(lines))

    def _search(self, name: str, lines: Iterator[str]) -> None:
        while True:
            try:
                return self._limited(lambda: self._scan(name, lines))
            except _TooSlow:  # for this line: the next one is tried
                self._strikes[name] += 1
                if self._strikes[name] >= STRIKES:
                    del self._patterns[name]
                    text = "watch.%s takes too long on this output: it is not watched for any more"
                    return self._note(text % name)

    def _scan(self, name: str, lines: Iterator[str]) -> None:
        pattern = self._patterns[name]
        for line in lines:
            match = pattern.search(line)
            if match and name == "nonfinite":
                self.nonfinite = (line.strip(), _step(match))
                del self._patterns[name]  # once is enough
                return
            if match:
                self._take(name, _step(match))

    def _take(self, name: str, step: Optional[int]) -> None:
        if step is not None:
            self._steps[name] = step
        if name == "progress":
            self.signs += 1
            if step is not None and len(self._first) < 2:
                self._learn(step)

    def _learn(self, step: int) -> None:
        """A program that prints each k-th step has made k - 1 steps before the first that it prints."""
        if self._first and step <= self._first[0]:
            return
        self._first.append(step)
        first, apart = self._first[0], step - self._first[0]
        if first <= 1:
            self.first_step = first
        elif apart and first % apart == 0:
            self.first_step = first - apart + 1

    def _limited(self, work: Callable[[], None]) -> None:
        """By CPU time: on a busy host a good pattern waits, too."""
        self._armed = True
        signal.setitimer(signal.ITIMER_VIRTUAL, PATIENCE)
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
