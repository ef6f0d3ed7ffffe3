"""A few threads that make or read shards, what they share (the wish to stop), and one process for each place."""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeVar

from tpujob.data.keys import alone

Task = TypeVar("Task")
Result = TypeVar("Result")


class AnotherFailed(Exception):
    """Another thread has failed, or the user wants no more."""


class Workers:
    def __init__(self) -> None:
        self._stopped = threading.Event()

    def go_on(self) -> None:
        """Threads ask often. Raises AnotherFailed."""
        if self._stopped.is_set():
            raise AnotherFailed

    def each(self, work: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """Yield the results in the order of the tasks, of which few are taken ahead. After an error, or when the
        iterator is closed, the other tasks are asked to stop."""
        threads = max(2, min(4, os.cpu_count() or 1))
        waiting: deque[Future[Result]] = deque()
        with ThreadPoolExecutor(threads) as pool:
            try:
                for task in tasks:
                    waiting.append(pool.submit(work, task))
                    if len(waiting) == threads:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            except BaseException:
                self._stopped.set()
                for future in waiting:
                    future.cancel()
                raise


def alone_in(stage: Path, name: str) -> AbstractContextManager[None]:
    """Raises IllegalInState while another process works in the same stage."""
    return alone(
        stage / "lock",
        f"another `tpujob data` command writes to {name}",
        hint="wait for it, or end it; nothing was written here",
    )
