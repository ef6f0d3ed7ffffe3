"""What can be seen of one job just now: its slices, its hosts' reports, its hosts over SSH.

Reads only. Never raises for an error of a cloud or a host: what could not be seen is Unknown, and decides nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tpujob.domain.decide import best_progress
from tpujob.domain.failures import triage
from tpujob.domain.host import reports as host_reports
from tpujob.domain.model import Job, Progress, State
from tpujob.domain.observations import (
    NO_FUNDS,
    Circuit,
    Funds,
    Maintenance,
    Present,
    Report,
    Seen,
    Silence,
    SliceSeen,
    SliceState,
    Unknown,
)
from tpujob.domain.prices import LIST, PriceList
from tpujob.errors import NotFound, Refused, Transient
from tpujob.ports import Blobs, Clock, Hosts, Slices
from tpujob.protocol import Phase, limits, paths

log = logging.getLogger(__name__)

#: seconds for one look at the world
LOOK = 10.0
#: seconds, at most, for reading the evidence of failed hosts; the number of hosts that are read
EVIDENCE, WITNESSES = 5.0, 8
#: missing reports after which a host is asked over SSH; reports between two questions; seconds to wait for an answer
PROBE_AFTER, PROBE_EVERY, PROBE_TIME = 4, 2, 10.0


@dataclass(slots=True)
class Live:
    """What is known of a job beyond its record. Lost with the process, and read again from the reports."""

    progress: Progress = field(default_factory=Progress)
    attempt: int = 0
    maintenance: Maintenance | None = None  #: the first that is announced for a host
    moved_at: float | None = None  #: when the step was last seen to change
    readable_since: float | None = None  #: since when every read of the reports has worked
    trouble: str = ""  #: what is being retried, in one line
    trouble_since: float | None = None
    looking: bool = False  #: the trouble is with observing, not with an action
    probed_at: float = 0.0
    #: hosts that do not answer over SSH: since when, and how often they were asked
    dead: dict[int, tuple[float, int]] = field(default_factory=dict[int, tuple[float, int]])
    leaving: set[str] = field(default_factory=set[str])  #: slices whose deletion was seen to go on

    def meet(self, trouble: str, now: float, *, looking: bool) -> None:
        """Remember the current trouble and since when; empty: it is over. `looking`: which kind of trouble is told."""
        if trouble:
            self.trouble_since = self.trouble_since if self.trouble else now
            self.trouble, self.looking = trouble, looking
        elif self.looking is looking:
            self.trouble = ""

    def watch_leaving(self, slices: Mapping[str, SliceSeen]) -> None:
        """A slice that was seen DELETING counts as such until it is seen in another state."""
        for name, seen in slices.items():
            if isinstance(seen, Present) and seen.state is SliceState.DELETING:
                self.leaving.add(name)
            elif isinstance(seen, Present):
                self.leaving.discard(name)
        self.leaving &= slices.keys()


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
        self.live: dict[str, Live] = {}

    def live_of(self, job_id: str) -> Live:
        """What is known of it; nothing as yet, if it was never looked at."""
        found = self.live.get(job_id)
        if found is None:
            found = self.live[job_id] = Live()
        return found

    def look(self, job: Job) -> Seen:
        """Everything that a decision about this job depends on."""
        held = [s for s in job.slices if s.gone_at is None]
        slices: dict[str, SliceSeen] = {s.name: self.slices.look(s, timeout=LOOK) for s in held}
        reports = self._reports(job) if job.state in _REPORTING and job.attempt else ()
        unseen = [s.error for s in (*slices.values(), reports) if isinstance(s, Unknown)]
        live = self.live_of(job.id)
        now = self.clock.now()
        live.meet(unseen[0] if unseen else "", now, looking=True)
        since = now if live.readable_since is None else live.readable_since
        live.watch_leaving(slices)
        silent = self._probe(job, reports, live) if reports and job.slice else {}
        return Seen(
            slices=slices,
            reports=reports,
            readable_for=now - since,
            silent=silent,
            report_every=self.report_every,
            leaving=frozenset(live.leaving),
            circuits=self.circuits() if job.state in _ASKING else {},
            prices=self.prices,
            funds=NO_FUNDS if job.state.final else self.funds(job),
        )

    def _probe(
        self, job: Job, reports: Sequence[Report] | Unknown, live: Live
    ) -> dict[int, Silence]:
        """Ask hosts whose reports are missing over SSH, from time to time. Returns those that do not answer there
        either, and for how long."""
        if isinstance(reports, Unknown) or job.slice is None:
            return {}
        now, every = self.clock.now(), self.report_every
        quiet = {r.host for r in reports if r.age > PROBE_AFTER * every and r.phase != Phase.EXITED}
        if quiet and now - live.probed_at >= PROBE_EVERY * every:
            answered = self.hosts.alive(job.slice, timeout=PROBE_TIME)
            live.probed_at = now
            dead = {host: live.dead.get(host, (now, 0)) for host in quiet - answered}
            live.dead = {host: (since, n + 1) for host, (since, n) in dead.items()}
        found = {host: live.dead[host] for host in quiet & set(live.dead)}
        return {host: Silence(now - since, n) for host, (since, n) in found.items()}

    def _reports(self, job: Job) -> tuple[Report, ...] | Unknown:
        """Every host's report of the newest attempt, by one list call; also remembers its progress."""
        try:
            blobs = self.blobs.list(host_reports.reports_prefix(job), timeout=LOOK)
            storage_now = self.blobs.clock(timeout=LOOK)
        except (Transient, Refused) as error:
            self.live_of(job.id).readable_since = None
            return Unknown(str(error))
        live = self.live_of(job.id)
        if live.readable_since is None:
            live.readable_since = self.clock.now()
        found = host_reports.read_reports(job, blobs, now=storage_now)
        if found and job.attempt:
            progress = best_progress(found)
            if live.attempt != job.attempt.number:
                live.moved_at = None
            elif progress.step != live.progress.step:
                live.moved_at = self.clock.now()
            live.progress, live.attempt = progress, job.attempt.number
            announced = (r.maintenance for r in found if r.maintenance)
            live.maintenance = min(announced, key=lambda one: one.starts, default=None)
        return found

    def with_evidence(self, job: Job, seen: Seen) -> Seen:
        """The same with the evidence of failed hosts, as far as it can be read in time. It may name a better cause."""
        if isinstance(seen.reports, Unknown) or job.attempt is None:
            return seen
        until = self.clock.now() + EVIDENCE
        kept: dict[int, tuple[str, ...]] = {}
        for report in triage.witnesses(seen.reports)[:WITNESSES]:
            left = until - self.clock.now()
            if left <= 0:
                break
            path = paths.report_path(job.workdir_of(report.attempt), report.attempt, report.host)
            try:
                body = self.blobs.get(path, end=limits.MAX_EVIDENCE_READ, timeout=left)
            except (Transient, Refused, NotFound) as error:
                log.info("job %s: no evidence of host %d: %s", job.id, report.host, error)
                continue
            kept[report.host] = host_reports.read_evidence(body)
        reports = tuple(replace(r, evidence=kept.get(r.host, ())) for r in seen.reports)
        return replace(seen, reports=reports)
