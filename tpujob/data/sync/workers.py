"""Threads that copy what one thread plans. Memory does not grow with the number of files."""

import queue
import threading
from collections.abc import Callable, Iterable
from typing import Any

from tpujob.data.local import explained
from tpujob.data.sync.plan import Pair

#: files that are copied at once
THREADS = 16
_WAITING = 250  #: batches that may wait for a thread
_BATCH = 16
_LARGE = 1 << 20  #: bytes from which a file is handed out alone

AnyPair = Pair[Any, Any]


def copy_all(planned: Iterable[AnyPair], copy: Callable[[AnyPair], None]) -> None:
    """Afterwards all were copied. Raises the first error of any of them, after which no new file is begun. The threads
    do not hold up an interrupted process."""
    tasks: queue.Queue[list[AnyPair]] = queue.Queue(_WAITING)
    errors: list[Exception] = []

    def work() -> None:
        while batch := tasks.get():
            for pair in batch:
                if errors:
                    break  # the queue is emptied, or the planning thread would wait for ever
                try:
                    copy(pair)
                except Exception as error:
                    errors.append(error)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    try:
        _hand_out(planned, tasks, errors)
    except Exception as error:
        errors.append(error)
    for _ in threads:
        tasks.put([])
    for thread in threads:
        thread.join()
    if errors:
        with explained():
            raise errors[0]


def _hand_out(
    planned: Iterable[AnyPair], tasks: queue.Queue[list[AnyPair]], errors: list[Exception]
) -> None:
    batch: list[AnyPair] = []
    for pair in planned:
        batch.append(pair)
        size = max(pair.source.size, pair.target.size if pair.target else 0)
        if size > _LARGE or len(batch) >= _BATCH:
            tasks.put(batch)
            batch = []
        if errors:
            return
    if batch:
        tasks.put(batch)
