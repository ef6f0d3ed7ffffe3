"""Observes one job: its slices, its hosts' reports, its hosts over SSH.

Reads only. Errors of a cloud or a host are never raised: the part is Unknown, which decides nothing.
"""

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tpujob.domain.actions import Needs
from tpujob.domain.capacity.waits import PlaceKey
from tpujob.domain.failures import contact, stall, triage
from tpujob.domain.hardware.prices import PriceList
from tpujob.domain.host import keys
from tpujob.domain.host import reports as host_reports
from tpujob.domain.host.report_verifier import add_reports
from tpujob.domain.model import Job, Slice, State
from tpujob.domain.observations import (
    NO_FUNDS,
    NO_HAND_OVER,
    Circuit,
    Funds,
    HandOver,
    HostReport,
    Observation,
    Place,
    Silence,
    SliceSeen,
    Unknown,
    UsualWait,
)
from tpujob.engine.job_runtime import JobRuntime
from tpujob.engine.report_cache import ReportCache
from tpujob.engine.slice_cache import SliceCache
from tpujob.errors import NotFound, Refused, Transient
from tpujob.ports import Ports
from tpujob.protocol import Phase, limits

log = logging.getLogger(__name__)

#: seconds for one look at the world
LOOK = 10.0
#: seconds, at most, for reading the evidence of failed hosts; the number of hosts that are read
EVIDENCE, WITNESSES = 5.0, 8
#: seconds between two questions over SSH to hosts without a sign of life, and to wait for an answer
PROBE_EVERY, PROBE_TIME = 20.0, 10.0
#: jobs whose hosts are asked at once: when reports of all jobs are late, the others must have their ticks
PROBED = 16


#: states in which the newest attempt's reports say something
_REPORTING = frozenset({State.PREPARING, State.RUNNING, State.HOLDING})
#: states in which it matters what the cloud has refused lately
_ASKING = frozenset({State.QUEUED, State.PROVISIONING, State.RELEASING})
#: states in which a job may give way to another one
_GIVING_WAY = frozenset({State.PROVISIONING, State.RUNNING})


class Observer:
    """Observes jobs, and remembers what a single observation cannot show: since when. Threads may share it, each for
    another job."""

    def __init__(
        self,
        ports: Ports,
        circuits: Callable[[], Mapping[str, Circuit]],
        report_every: float,
        prices: PriceList,
        funds: Callable[[Job], Funds],
        place: Callable[[Job], Place],
        hand_over: Callable[[Job], HandOver],
        gives_way_to: Callable[[Job], str],
        race: Callable[[Job], frozenset[str]],
        waits: Callable[[Job], Mapping[PlaceKey, UsualWait]],
    ) -> None:
        self.hosts, self.blobs, self.clock = ports.hosts, ports.blobs, ports.clock
        self.circuits, self.prices, self.funds = circuits, prices, funds
        self.place, self.hand_over, self.gives_way_to = place, hand_over, gives_way_to
        self.race, self.waits = race, waits
        self.report_every = report_every
        self.report_cache = ReportCache(ports.blobs, ports.clock, prices)
        self.slices = ports.slices
        self.slice_caches = {
            name: SliceCache(ports.slices, name, ports.clock) for name in ports.slices.slices
        }
        self.live = defaultdict[str, JobRuntime](JobRuntime)  #: by job
        self._probing = threading.Semaphore(PROBED)

    def look(self, job: Job) -> Observation:
        """Observe what a decision about this job depends on: its slices as the newest list shows them, as far as that
        may be believed, and the reports of its hosts without evidence."""
        at, live = self.clock.now(), self.live[job.id]
        slices, listed = self._slices(job)
        reports = self._reports(job, live) if job.state in _REPORTING and job.attempt else ()
        now = self.clock.now()
        live.note_look(slices, reports, now)
        last_seen = live.note_alive(job, slices, at)
        since = now if live.readable_since is None else live.readable_since
        probed_at = live.probed_at
        silent = self._probe(job, reports, live) if job.state in _REPORTING else {}
        if live.probed_at != probed_at:  # which may take long: what was read before it is old
            reports = self._reports(job, live)
            silent = self._probe(job, reports, live)
        waits = not isinstance(reports, Unknown) and (silent or self._waits(job, reports))
        return Observation(
            slices=slices,
            listed=listed,
            at=at,
            took=self.clock.now() - at,
            reports=reports,
            evidence=False,
            readable_for=now - since,
            launched_for=None if live.launched is None else now - live.launched,
            disturbed=live.disturbed,
            ignored=live.verified.ignored(now),
            silent=silent,
            answered={host: self.clock.now() - when for host, when in live.answered.items()},
            agents_died=live.agents_died,
            watch=live.watch(now) if waits else None,
            report_every=self.report_every,
            deleting=frozenset(live.deleting),
            last_seen=last_seen,
            preempted=dict(live.preempted),
            circuits=self.circuits() if job.state in _ASKING or job.expected else {},
            prices=self.prices,
            funds=NO_FUNDS if job.state.final else self.funds(job),
            place=self.place(job) if job.state is State.QUEUED else None,
            hand_over=self.hand_over(job)
            if (job.state is State.RELEASING and live.can_hand_over) or job.losers
            else NO_HAND_OVER,
            gives_way_to=self.gives_way_to(job) if job.state in _GIVING_WAY else "",
            race=self.race(job) if job.state is State.PROVISIONING else frozenset(),
            waits=self.waits(job) if job.state in (State.QUEUED, State.PROVISIONING) else {},
        )

    def extend(self, job: Job, seen: Observation, needs: Needs) -> Observation:
        """Return the observation with what a decision needs, read now. Its other parts stay as they are."""
        read = self._with_fresh_slices if needs is Needs.FRESH else self._with_evidence
        return replace(read(job, seen), took=self.clock.now() - seen.at)

    def _slices(self, job: Job) -> tuple[dict[str, SliceSeen], frozenset[str]]:
        """Return the slices that the job holds, by name, and the names of those that are seen as a list showed them."""
        looks = {s.name: self._seen(job, s) for s in job.slices if s.gone_at is None}
        listed = frozenset(name for name, (_, listed) in looks.items() if listed)
        return {name: seen for name, (seen, _) in looks.items()}, listed

    def _with_fresh_slices(self, job: Job, seen: Observation) -> Observation:
        """Return the same with every slice polled by name."""
        live, slices = self.live[job.id], dict(seen.slices)
        for slice in job.slices:
            if slice.name in seen.listed:
                slices[slice.name], _ = self._seen(job, slice, by_name=True)
        live.note_look(slices, seen.reports, self.clock.now())
        return replace(seen, slices=slices, listed=frozenset(), deleting=frozenset(live.deleting))

    def _seen(self, job: Job, slice: Slice, *, by_name: bool = False) -> tuple[SliceSeen, bool]:
        """Return what is known of the slice, and whether that may be some seconds old."""
        cache = self.slice_caches.get(slice.provider)
        if cache is None:
            return self.slices.look(slice, timeout=LOOK), False
        return cache.look(slice, timeout=LOOK, job_id=job.id, by_name=by_name)

    def _waits(self, job: Job, reports: Sequence[HostReport]) -> bool:
        """Return whether some host has not reported lately."""
        late = stall.LATELY * stall.pace(self.report_every)
        heard = [r for r in reports if r.age <= late or r.phase == Phase.EXITED]
        return job.attempt is not None and len(heard) < job.hosts

    def _probe(
        self, job: Job, reports: Sequence[HostReport] | Unknown, live: JobRuntime
    ) -> dict[int, Silence]:
        """Ask hosts that give no sign of life over SSH, from time to time. Returns those that do not answer there
        either, and for how long; `live.answered` has the others, `live.agents_died` those whose agents have died."""
        if isinstance(reports, Unknown) or job.slice is None or job.attempt is None:
            return {}
        now, every = self.clock.now(), self.report_every
        answered = {host: now - when for host, when in live.answered.items()}
        quiet = contact.to_ask(job, reports, answered, every, now)
        due = quiet and now - live.probed_at >= PROBE_EVERY * stall.pace(every)
        if due and self._probing.acquire(blocking=False):
            try:
                alive = self.hosts.alive(job.slice, timeout=PROBE_TIME)
                answering, attempt = quiet & alive, job.attempt.number
                live.agents_died = self.hosts.without_agent(
                    job.slice, answering, job=job.id, attempt=attempt, timeout=PROBE_TIME / 2
                )
            finally:
                self._probing.release()
            live.probed_at = now
            live.answered |= dict.fromkeys(alive, now)
            dead = {host: live.dead.get(host, (now, 0)) for host in quiet - alive}
            live.dead = {host: (since, n + 1) for host, (since, n) in dead.items()}
        since = now - live.probed_at
        live.agents_died &= {r.host for r in reports if r.phase != Phase.EXITED and r.age > since}
        silences = {host: live.dead[host] for host in quiet & set(live.dead)}
        return {host: Silence(now - since, n) for host, (since, n) in silences.items()}

    def _reports(self, job: Job, live: JobRuntime) -> tuple[HostReport, ...] | Unknown:
        """Return the newest attempt's reports, and remember them; Unknown: they cannot be read. While it runs, a host
        without a report has a silent one. What was read of an attempt that every host has ended is true for ever."""
        try:
            blobs, storage_now = self.report_cache.reports_of(job, timeout=LOOK)
            key = self.hosts.key(keys.of_attempt(job))
        except (Transient, Refused) as error:
            live.readable_since, live.unread_at = None, self.clock.now()
            return live.ends(job, self.clock.now()) or Unknown(str(error))
        live.turn_to(job)
        live.take_over(job, self.clock.now())
        live.verified = add_reports(live.verified, job, blobs, key=key)
        live.disturbed = live.verified.is_disturbed(storage_now)
        reports = live.verified.reports(storage_now)
        if job.state is State.RUNNING and job.attempt:  # every host that runs has reported
            missed = set(range(job.hosts)) - {r.host for r in reports}
            # a listing may be older than the attempt: another backend may have started it some seconds ago
            began = job.attempt.running_at or job.attempt.started_at
            age = self.clock.now() - max(live.readable_since or 0.0, began)
            lost = (HostReport(host, job.attempt.number, Phase.RUNNING, age) for host in missed)
            reports = tuple(sorted((*reports, *lost), key=lambda r: r.host))
        live.note_reports(job, reports, self.clock.now())
        return reports

    def _with_evidence(self, job: Job, seen: Observation) -> Observation:
        """Return the same with the evidence of failed hosts, as far as it can be read in time."""
        if isinstance(seen.reports, Unknown) or job.attempt is None:
            return replace(seen, evidence=True)
        until = self.clock.now() + EVIDENCE
        newest = self.live[job.id].verified.newest
        witnesses = triage.witnesses(seen.reports)[:WITNESSES]
        paths = {r.host: newest[r.host].path for r in witnesses if r.host in newest}
        bodies: dict[str, bytes] = {}
        for path in dict.fromkeys(paths.values()):
            left = until - self.clock.now()
            if left <= 0:
                break
            try:
                bodies[path] = self.blobs.get(path, end=limits.MAX_BODY, timeout=left)
            except (Transient, Refused, NotFound) as error:
                log.info("job %s: no evidence from %s: %s", job.id, path, error)
        evidence = {
            r.host: host_reports.read_evidence(bodies[paths[r.host]], r.proven)
            for r in witnesses
            if paths.get(r.host) in bodies
        }
        reports = tuple(replace(r, evidence=evidence.get(r.host, ())) for r in seen.reports)
        return replace(seen, reports=reports, evidence=True)
