"""The schedule of ticks: one scheduler thread and a few workers serve all jobs.

A live job is ticked at the time that its last tick requested, at once when this backend changes its record, within
RESYNC seconds when another backend does, and every second while a client follows it. A backend that runs only during
requests has no such thread: each call makes one pass.
"""

import contextlib
import heapq
import logging
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from tpujob.engine.reconciler import Reconciler
from tpujob.errors import TpujobError
from tpujob.lib import log_context
from tpujob.lib.threads import start_loop
from tpujob.lib.tries import Backoff
from tpujob.ports import Clock, Store

log = logging.getLogger(__name__)
T = TypeVar("T")

#: seconds between reads of the store for jobs that other backends changed, and for hints that were lost
RESYNC = 30.0
#: seconds between two looks at reports that ticks have asked for; a job that goes on well is ticked less often
REFRESH = 2.0
#: seconds between sweeps
SWEEP_EVERY = 300.0
#: seconds after which a pass starts no more ticks; Cloud Scheduler calls every minute
MAX_PASS = 45.0
#: seconds that a pass waits for the next due job, so that a slice that becomes ready is started in the same pass
PASS_WAIT = 5.0
#: seconds between ticks of a job that a client follows
ATTENDED = 1.0
#: seconds until the tick of a job of which a list shows news: an end, a notice, a slice that is lost
NEWS_DELAY = 0.2
#: seconds until a job whose tick failed is ticked again: twice as many each time in a row, up to the most
RETRY = Backoff(first=4.0, longest=30.0)


@dataclass(frozen=True, slots=True)
class Pulse:
    """The health of the loop."""

    started_at: float | None = None  #: its thread was; None: it makes passes when it is called
    passed_at: float | None = None  #: it last looked at what is due; None: never
    pass_s: float = 0.0  #: how long a call's pass took, with its ticks
    due: int = 0  #: jobs whose tick is late, and not begun
    ticking: int = 0  #: jobs that are being ticked
    longest_s: float = 0.0  #: for how long one of them has been


class Loop:
    def __init__(
        self,
        reconciler: Reconciler,
        store: Store,
        clock: Clock,
        *,
        sweep: Callable[[], object],
        workers: int = 32,
        wakeup: threading.Condition | None = None,
        pool: Executor | None = None,
    ) -> None:
        """`wakeup`, `pool`: what `run` waits with and where ticks run, in the place of real threads."""
        self._reconciler, self._store, self._clock = reconciler, store, clock
        self._sweep = sweep
        self._wakeup = wakeup or threading.Condition()
        self._when: dict[str, float] = {}  #: when each job is next ticked
        #: the same as a heap, with times that do not count any more: a wake-up costs the same for any number of jobs
        self._order: list[tuple[float, str]] = []
        self._waits_until = math.inf  #: when the thread wakes up by itself
        self._busy: dict[str, float] = {}  #: jobs that are being ticked, since when
        self._started_at: float | None = None
        self._passed_at: float | None = None
        self._pass_s = 0.0
        self._again: set[str] = set()  #: poked while busy
        self._attended: dict[str, float] = {}  #: until when a client follows it
        self._failures: dict[str, int] = {}  #: failed ticks in a row of each job
        self._change: int | None = None  #: the newest change that was read; None: none yet
        self._refreshing = False  #: a storage that is slow is not asked twice at once
        self._stopping = False
        self._pool = pool or ThreadPoolExecutor(workers, thread_name_prefix="tick")
        reconciler.observer.report_cache.news = self._heard
        for cache in reconciler.observer.slice_caches.values():
            cache.news = self._heard
        reconciler.groups.news = self.poke
        reconciler.queue.news = self._placed
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._started_at = self._clock.now()
        self._thread = start_loop("loop", self.run)

    def pulse(self) -> Pulse:
        """Return the present health of the loop. Waits for no tick."""
        now = self._clock.now()
        with self._wakeup:
            due = sum(when <= now for when in self._when.values())
            busy = [*self._busy.values()]
        longest = max((now - since for since in busy), default=0.0)
        return Pulse(
            self._started_at, self._passed_at, self._pass_s, due, len(busy), max(0.0, longest)
        )

    def stop(self) -> None:
        """Return when the running ticks have ended; what is still to do is left to the next backend."""
        with self._wakeup:
            self._stopping = True
            self._wakeup.notify_all()
        if self._thread is not None:
            self._thread.join()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def make_pass(self, *, sweep: bool = False) -> tuple[int, float | None]:
        """Tick every job that is due, and again those that ask for it within PASS_WAIT seconds; then, if asked, sweep.
        For a backend whose own thread does not run. Safe to repeat, beside that thread and from two callers: leases
        decide who acts. Returns the number of ticks, and the seconds until the next is due; None: never.
        """
        began, ticks = self._clock.now(), 0
        end = began + MAX_PASS
        self._resync(began)
        while self._clock.now() < end and not self._stopping:
            under_way = self._dispatch(self._clock.now())
            ticks += len(under_way)
            for tick in under_way:  # `wait` would not return when `stop` cancels one
                with contextlib.suppress(CancelledError):
                    tick.exception()
            nearest = self._nearest()
            if nearest is None or nearest > PASS_WAIT:
                break
            self._clock.sleep(min(nearest, max(0.0, end - self._clock.now())))
        if sweep:
            guarded(self._sweep)
        self._passed_at = self._clock.now()
        self._pass_s = self._passed_at - began
        return ticks, self._nearest()

    def _nearest(self) -> float | None:
        """Return the seconds until the next job is due, without the jobs that are being ticked."""
        with self._wakeup:
            when = self._first()
        return None if when == math.inf else max(0.0, when - self._clock.now())

    def poke(self, job_id: str) -> None:
        """Tick this job now."""
        with self._wakeup:
            self._schedule(job_id, self._clock.now())

    def attend(self, job_id: str, seconds: float) -> None:
        """Tick this job every second for that long: a client follows it."""
        now = self._clock.now()
        with self._wakeup:
            self._attended[job_id] = max(self._attended.get(job_id, 0.0), now + seconds)
        self.hasten(job_id, now + ATTENDED)

    def hasten(self, job_id: str, when: float) -> None:
        """Tick this job by then at the latest, if it waits for its next tick."""
        with self._wakeup:
            if when < self._when.get(job_id, when):
                self._schedule(job_id, when)

    def _heard(self, job_id: str) -> None:
        """Tick this job within a second, but not during another tick: its hosts or its slice have news."""
        self.hasten(job_id, self._clock.now() + NEWS_DELAY)

    def _placed(self, job_id: str) -> None:
        """Tick this job within a second, and again if it is being ticked: a new place is announced once."""
        with self._wakeup:
            if job_id in self._busy:
                self._again.add(job_id)
                return
        self._heard(job_id)

    def _schedule(self, job_id: str, when: float) -> None:
        if job_id in self._busy:
            self._again.add(job_id)
            return
        self._set(job_id, when)
        if when < self._waits_until:
            self._wakeup.notify_all()

    def _set(self, job_id: str, when: float) -> None:
        self._when[job_id] = when
        heapq.heappush(self._order, (when, job_id))

    def _first(self) -> float:
        """Return when the next job is due; infinity: never."""
        while self._order and self._when.get(self._order[0][1]) != self._order[0][0]:
            heapq.heappop(self._order)
        return self._order[0][0] if self._order else math.inf

    def run(self) -> None:
        """Tick jobs as they become due, until `stop`; what `start` gives to a thread."""
        next_resync, next_sweep = 0.0, self._clock.now() + 5
        next_refresh = 0.0
        while not self._stopping:
            now = self._clock.now()
            if is_due(next_resync, RESYNC, now):
                self._resync(now)
                next_resync = now + RESYNC
            if is_due(next_sweep, SWEEP_EVERY, now):
                self._pool.submit(guarded, self._sweep)
                next_sweep = now + SWEEP_EVERY
            if is_due(next_refresh, REFRESH, now):
                if not self._refreshing:
                    self._refreshing = True
                    self._pool.submit(self._refresh)
                next_refresh = now + REFRESH
            self._dispatch(now)
            self._passed_at = self._clock.now()
            self._wait(min(next_resync, next_sweep, next_refresh))

    def _refresh(self) -> None:
        guarded(self._reconciler.observer.report_cache.refresh)
        guarded(self._reconciler.queue.plan)
        self._refreshing = False

    def _resync(self, now: float) -> None:
        """Schedule the jobs that are due, and those that other backends changed since the last time; after the clock
        was set back, all."""
        set_back = now < (self._passed_at or 0.0) - RESYNC
        due = guarded(lambda: self._store.due(now)) or []
        if set_back or self._passed_at is None:
            # also jobs whose time a clock that was ahead has set
            due += guarded(lambda: [job.id for job in self._store.list(live=True)]) or []
        moved = guarded(self._moved) or []
        with self._wakeup:
            for job_id in [*self._when] if set_back else ():
                self._set(job_id, now)
            for job_id in due:
                if job_id not in self._when and job_id not in self._busy:
                    self._set(job_id, now)
            for job_id in moved:
                # a tick that is under way may have read the record before the change
                if job_id in self._busy or self._when.get(job_id, math.inf) > now + RESYNC:
                    self._schedule(job_id, now)

    def _moved(self) -> list[str]:
        """Return the ids of the jobs that any backend has changed since the last call."""
        if self._change is None:
            self._change = self._store.newest()
            return []
        self._change, moved = self._store.changes(self._change)
        return moved

    def _dispatch(self, now: float) -> list[Future[None]]:
        ready: list[str] = []
        with self._wakeup:
            while not self._stopping and self._first() <= now:
                job_id = heapq.heappop(self._order)[1]
                del self._when[job_id]
                self._busy[job_id] = now
                ready.append(job_id)
            # under the lock: `stop` shuts the pool down afterwards
            return [self._pool.submit(self._tick, job_id) for job_id in ready]

    def _wait(self, at_latest: float) -> None:
        with self._wakeup:
            if self._stopping:
                return
            self._waits_until = min(at_latest, self._first())
            timeout = self._waits_until - self._clock.now()
            if timeout > 0:
                self._wakeup.wait(timeout)
            self._waits_until = math.inf

    def _tick(self, job_id: str) -> None:
        wake_in = self._ticked(job_id)
        now = self._clock.now()
        with self._wakeup:
            self._busy.pop(job_id, None)
            if job_id in self._again:
                self._again.discard(job_id)
                wake_in = 0.0
            if wake_in is None:
                self._attended.pop(job_id, None)
                return
            if self._attended.get(job_id, 0.0) > now:
                wake_in = min(wake_in, ATTENDED)
            self._schedule(job_id, now + wake_in)

    def _ticked(self, job_id: str) -> float | None:
        began, outcome = time.monotonic(), "failed"
        with log_context.about(job=job_id):
            try:
                wake_in = self._reconciler.tick(job_id)
                self._failures.pop(job_id, None)
                outcome = "done"
            except TpujobError as error:
                wake_in = self._after_failure(job_id)
                log.warning("job %s: %s; next tick in %.0f s", job_id, error, wake_in)
            except Exception:
                wake_in = self._after_failure(job_id)
                log.exception("job %s: the tick failed", job_id)
        self._reconciler.counters.tick.labels(outcome).observe(time.monotonic() - began)
        return wake_in

    def _after_failure(self, job_id: str) -> float:
        """Return the pause after a failed tick: short at first, as a lost reply may have been about the end of a slice;
        then longer each time."""
        self._failures[job_id] = self._failures.get(job_id, 0) + 1
        return RETRY.pause(self._failures[job_id])


def is_due(at: float, every: float, now: float) -> bool:
    """Return whether a task that is repeated after `every` seconds is due, also because the clock was set back."""
    return not 0 < at - now <= every


def guarded(call: Callable[[], T]) -> T | None:
    """Return the result of `call`; after an error log it and return None, so that the thread continues."""
    try:
        return call()
    except TpujobError as error:
        log.warning("continuing after an error: %s", error)
    except Exception:
        log.exception("continuing after an error")
    return None
