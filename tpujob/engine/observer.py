"""What can be seen of one job just now: its slices, its hosts' reports, its hosts over SSH.

Reads only. Never raises for an error of a cloud or a host: what could not be seen is Unknown, and decides nothing.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tpujob.domain.decide import best_progress
from tpujob.domain.failures import stall, triage
from tpujob.domain.failures.stall import WATCH_LASTS
from tpujob.domain.hardware.prices import LIST, PriceList
from tpujob.domain.host import keys
from tpujob.domain.host import reports as host_reports
from tpujob.domain.host.report_verifier import VerifiedReports, add_reports
from tpujob.domain.model import Job, Progress, State, Unanswered, Watch
from tpujob.domain.observations import (
    NO_FUNDS,
    Circuit,
    Funds,
    HostReport,
    Maintenance,
    Observation,
    Present,
    Silence,
    SliceSeen,
    SliceState,
    Unknown,
)
from tpujob.engine.report_cache import ReportCache
from tpujob.engine.slice_cache import SliceCache
from tpujob.errors import NotFound, Refused, Transient
from tpujob.ports import Blob, Blobs, Clock, Hosts, Slices
from tpujob.protocol import Phase, limits
from tpujob.protocol.old_slice_report import is_slice_report

log = logging.getLogger(__name__)

#: seconds for one look at the world
LOOK = 10.0
#: seconds, at most, for reading the evidence of failed hosts; the number of hosts that are read
EVIDENCE, WITNESSES = 5.0, 8
#: seconds without a word of a host after which it is asked over SSH; between two questions; to wait for an answer
PROBE_AFTER, PROBE_EVERY, PROBE_TIME = 75.0, 20.0, 10.0
#: jobs whose hosts are asked at once: when reports of all jobs are late, the others must have their ticks
PROBED = 16


@dataclass(slots=True)
class JobRuntime:
    """What is known of a job beyond its record. Lost with the process, and read again from the reports."""

    progress: Progress = field(default_factory=Progress)
    attempt: int = 0
    verified: VerifiedReports = field(default_factory=VerifiedReports)  #: of the newest attempt
    disturbed: bool = False  #: others write where its hosts report
    reports: tuple[HostReport, ...] = ()  #: of the hosts, as they were read last
    heard_at: float = 0.0  #: when that was
    maintenance: Maintenance | None = None  #: the first that is announced for a host
    moved_at: float | None = None  #: when the step was last seen to change
    #: since when every read of the reports has worked, in this process or in those before it; None: not now
    readable_since: float | None = None
    unread_at: float = 0.0  #: when one last failed in this process
    read_at: float = 0.0  #: when one last worked in this process
    trouble: str = ""  #: what is being retried, in one line
    trouble_since: float | None = None
    looking: bool = False  #: the trouble is with observing, not with an action
    launched: float | None = (
        None  #: when every host had first taken the start of the newest attempt
    )
    started: float | None = None  #: when they last took it from this process
    probed_at: float = 0.0
    #: hosts that do not answer over SSH: since when, and how often they were asked
    dead: dict[int, tuple[float, int]] = field(default_factory=dict[int, tuple[float, int]])
    abandoned: frozenset[int] = frozenset()  #: hosts that know that their agents have died
    leaving: set[str] = field(default_factory=set[str])  #: slices whose deletion was seen to go on

    def meet(self, trouble: str, now: float, *, looking: bool) -> None:
        """Remember the current trouble and since when; empty: it is over. `looking`: it is a trouble with observing."""
        if trouble:
            self.trouble_since = self.trouble_since if self.trouble else now
            self.trouble, self.looking = trouble, looking
        elif self.looking is looking:
            self.trouble = ""

    def turn_to(self, job: Job) -> None:
        """Forget what is known of an attempt that is not the newest any more."""
        if job.attempt and self.verified.attempt != job.attempt.number:
            self.verified = VerifiedReports(job.attempt.number)
            self.dead, self.abandoned = {}, frozenset()
            self.launched = self.started = None

    def take_over(self, job: Job, now: float) -> None:
        """The reports could be read: go on from what another process has stored, unless this one knows better. One that
        was held up for long knows nothing of that time."""
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
        """What the next process is to go on from."""
        dead = (Unanswered(host, since, n) for host, (since, n) in sorted(self.dead.items()))
        since = now if self.readable_since is None else self.readable_since
        return Watch(since, now, tuple(dead), self.launched)

    def watch_leaving(self, slices: Mapping[str, SliceSeen]) -> None:
        """A slice that was seen DELETING counts as such until it is seen in another state."""
        for name, seen in slices.items():
            if isinstance(seen, Present) and seen.state is SliceState.DELETING:
                self.leaving.add(name)
            elif isinstance(seen, Present):
                self.leaving.discard(name)
        self.leaving &= slices.keys()


def _quiet(report: HostReport, every: float) -> bool:
    """Whether there has been no word of a host for a while."""
    return report.age > PROBE_AFTER * stall.pace(every) and report.phase != Phase.EXITED


#: states in which the newest attempt's reports say something
_REPORTING = frozenset({State.PREPARING, State.RUNNING, State.HOLDING})
#: states in which it matters what the cloud has refused lately
_ASKING = frozenset({State.QUEUED, State.PROVISIONING, State.RELEASING})


class Observer:
    """Observes one job at a time, and remembers what a single observation cannot tell: since when."""

    def __init__(
        self,
        slices: Slices,
        hosts: Hosts,
        blobs: Blobs,
        clock: Clock,
        circuits: Callable[[], Mapping[str, Circuit]],
        report_every: float,
        prices: PriceList = LIST,
        funds: Callable[[Job], Funds] = lambda _: NO_FUNDS,
    ) -> None:
        self.slices, self.hosts, self.blobs, self.clock = slices, hosts, blobs, clock
        self.circuits, self.prices, self.funds = circuits, prices, funds
        self.report_every = report_every
        self.report_cache = ReportCache(blobs, clock, prices)
        self.slice_cache = SliceCache(slices, clock)
        self.live: dict[str, JobRuntime] = {}
        self._probing = threading.Semaphore(PROBED)

    def live_of(self, job_id: str) -> JobRuntime:
        """What is known of it; nothing as yet, if it was never looked at."""
        found = self.live.get(job_id)
        if found is None:
            found = self.live[job_id] = JobRuntime()
        return found

    def look(self, job: Job, *, by_name: bool = False) -> Observation:
        """Everything that a decision about this job depends on. `by_name`: its slices as the cloud shows each of them
        now, and not as its newest list does."""
        began = self.clock.now()
        held = [s for s in job.slices if s.gone_at is None]
        steady = self._steady(job)
        looks = {
            s.name: self.slice_cache.look(
                s, timeout=LOOK, job_id=job.id, by_name=by_name, steady=steady
            )
            for s in held
        }
        slices: dict[str, SliceSeen] = {name: seen for name, (seen, _) in looks.items()}
        reports = self._reports(job) if job.state in _REPORTING and job.attempt else ()
        unseen = [s.error for s in (*slices.values(), reports) if isinstance(s, Unknown)]
        live = self.live_of(job.id)
        now = self.clock.now()
        live.meet(unseen[0] if unseen else "", now, looking=True)
        since = now if live.readable_since is None else live.readable_since
        live.watch_leaving(slices)
        probed_at = live.probed_at
        silent = self._probe(job, reports, live) if reports and job.slice else {}
        if live.probed_at != probed_at:  # which may take long: what was read before it is old
            reports = self._reports(job)
            silent = self._probe(job, reports, live)
        waits = not isinstance(reports, Unknown) and self._waits(job, reports)
        return Observation(
            slices=slices,
            listed=any(listed for _, listed in looks.values()),
            took=self.clock.now() - began,
            reports=reports,
            readable_for=now - since,
            launched_for=None if live.launched is None else now - live.launched,
            disturbed=live.disturbed,
            ignored=live.verified.ignored(now),
            silent=silent,
            abandoned=live.abandoned,
            watch=live.watch(now) if waits else None,
            report_every=self.report_every,
            leaving=frozenset(live.leaving),
            circuits=self.circuits() if job.state in _ASKING else {},
            prices=self.prices,
            funds=NO_FUNDS if job.state.final else self.funds(job),
        )

    def _steady(self, job: Job) -> bool:
        """Return whether its program runs, and no host has reported anything else."""
        reports = self.live_of(job.id).reports
        ending = any(r.phase != Phase.RUNNING or r.notice for r in reports)
        return job.state is State.RUNNING and not ending

    def _waits(self, job: Job, reports: Sequence[HostReport]) -> bool:
        """Whether there is no word of some host."""
        heard = [r for r in reports if not _quiet(r, self.report_every)]
        return job.attempt is not None and len(heard) < job.hosts

    def _probe(
        self, job: Job, reports: Sequence[HostReport] | Unknown, live: JobRuntime
    ) -> dict[int, Silence]:
        """Ask hosts whose reports are missing over SSH, from time to time. Returns those that do not answer there
        either, and for how long; `live.abandoned` has those whose agents have died."""
        if isinstance(reports, Unknown) or job.slice is None or job.attempt is None:
            return {}
        now, every = self.clock.now(), self.report_every
        quiet = {r.host for r in reports if _quiet(r, every)}
        due = quiet and now - live.probed_at >= PROBE_EVERY * stall.pace(every)
        if due and self._probing.acquire(blocking=False):
            try:
                answered = self.hosts.alive(job.slice, timeout=PROBE_TIME)
                asked, attempt = quiet & answered, job.attempt.number
                live.abandoned = self.hosts.abandoned(
                    job.slice, asked, job=job.id, attempt=attempt, timeout=PROBE_TIME / 2
                )
            finally:
                self._probing.release()
            live.probed_at = now
            dead = {host: live.dead.get(host, (now, 0)) for host in quiet - answered}
            live.dead = {host: (since, n + 1) for host, (since, n) in dead.items()}
        live.abandoned &= quiet
        found = {host: live.dead[host] for host in quiet & set(live.dead)}
        return {host: Silence(now - since, n) for host, (since, n) in found.items()}

    def _reports(self, job: Job) -> tuple[HostReport, ...] | Unknown:
        """Every host's report of the newest attempt; also remembers its progress."""
        try:
            blobs, storage_now = self.report_cache.reports_of(job, timeout=LOOK)
            signed = job.attempt is not None and job.attempt.signed
            key = self.hosts.key(keys.of_attempt(job)) if signed else None
        except (Transient, Refused) as error:
            live = self.live_of(job.id)
            live.readable_since, live.unread_at = None, self.clock.now()
            return Unknown(str(error))
        live = self.live_of(job.id)
        live.turn_to(job)
        live.take_over(job, self.clock.now())
        bodies = self._bodies_of_slices(job, [b for b in blobs if live.verified.is_new(b)])
        live.verified = add_reports(live.verified, job, blobs, key=key, bodies=bodies)
        live.disturbed = live.verified.is_disturbed(storage_now)
        found = live.verified.reports(storage_now)
        if job.state is State.RUNNING and job.attempt:  # every host that runs has reported
            missed = set(range(job.hosts)) - {r.host for r in found}
            # a listing may be older than the attempt: another backend may have started it some seconds ago
            began = job.attempt.running_at or job.attempt.started_at
            age = self.clock.now() - max(live.readable_since or 0.0, began)
            lost = (HostReport(host, job.attempt.number, Phase.RUNNING, age) for host in missed)
            found = tuple(sorted((*found, *lost), key=lambda r: r.host))
        if found and job.attempt:
            progress = best_progress(found)
            if live.attempt != job.attempt.number:
                live.moved_at = None
            elif progress.step != live.progress.step:
                live.moved_at = self.clock.now()
            live.progress, live.attempt = progress, job.attempt.number
            live.reports, live.heard_at = found, self.clock.now()
            announced = (r.maintenance for r in found if r.maintenance)
            live.maintenance = min(announced, key=lambda one: one.starts, default=None)
        return found

    def _bodies_of_slices(self, job: Job, blobs: Sequence[Blob]) -> dict[str, bytes]:
        """Read the objects of old agents that have the reports of many hosts; those that cannot be read come later."""
        bodies: dict[str, bytes] = {}
        for blob in blobs:
            if is_slice_report(blob.metadata):
                try:
                    bodies[blob.path] = self.blobs.get(blob.path, end=limits.MAX_BODY, timeout=LOOK)
                except (Transient, Refused, NotFound) as error:
                    log.info("job %s: %s is read later: %s", job.id, blob.path, error)
        return bodies

    def with_evidence(self, job: Job, seen: Observation) -> Observation:
        """The same with the evidence of failed hosts, as far as it can be read in time. It may name a better cause."""
        if isinstance(seen.reports, Unknown) or job.attempt is None:
            return seen
        until = self.clock.now() + EVIDENCE
        newest = self.live_of(job.id).verified.newest
        asked = triage.witnesses(seen.reports)[:WITNESSES]
        paths = {r.host: newest[r.host].path for r in asked if r.host in newest}
        bodies: dict[str, bytes] = {}
        for path in dict.fromkeys(paths.values()):
            left = until - self.clock.now()
            if left <= 0:
                break
            try:
                bodies[path] = self.blobs.get(path, end=limits.MAX_BODY, timeout=left)
            except (Transient, Refused, NotFound) as error:
                log.info("job %s: no evidence from %s: %s", job.id, path, error)
        key = self.hosts.key(keys.of_attempt(job)) if job.attempt.signed else ""
        kept = {
            r.host: host_reports.evidence_of(r, bodies[paths[r.host]], key)
            for r in asked
            if paths.get(r.host) in bodies
        }
        reports = tuple(replace(r, evidence=kept.get(r.host, ())) for r in seen.reports)
        return replace(seen, reports=reports)
