"""Facts of a job that one process keeps beside the record. A new process reads them again from the reports."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tpujob.domain.decide import best_progress
from tpujob.domain.failures.stall import WATCH_LASTS
from tpujob.domain.host.report_verifier import VerifiedReports
from tpujob.domain.model import Job, Progress, Unanswered, Watch
from tpujob.domain.observations import (
    HostReport,
    Maintenance,
    Present,
    SliceSeen,
    SliceState,
    Unknown,
)
from tpujob.protocol import Phase


@dataclass(slots=True)
class JobRuntime:
    """Times are by this process's clock, unless another process has stored them."""

    #: the attempt that `progress`, `moved_at`, `reports` and `maintenance` are about
    attempt: int = 0
    progress: Progress = field(default_factory=Progress)
    #: when the step was last seen to change; of a step that this process saw first: the program's newest progress
    moved_at: float | None = None
    #: of each host the last that could be read, and when they were read
    reports: tuple[HostReport, ...] = ()
    heard_at: float = 0.0
    #: the first that is announced for a host
    maintenance: Maintenance | None = None
    #: of the newest attempt, and whether others write where its hosts report
    verified: VerifiedReports = field(default_factory=VerifiedReports)
    disturbed: bool = False
    #: since when every read of the reports has worked, in this process or in those before it; None: the last failed
    readable_since: float | None = None
    #: when reading last worked in this process, and when it last failed
    read_at: float = 0.0
    unread_at: float = 0.0
    #: what is being retried, in one line, since when, and whether that is an observation or an action
    trouble: str = ""
    trouble_since: float | None = None
    while_observing: bool = False
    #: when every host took the start of the newest attempt: first, and last from this process
    launched: float | None = None
    started: float | None = None
    #: when silent hosts were last asked over SSH; those that did not answer: since when, and how often they were asked
    probed_at: float = 0.0
    dead: dict[int, tuple[float, int]] = field(default_factory=dict[int, tuple[float, int]])
    answered: dict[int, float] = field(default_factory=dict[int, float])  #: when hosts last did
    #: hosts that answer over SSH, and whose agents have died
    agents_died: frozenset[int] = frozenset()
    #: its slice may be handed on: nothing was in the way so far
    can_hand_over: bool = True
    #: slices that are being deleted, by name
    deleting: set[str] = field(default_factory=set[str])
    #: when each slice was last seen alive; of one whose readiness is not stored yet: not ready
    last_seen: dict[str, float] = field(default_factory=dict[str, float])
    preempted: dict[str, float] = field(default_factory=dict[str, float])  #: when it was first seen

    def set_trouble(self, trouble: str, now: float, *, while_observing: bool) -> None:
        """Remember the current trouble and since when; empty: it is over. `while_observing`: of observing."""
        if trouble:
            self.trouble_since = self.trouble_since if self.trouble else now
            self.trouble, self.while_observing = trouble, while_observing
        elif self.while_observing is while_observing:
            self.trouble = ""

    def turn_to(self, job: Job) -> None:
        """Forget what hosts reported and answered in an earlier attempt."""
        if job.attempt and self.verified.attempt != job.attempt.number:
            self.verified = VerifiedReports(job.attempt.number)
            self.dead, self.answered, self.agents_died = {}, {}, frozenset()
            self.launched = self.started = None
            self.can_hand_over = True

    def take_over(self, job: Job, now: float) -> None:
        """The reports could be read: continue from the stored watch unless this process has a newer one. After a
        long pause, ignore this process's own start of that time."""
        if now - self.read_at > WATCH_LASTS:
            self.readable_since = None
        self.read_at = now
        stored = job.attempt.watch if job.attempt else None
        if stored is None or now - stored.at > WATCH_LASTS:
            stored = None
        elif stored.at > self.probed_at:
            self.dead = {u.host: (u.since, u.probes) for u in stored.unanswered}
        if self.readable_since is None:
            goes_on = stored is not None and stored.at > self.unread_at
            self.readable_since = stored.since if stored and goes_on else now
        if self.launched is None and stored is not None:
            self.launched = stored.launched

    def watch(self, now: float) -> Watch:
        """Return what another process needs to continue from here."""
        dead = (Unanswered(host, since, n) for host, (since, n) in sorted(self.dead.items()))
        since = now if self.readable_since is None else self.readable_since
        return Watch(since, now, tuple(dead), self.launched)

    def note_reports(self, job: Job, reports: tuple[HostReport, ...], now: float) -> None:
        """Remember what the hosts of the newest attempt have reported, and when its step changed."""
        if not reports or job.attempt is None:
            return
        progress = best_progress(reports)
        if self.attempt != job.attempt.number:  # an earlier process may have seen the step change
            signs = [now - r.age - r.idle for r in reports if r.idle is not None]
            self.moved_at = None if progress.step is None else max(signs, default=None)
        elif progress.step != self.progress.step:
            self.moved_at = now
        self.progress, self.attempt = progress, job.attempt.number
        self.reports, self.heard_at = reports, now
        announced = (r.maintenance for r in reports if r.maintenance)
        self.maintenance = min(announced, key=lambda maintenance: maintenance.starts, default=None)

    def ends(self, job: Job, now: float) -> tuple[HostReport, ...]:
        """Return the reports of the newest attempt as they were read last, if its program has ended on every host;
        else none."""
        ended = [r for r in self.reports if r.phase is Phase.EXITED]
        if job.attempt is None or self.attempt != job.attempt.number or len(ended) < job.hosts:
            return ()
        return tuple(replace(r, age=r.age + max(0.0, now - self.heard_at)) for r in ended)

    def note_look(
        self, slices: Mapping[str, SliceSeen], reports: Sequence[HostReport] | Unknown, now: float
    ) -> None:
        """Remember what could not be observed. A slice seen DELETING counts as such until it is seen otherwise."""
        unseen = [part.error for part in (*slices.values(), reports) if isinstance(part, Unknown)]
        self.set_trouble(unseen[0] if unseen else "", now, while_observing=True)
        for name, seen in slices.items():
            if isinstance(seen, Present) and seen.state is SliceState.DELETING:
                self.deleting.add(name)
            elif isinstance(seen, Present):
                self.deleting.discard(name)
            if isinstance(seen, Present) and seen.state is SliceState.PREEMPTED:
                self.preempted.setdefault(name, now)
        self.deleting &= slices.keys()

    def note_alive(self, job: Job, slices: Mapping[str, SliceSeen], now: float) -> dict[str, float]:
        """Remember which slices were seen alive now; return when they were last seen alive before."""
        before = self.last_seen
        unready = {slice.name for slice in job.slices if slice.ready_at is None}
        alive = {
            name: now
            for name, seen in slices.items()
            if isinstance(seen, Present)
            and not (seen.state.lost or seen.state is SliceState.DELETING)
            and not (seen.state is SliceState.READY and name in unready)
        }
        self.last_seen = {name: at for name, at in (before | alive).items() if name in slices}
        return before
