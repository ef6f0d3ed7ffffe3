"""The thread that waits for changes of the store on behalf of all viewers, and tells their event loop."""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from tpujob.errors import TpujobError
from tpujob.service import Changes
from tpujob.service.job_index import Failing

log = logging.getLogger(__name__)

LONGEST = (
    1.0  #: seconds of a wait; then it looks whether the store fails, and whether anybody watches
)
BREATH = 0.02  #: seconds between two waits, so that a storm of commits costs little


@dataclass(frozen=True, slots=True)
class Look:
    """What has happened since the look before."""

    revision: int  #: up to which the store was followed
    beyond: bool  #: it is time to look at what is known beyond the records
    jobs: Collection[str] | None  #: ids of those that changed; None: any may have
    failing: Failing | None  #: the store does not answer


class Follower:
    """Runs from its making until `stop`."""

    def __init__(
        self,
        changes: Changes,
        beyond: float,
        told: Callable[[Look], None],
    ) -> None:
        """`told` is called in the running event loop: when something was committed, and every `beyond` seconds."""
        self._changes, self._beyond, self._told = changes, beyond, told
        self._loop = asyncio.get_running_loop()
        self._stopped = threading.Event()
        threading.Thread(target=self._run, name="live", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _run(self) -> None:
        before: int | None = None
        seen = self._newest()
        looked = 0.0
        while not self._stopped.is_set():
            beyond = time.monotonic() - looked >= self._beyond
            looked = time.monotonic() if beyond else looked
            # the first look says that anything may have changed: views were made before this thread ran
            jobs = None if before is None else self._changes.since(before)
            look = Look(seen, beyond, jobs, self._changes.failing)
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._told, look)
            before = seen
            left = looked + self._beyond - time.monotonic()
            seen = self._changes.wait(None, seen, min(max(left, 0.0), LONGEST))
            self._stopped.wait(BREATH)

    def _newest(self) -> int:
        try:
            return self._changes.now()
        except TpujobError as error:
            log.warning("cannot follow the store: %s", error)
            return 0
