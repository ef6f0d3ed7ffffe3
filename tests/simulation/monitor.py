"""The invariants, checked at every commit and effect and once a virtual minute, from what the code cannot see."""

from __future__ import annotations

from typing import NoReturn

from tests.simulation.machines import Machine, Program
from tests.simulation.sim import Sim, Violation
from tests.simulation.world import Outage, World
from tpujob.domain import invariants
from tpujob.domain.model import (
    Cause,
    Event,
    EventKind,
    Job,
    Outcome,
    Slice,
    SliceSeen,
    State,
    Unknown,
    Wish,
)
from tpujob.domain.retry import POLICIES
from tpujob.ports import Lease, Store
from tpujob.reconciler import GRACE

MINUTE = 60.0
HOUR = 3600.0
CANARY = "canary-3f9a1c"  #: in every job's environment; must never be in an event
#: a slice that is ready and runs nothing: the longest wait for a launch, and what ends it, with faults all along
IDLE = 3 * HOUR
#: an orphan: the grace, a sweep, and failing deletes
ORPHAN = 2 * HOUR
ORPHAN_CALM = 0.5 * HOUR
#: calls that change the cloud, for one job in one hour
CALLS = 400

_ENDS = (EventKind.ATTEMPT_ENDED, EventKind.ATTEMPT_RETRIED)
_USER = (
    EventKind.CANCEL_REQUESTED,
    EventKind.RELEASE_REQUESTED,
    EventKind.CLEAN_REQUESTED,
    EventKind.RESUME_REQUESTED,
)


class Monitor:
    def __init__(self, sim: Sim, world: World, store: Store) -> None:
        self.sim, self.world, self.store = sim, world, store
        world.monitor = self
        self.jobs: dict[str, Job] = {}
        self.first: dict[str, Job] = {}
        self.histories: dict[str, list[Event]] = {}
        self.keys: dict[str, str] = {}
        self.removed_jobs: set[str] = set()
        self.seen: dict[tuple[str, str], SliceSeen] = {}  #: (backend, slice) -> last look
        self.calls: dict[str, list[float]] = {}
        self.asked: dict[str, float] = {}  #: job -> when its last back-off ends
        self.refused: dict[str, tuple[float, str]] = {}
        self.detected: list[float] = []  #: seconds from a preemption to the decision
        self.calm_since: float | None = None
        self.leases: dict[str, Lease] = {}  #: job -> the newest that was given
        self.outages: list[Outage] = [world.cloud_outage, world.bucket.outage]
        sim.after(MINUTE, self._minute)

    def broken(self, rule: str, job: str, text: str) -> NoReturn:
        self.sim.note(f"VIOLATION {rule} {job} {text}")
        raise Violation(rule, job, text)

    def _none(self, found: list[invariants.Broken]) -> None:
        for one in found:
            self.broken(one.rule, one.job, one.text)

    # The store -------------------------------------------------------------------------------------------------------

    def submitted(self, job: Job, key: str) -> None:
        if self.keys.setdefault(key, job.id) != job.id:
            self.broken("I7", job.id, f"the key {key} made job {self.keys[key]}, too")
        if job.id not in self.jobs and job.id not in self.removed_jobs:
            self.jobs[job.id] = self.first[job.id] = job
            self.histories[job.id] = self.store.events(job.id)
            self.sim.note(f"submitted {job.id}")

    def committed(self, job: Job, event: Event | None, expected: int, lease: Lease | None) -> None:
        before = self.jobs[job.id]
        if job.version == before.version:  # recognised as a repeat
            return
        assert event is not None
        self.sim.note(
            f"{job.id} v{job.version} {before.state}->{job.state} {event.kind}: {event.text}"
        )
        if before.version != expected:
            self.broken(
                "I6", job.id, f"decided on version {expected}, written over {before.version}"
            )
        if lease is not None and lease.owner != self._who():
            self.broken("I6", job.id, f"{self._who()} wrote under the lease of {lease.owner}")
        if lease is None and event.kind not in _USER:
            self.broken("I6", job.id, f"{event.kind} was written without a lease")
        self._none(invariants.of_step(before, job))
        self._none(invariants.of_job(job))
        if CANARY in event.text:
            self.broken("I11", job.id, "an event tells what is in the environment")
        self.histories[job.id].append(event)
        self.jobs[job.id] = job
        self._reasoned(before, job, event)
        self._paced(before, job, event)
        if job.state.final:
            self._history(job)

    def removed(self, job_id: str) -> None:
        job = self.jobs.pop(job_id, None)
        self.removed_jobs.add(job_id)
        if job and (job.wish is not Wish.CLEAN or not job.state.final):
            self.broken("I7", job_id, f"its record was removed while it was {job.state}")
        self.sim.note(f"{job_id} removed")

    def _history(self, job: Job) -> None:
        self._none(invariants.of_history(self.first[job.id], self.store.events(job.id), job))

    def _who(self) -> str:
        return self.sim.me.process.name if self.sim.me.process else ""

    def _reasoned(self, before: Job, job: Job, event: Event) -> None:
        """I5, I12: no healthy attempt is ended without a reason that the ledger confirms."""
        attempt = before.attempt
        if event.kind is EventKind.SLICE_GONE:
            return
        if event.kind not in _ENDS or attempt is None or before.slice is None:
            return
        machine = self.world.machines.get(attempt.slice)
        ended = job.attempts[attempt.number - 1]
        self._detection(machine, before)
        programs = list(machine.programs.values()) if machine else []
        if ended.outcome is Outcome.SUCCEEDED:
            good = [p for p in programs if p.attempt == attempt.number and p.exit_code == 0]
            if not machine or len([p for p in good if self.sim.now >= p.exit_at]) < machine.hosts:
                past = self._past_success(attempt.slice, attempt.number)
                if not past:
                    self.broken(
                        "I5", job.id, "called a success before every host had exited with 0"
                    )
            return
        if machine and machine.healthy(self.sim.now, attempt.number) and before.wish is Wish.RUN:
            self.broken("I5", job.id, f"a healthy attempt was ended: {event.text}")
        # only what was seen counts: a slice that could not be looked at is no reason
        seen = self.seen.get((self._who(), attempt.slice))
        by_slice = ended.cause is Cause.PREEMPTED and ended.host is None
        reported = any(p.attempt == attempt.number and p.told_at <= self.sim.now for p in programs)
        if by_slice and isinstance(seen, Unknown) and not reported:
            self.broken("I12", job.id, f"decided unseen: {event.text}")

    def _past_success(self, name: str, attempt: int) -> bool:
        gone = [m for m in self.world.past if m.name == name]
        return bool(gone) and all(
            p.exit_code == 0 for p in gone[-1].programs.values() if p.attempt == attempt
        )

    def _detection(self, machine: Machine | None, before: Job) -> None:
        if machine and machine.shown_at <= self.sim.now and not machine.preempted_seen:
            machine.preempted_seen = True
            self.detected.append(self.sim.now - machine.shown_at)

    def _paced(self, before: Job, job: Job, event: Event) -> None:
        """I8: no retry sooner than its back-off."""
        if event.kind is EventKind.RELEASE_STARTED and job.cause in (Cause.STOCKOUT, Cause.QUOTA):
            policy = POLICIES[job.cause]
            self.refused[job.id] = (event.at, str(job.cause))
            self.asked[job.id] = event.at + policy.first * 0.75
        if event.kind in _USER:
            self.asked.pop(job.id, None)
        if event.kind is EventKind.SLICE_REQUESTED and event.at < self.asked.get(job.id, 0.0) - 5:
            self.broken("I8", job.id, "asked for a slice again sooner than its back-off")

    # The cloud -------------------------------------------------------------------------------------------------------

    def looked(self, slice: Slice, seen: SliceSeen) -> None:
        self.seen[self._who(), slice.name] = seen

    def _call(self, job_id: str) -> None:
        recent = [t for t in self.calls.get(job_id, []) if t > self.sim.now - HOUR]
        self.calls[job_id] = [*recent, self.sim.now]
        if len(recent) > CALLS:
            self.broken("I8", job_id, f"{len(recent)} calls to the cloud in an hour")

    def leased(self, lease: Lease | None) -> None:
        if lease is not None:
            self.leases[lease.job_id] = lease

    def _led(self, job_id: str, what: str) -> None:
        """Whoever acts on a job holds its lease, and has not outlived it. Its clock may be off by a little."""
        lease = self.leases.get(job_id)
        if lease is None or lease.owner != self._who() or self.sim.now > lease.until + 5:
            self.broken("I6", job_id, f"{self._who()}: {what} without the lease")

    def creating(self, slice: Slice, job_id: str) -> None:
        self._call(job_id)
        self._led(job_id, f"create {slice.name}")
        job = self.jobs.get(job_id)
        if job is None or slice.name not in [s.name for s in job.slices]:
            self.broken("I1", job_id, f"{slice.name} was asked for before that was written down")
        wanted = job.slice
        if slice.name not in self.world.machines and (
            wanted is None or wanted.name != slice.name or job.state is not State.PROVISIONING
        ):
            self.broken("I1", job_id, f"{slice.name} was made while the job was {job.state}")

    def created(self, machine: Machine) -> None:
        now = self.sim.now
        others = [
            m.name
            for m in self.world.machines.values()
            if m.job == machine.job and m is not machine and m.ours and now < m.deleting_at
            and not self._orphaned(m)
        ]  # fmt: skip
        if others:
            self.broken("I1", machine.job, f"{machine.name} was made beside {', '.join(others)}")

    def _orphaned(self, machine: Machine) -> bool:
        """A delete that was accepted and came to nothing: the sweep's."""
        job = self.jobs.get(machine.job)
        return job is None or any(
            s.name == machine.name and s.gone_at is not None for s in job.slices
        )

    def deleting(self, slice: Slice) -> None:
        if slice.k:  # not the sweep's
            self._led(slice.name.split("-")[1], f"delete {slice.name}")
        machine = self.world.machines.get(slice.name)
        self._call(machine.job if machine else slice.name)
        if machine is None or self.sim.now >= machine.deleting_at:
            return
        if not machine.ours:
            self.broken("I1", "", f"{slice.name} is somebody else's, and was deleted")
        job = self.jobs.get(machine.job)
        record = next((s for s in job.slices if s.name == slice.name), None) if job else None
        if record is None or record.gone_at is not None:
            if self.sim.now - machine.created <= GRACE - 5:
                self.broken("I2", machine.job, f"{slice.name} was swept within its grace")
            return
        assert job is not None
        if not record.delete_reason or job.state is not State.RELEASING:
            self.broken("I5", job.id, f"{slice.name} was deleted while the job was {job.state}")

    # Programs --------------------------------------------------------------------------------------------------------

    def started(self, machine: Machine, program: Program) -> None:
        now = self.sim.now
        self._led(program.job, f"start attempt {program.attempt}")
        job = self.jobs.get(program.job)
        newest = job.attempt.number if job and job.attempt else 0
        if program.attempt != newest:
            self.broken("I3", program.job, f"attempt {program.attempt} was started after {newest}")
        for other in self.world.machines.values():
            for running in other.running(now):
                if running.job == program.job and other is not machine:
                    self.broken(
                        "I3",
                        program.job,
                        f"attempt {program.attempt} was started on {machine.name} while attempt "
                        f"{running.attempt} runs on {other.name}",
                    )

    def stopping(self, machine: Machine, program: Program, why: str) -> None:
        job = self.jobs.get(program.job)
        if job is None or job.attempt is None:
            return
        attempt = job.attempts[program.attempt - 1]
        if (
            attempt.outcome is None
            and job.wish is Wish.RUN
            and machine.healthy(self.sim.now, program.attempt)
        ):
            self.broken("I5", job.id, f"attempt {program.attempt} runs well, and was {why}")

    # Each minute -----------------------------------------------------------------------------------------------------

    def _minute(self) -> None:
        """Ages count only while every service answers: what cannot be seen is not acted upon, and rightly so."""
        now = self.sim.now
        away = [o.until for o in self.outages if o.until > now]
        self.sim.after(MINUTE, self._minute)
        if away:
            for machine in self.world.machines.values():
                machine.idle_since += MINUTE
                machine.unclaimed_since = (
                    machine.unclaimed_since and machine.unclaimed_since + MINUTE
                )
            return
        ours = {m.name: m for m in self.world.machines.values() if m.ours}
        lost = set(invariants.unclaimed(ours, self.jobs.values()))
        for machine in ours.values():
            self._idle(machine, now)
            if machine.name not in lost or now >= machine.deleting_at:
                machine.unclaimed_since = None
                continue
            if machine.unclaimed_since is None:
                machine.unclaimed_since = now
            calm = self.calm_since is not None and now - self.calm_since > ORPHAN_CALM
            if now - machine.unclaimed_since > (ORPHAN_CALM if calm else ORPHAN):
                self.broken("I2", machine.job, f"{machine.name} is billed and owned by nobody")

    def _idle(self, machine: Machine, now: float) -> None:
        if machine.running(now) or now < machine.ready_at or now >= machine.deleting_at:
            machine.idle_since = max(now, min(machine.ready_at, 1e12))
        elif now - machine.idle_since > IDLE:
            self.broken(
                "I9",
                machine.job,
                f"{machine.name} is billed and has run nothing for {IDLE / HOUR:.0f} h",
            )

    # The end ---------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """L1: after the faults, everything has come to its end and nothing is left."""
        for job_id, job in self.jobs.items():
            stored = self.store.get(job_id)
            if stored != job:
                self.broken("I6", job_id, "its record is not what was last written")
            self._history(job)
            if not job.state.final:
                self.broken("L1", job_id, f"still {job.state}: {job.message}")
        left = [m.name for m in self.world.machines.values() if m.ours]
        if left:
            self.broken("I2", "", f"{', '.join(left)} are left when every job has ended")
        for key, job_id in self.keys.items():
            if job_id not in self.jobs and job_id not in self.removed_jobs:
                self.broken("I7", job_id, f"the submit {key} was acknowledged, and is lost")
