"""The part of `api.JobsApi` that is about the backend itself."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tpujob.api import HealthView, LoopView, StoreView, TroubleView
from tpujob.domain.model import Cause
from tpujob.domain.observations import Circuit
from tpujob.domain.text import duration, many, rfc3339, unreadable
from tpujob.engine import Counters, Loop, Pulse
from tpujob.errors import TpujobError
from tpujob.lib.threads import LoopFailure, loop_failures
from tpujob.ports import Clock, Store
from tpujob.service.job_index import JobIndex
from tpujob.service.money.cost import Costs
from tpujob.service.notifications import Notifications
from tpujob.version import __version__

#: seconds after which the last pass is too old: three times as long as a pass may take to come
LATE, LATE_CALLED = 90.0, 180.0
#: seconds after which a tick is strange: a copy, or a program's grace, may take minutes
LONG_TICK = 900.0
#: seconds of a cheap read of the store after which it slows everything down
SLOW_READ = 1.0
#: seconds after which a message is late: its channel fails, or no process sends it
OVERDUE = 300.0
#: seconds for which a failure of a background loop is a trouble
RECENT = 3600.0


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """Facts of a backend's process that its wiring knows."""

    context: str = ""
    store: str = ""  #: where jobs are kept: `sqlite` or `firestore`
    started_at: float = 0.0
    channels_file: str = ""  #: of the local stack: where its notification channels are configured
    called: bool = False  #: it only works while it is called
    schemas: dict[str, int] = field(default_factory=dict[str, int])  #: versions of what it stores


@dataclass(frozen=True, slots=True)
class Look:
    """The readings of one check of the backend."""

    now: float
    pulse: Pulse
    read_s: float | None = None  #: how long a cheap read of the store took; None: it failed
    store_error: str = ""
    overdue: int = 0  #: messages that were not delivered for too long
    failures: Sequence[LoopFailure] = ()  #: of background loops of this process, lately
    unreadable: Sequence[str] = ()  #: ids of jobs whose records cannot be read


def is_late(process: ProcessFacts, pulse: Pulse, now: float) -> bool:
    """Return whether the last pass is older than it may be; False where no control loop was started."""
    if process.called:
        began, limit = process.started_at, LATE_CALLED
    elif pulse.started_at is not None:
        began, limit = pulse.started_at, LATE
    else:  # its loop was not started: it only answers
        return False
    return now - max(began, pulse.passed_at or 0.0) > limit


def troubles(process: ProcessFacts, look: Look) -> Iterator[TroubleView]:
    """Yield what is wrong, the worst first."""
    pulse, now = look.pulse, look.now
    if look.read_s is None:
        yield TroubleView(
            about="store",
            text=f"the store cannot be read: {look.store_error}",
            hint="No job is supervised until it can be read. `tpujob doctor` checks what it needs.",
        )
    elif look.read_s > SLOW_READ:
        yield TroubleView(
            about="store",
            text=f"a read of the store takes {duration(look.read_s)}, where milliseconds are usual",
            hint="Everything waits for it: check the load of the disk or the database.",
        )
    if look.unreadable:
        yield TroubleView(
            about="records",
            text=unreadable(look.unreadable),
            hint="`tpujob sweep --slice NAME` releases a slice of such a job.",
        )
    if is_late(process, pulse, now):
        ago = "never" if pulse.passed_at is None else f"{duration(now - pulse.passed_at)} ago"
        yield TroubleView(about="loop", text=f"the last pass over the jobs was {ago}", hint=_cure(process))  # fmt: skip
    if pulse.longest_s > LONG_TICK:
        yield TroubleView(
            about="loop",
            text=f"the tick of a job has been running for {duration(pulse.longest_s)}",
            hint="Other jobs are not affected. The log names the job and its last action.",
        )
    for failure in look.failures:
        yield TroubleView(
            about="loop",
            text=f"the background loop {failure.name!r} failed {many(failure.errors, 'time')}, last "
            f"{duration(max(0.0, now - failure.at))} ago: {failure.text}",
            hint="It continues by itself. This is a bug: the log of the backend has the traceback.",
        )
    if look.overdue:
        yield TroubleView(
            about="notifications",
            text=f"{many(look.overdue, 'message')} not delivered for more than {duration(OVERDUE)}",
            hint="`tpujob notifications` shows what each channel answers.",
        )


def _cure(process: ProcessFacts) -> str:
    if process.called:
        return (
            "The control loop does not run. Cloud Scheduler should call the backend once a minute: check whether its "
            "job is paused, and what its calls return: `gcloud scheduler jobs describe`."
        )
    return (
        "The control loop does not run; running programs are not affected. Restart the backend, on this machine by "
        "`tpujob down` and then `tpujob up`: it continues where it was."
    )


class BackendStatus:
    """Thread-safe; no tick waits for what is read here."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        index: JobIndex,
        loop: Loop,
        counters: Counters,
        notifications: Notifications,
        circuits: Callable[[], Mapping[str, Circuit]],
        costs: Costs,
        process: ProcessFacts,
    ) -> None:
        self.store, self.clock, self.index, self.loop = store, clock, index, loop
        self.counters, self.circuits, self.process = counters, circuits, process
        self.costs = costs
        self._notifications = notifications
        self.streams: Callable[[], int] = lambda: 0  #: open ones, where pages are live

    def health(self) -> HealthView:
        """Return what `JobsApi.health` documents."""
        now, pulse = self.clock.now(), self.loop.pulse()
        read_s, revision, error = self.read()
        waiting, overdue = self.messages(OVERDUE)
        failures = loop_failures(time.time() - RECENT)
        unclear = () if read_s is None else self.unreadable()
        look = Look(now, pulse, read_s, error, overdue, failures, unclear)
        bad = [*troubles(self.process, look)]
        count = self.counters.registry.get_sample_value
        done, failed = (
            int(count("tpujob_tick_seconds_count", {"outcome": k}) or 0) for k in ("done", "failed")
        )
        passed = pulse.passed_at
        return HealthView(
            at=rfc3339(now),
            ok=not bad,
            troubles=bad,
            version=__version__,
            context=self.process.context,
            started_at=rfc3339(self.process.started_at),
            store=StoreView(
                kind=self.process.store,
                read_s=read_s,
                revision=revision,
                behind=max(0, revision - self.index.revision) if self.index.revision else 0,
            ),
            loop=LoopView(
                called=self.process.called,
                passed_at=None if passed is None else rfc3339(passed),
                age_s=None if passed is None else max(0.0, now - passed),
                late=is_late(self.process, pulse, now),
                pass_s=pulse.pass_s,
                due=pulse.due,
                ticking=pulse.ticking,
                longest_s=pulse.longest_s,
                ticks=done + failed,
                failed=failed,
            ),
            refused=sum(self.refused().values()),
            streams=self.streams(),
            waiting=waiting,
            schemas=dict(self.process.schemas),
        )

    def alive(self) -> bool:
        """Return whether the process works, without a read. One that only works while it is called is alive when it
        answers."""
        late = is_late(self.process, self.loop.pulse(), self.clock.now())
        return self.process.called or not late

    # Readings --------------------------------------------------------------------------------------------------------

    def read(self) -> tuple[float | None, int, str]:
        """Return the seconds that a cheap read of the store took, and its newest change; or why it failed."""
        began = time.monotonic()
        try:
            revision = self.store.newest()
        except TpujobError as error:
            return None, 0, error.message
        return time.monotonic() - began, revision, ""

    def unreadable(self) -> Sequence[str]:
        """Return the ids of the jobs whose records cannot be read; none when the store does not answer."""
        try:
            return self.index.unreadable()
        except TpujobError:
            return ()

    def messages(self, late: float) -> tuple[int, int]:
        """Count the messages that wait, at most 1,000, and those older than that many seconds; 0 if they cannot be
        read."""
        try:
            return self._notifications.waiting(late)
        except TpujobError:
            return 0, 0

    def refused(self) -> dict[str, int]:
        """Count the offers that are not requested now, by cause; none when the store cannot be read."""
        now = self.clock.now()
        counts: dict[str, int] = {Cause.STOCKOUT: 0, Cause.QUOTA: 0}
        try:
            circuits = self.circuits()
        except TpujobError:
            return counts
        for circuit in circuits.values():
            if circuit.until > now:
                counts[circuit.cause] = counts.get(circuit.cause, 0) + 1
        return counts
