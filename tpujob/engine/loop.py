"""When ticks happen: one scheduler thread and a few workers; no job has a thread or process of its own.

A live job is ticked when its last tick asked for it, at once when this backend changes its record, within RESYNC
seconds when another backend does, and every second while somebody follows it. A backend that only runs while it is
called has no such thread: it makes one pass for each call.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from typing import TypeVar

from tpujob.engine.reconciler import Reconciler
from tpujob.errors import TpujobError
from tpujob.ports import Clock, Store

log = logging.getLogger(__name__)
T = TypeVar("T")

#: seconds between reads of the store for jobs that other backends changed, and for hints that were lost
RESYNC = 30.0
#: seconds between sweeps
SWEEP_EVERY = 300.0
#: seconds after which a pass starts no more ticks; Cloud Scheduler calls every minute
PASS = 45.0
#: seconds that a pass waits for the next due job, so that a slice that becomes ready is started in the same pass
LINGER = 5.0
#: seconds between ticks of a job that somebody follows
ATTENDED = 1.0


class Loop:
    def __init__(
        self,
        reconciler: Reconciler,
        store: Store,
        clock: Clock,
        *,
        sweep: Callable[[], object],
        workers: int = 8,
        wakeup: threading.Condition | None = None,
        pool: Executor | None = None,
    ) -> None:
        """`wakeup`, `pool`: what `run` waits with and where ticks run, in the place of real threads."""
        self._reconciler, self._store, self._clock = reconciler, store, clock
        self._sweep = sweep
        self._wakeup = wakeup or threading.Condition()
        self._when: dict[str, float] = {}  #: when each job is next ticked
        self._busy: set[str] = set()
        self._again: set[str] = set()  #: poked while busy
        self._attended: dict[str, float] = {}  #: until when somebody follows it
        self._change: int | None = None  #: the newest change that was read; None: none yet
        self._stopping = False
        self._pool = pool or ThreadPoolExecutor(workers, thread_name_prefix="tick")
        self._thread = threading.Thread(target=self.run, name="loop", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Return when the running ticks have ended; what is still to do is left to the next backend."""
        with self._wakeup:
            self._stopping = True
            self._wakeup.notify_all()
        if self._thread.ident is not None:  # it was started
            self._thread.join()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def make_pass(self, *, sweep: bool = False) -> tuple[int, float | None]:
        """Tick every job that is due, and again those that ask for it within LINGER seconds; then, if asked, sweep.
        For a backend whose own thread does not run. Safe to repeat, beside that thread and from two callers: leases
        decide who acts. Returns the number of ticks, and the seconds until the next is due; None: never.
        """
        end, ticks = self._clock.now() + PASS, 0
        self._resync(self._clock.now())
        while self._clock.now() < end and not self._stopping:
            under_way = self._dispatch(self._clock.now())
            ticks += len(under_way)
            wait(under_way)
            nearest = self._nearest()
            if nearest is None or nearest > LINGER:
                break
            self._clock.sleep(min(nearest, max(0.0, end - self._clock.now())))
        if sweep:
            self._guarded(self._sweep)
        return ticks, self._nearest()

    def _nearest(self) -> float | None:
        """Seconds until the next job is due, not counting those that are being ticked."""
        with self._wakeup:
            when = min(self._when.values(), default=None)
        return None if when is None else max(0.0, when - self._clock.now())

    def poke(self, job_id: str) -> None:
        """Tick this job now."""
        with self._wakeup:
            self._schedule(job_id, self._clock.now())

    def attend(self, job_id: str, seconds: float) -> None:
        """Tick this job every second for that long: somebody follows it."""
        now = self._clock.now()
        with self._wakeup:
            self._attended[job_id] = max(self._attended.get(job_id, 0.0), now + seconds)
        self.hasten(job_id, now + ATTENDED)

    def hasten(self, job_id: str, when: float) -> None:
        """Tick this job by then at the latest, if it waits for its next tick."""
        with self._wakeup:
            if when < self._when.get(job_id, when):
                self._schedule(job_id, when)

    def _schedule(self, job_id: str, when: float) -> None:
        if job_id in self._busy:
            self._again.add(job_id)
            return
        self._when[job_id] = when
        self._wakeup.notify_all()

    def run(self) -> None:
        """Tick jobs as they become due, until `stop`; what `start` gives to a thread."""
        next_resync, next_sweep = 0.0, self._clock.now() + 5
        while not self._stopping:
            now = self._clock.now()
            if now >= next_resync:
                self._resync(now)
                next_resync = now + RESYNC
            if now >= next_sweep:
                self._pool.submit(self._guarded, self._sweep)
                next_sweep = now + SWEEP_EVERY
            self._dispatch(now)
            self._wait(min(next_resync, next_sweep))

    def _resync(self, now: float) -> None:
        """Schedule the jobs that are due, and those that other backends changed since the last time."""
        due = self._guarded(lambda: self._store.due(now)) or []
        moved = self._guarded(self._moved) or []
        with self._wakeup:
            for job_id in due:
                if job_id not in self._when and job_id not in self._busy:
                    self._when[job_id] = now
            for job_id in moved:
                if self._when.get(job_id, 0.0) > now + RESYNC:
                    self._when[job_id] = now

    def _moved(self) -> list[str]:
        """Ids of the jobs that any backend changed since the last call."""
        if self._change is None:
            self._change = self._store.changes(0)[0]
            return []
        self._change, moved = self._store.changes(self._change)
        return moved

    def _dispatch(self, now: float) -> list[Future[None]]:
        with self._wakeup:
            ready = [job_id for job_id, when in self._when.items() if when <= now]
            for job_id in ready:
                del self._when[job_id]
                self._busy.add(job_id)
        return [self._pool.submit(self._tick, job_id) for job_id in ready]

    def _wait(self, at_latest: float) -> None:
        with self._wakeup:
            if self._stopping:
                return
            nearest = min([at_latest, *self._when.values()])
            timeout = nearest - self._clock.now()
            if timeout > 0:
                self._wakeup.wait(timeout)

    def _tick(self, job_id: str) -> None:
        wake_in: float | None = 30.0  # after a bug or a broken store: not at once, and not never
        try:
            wake_in = self._reconciler.tick(job_id)
        except TpujobError as error:
            log.warning("job %s: %s; looking again in 30 s", job_id, error)
        except Exception:
            log.exception("job %s: the tick failed", job_id)
        now = self._clock.now()
        with self._wakeup:
            self._busy.discard(job_id)
            if job_id in self._again:
                self._again.discard(job_id)
                wake_in = 0.0
            if wake_in is None:
                self._attended.pop(job_id, None)
                return
            if self._attended.get(job_id, 0.0) > now:
                wake_in = min(wake_in, ATTENDED)
            self._schedule(job_id, now + wake_in)

    def _guarded(self, call: Callable[[], T]) -> T | None:
        try:
            return call()
        except TpujobError as error:
            log.warning("the loop goes on: %s", error)
            return None
        except Exception:
            log.exception("the loop goes on after an error")
            return None
