"""Threads that copy what one thread plans. Memory does not grow with the number of files."""

import queue
import threading
from collections.abc import Callable, Iterable
from typing import Any

from tpujob.data.local import explained
from tpujob.data.sync.plan import Pair
from tpujob.data.sync.upload import Done

#: files that are copied at once
THREADS = 16
_WAITING = 4_000  #: pairs that may wait for a thread
_BATCH = 16
_LARGE = 1 << 20  #: bytes from which a file is handed out alone

AnyPair = Pair[Any, Any]


class Crew:
    """The first error that concerns all files ends them."""

    def __init__(
        self,
        copy: Callable[[AnyPair], Done],
        settled: Callable[[AnyPair, Done], None],
        failed: Callable[[AnyPair, Exception], bool],
    ) -> None:
        self._copy, self._settled, self._failed = copy, settled, failed
        self._tasks: queue.Queue[list[AnyPair]] = queue.Queue(_WAITING // _BATCH)
        self._ended: Exception | None = None

    def work(self, planned: Iterable[AnyPair]) -> None:
        """Raises that error. After an exception no new file is begun."""
        threads = [threading.Thread(target=self._member, daemon=True) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        try:
            self._hand_out(planned)
        except Exception as error:
            self._ended = self._ended or error
        for _ in threads:
            self._tasks.put([])
        for thread in threads:
            thread.join()
        if self._ended:
            with explained():
                raise self._ended

    def _hand_out(self, planned: Iterable[AnyPair]) -> None:
        batch: list[AnyPair] = []
        for pair in planned:
            batch.append(pair)
            size = max(pair.source.size, pair.target.size if pair.target else 0)
            if size > _LARGE or len(batch) >= _BATCH:
                self._tasks.put(batch)
                batch = []
            if self._ended:
                return
        if batch:
            self._tasks.put(batch)

    def _member(self) -> None:
        while batch := self._tasks.get():
            for pair in batch:
                if self._ended:
                    break  # the queue is emptied, or the planning thread would wait for ever
                self._one(pair)

    def _one(self, pair: AnyPair) -> None:
        try:
            self._settled(pair, self._copy(pair))
        except Exception as error:
            if not self._failed(pair, error):
                self._ended = self._ended or error
