"""The invariants, checked at every commit and effect and once a virtual minute, against the true state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from tests.support.changes import broken_by
from tests.support.money import assert_adds_up, assert_covers
from tests.support.simulation.bounds import Bounds
from tests.support.simulation.budgets import Budgets
from tests.support.simulation.checkpoints import Checkpoints
from tests.support.simulation.copies import Arrivals
from tests.support.simulation.deadlines import Deadlines
from tests.support.simulation.effects import HOUR, Outage
from tests.support.simulation.hardware import Accusations, Offers
from tests.support.simulation.machines import Machine
from tests.support.simulation.planned_ends import PlannedEnds
from tests.support.simulation.programs import Program
from tests.support.simulation.queue_checks import QueueChecks
from tests.support.simulation.sim import Violation
from tests.support.simulation.views import Views
from tpujob.domain import invariants
from tpujob.domain.capacity.race import DEFAULT
from tpujob.domain.decide import SUSPENDED_WITHIN
from tpujob.domain.events import AboutSlice, Event, EventKind
from tpujob.domain.model import (
    Accusation,
    Cause,
    DesiredState,
    Job,
    Outcome,
    Slice,
    SliceRole,
    State,
)
from tpujob.domain.money.report import GROUPS
from tpujob.domain.observations import Circuit, Present, SliceSeen, SliceState, Unknown
from tpujob.engine.orphans import GRACE
from tpujob.ports import Lease

if TYPE_CHECKING:
    from tests.support.simulation.play import Play

CANARY = "canary-3f9a1c"  #: in every job's environment; must never be shown
#: calls that change the cloud, for one job in one hour
CALLS = 240
#: slices of one job that are billed at once: the serving one, one that is condemned, and one that should be gone
BILLED = 3

_ENDS = (
    EventKind.ATTEMPT_ENDED,
    EventKind.ATTEMPT_RETRIED,
    EventKind.ATTEMPT_CONDEMNED,
    EventKind.ATTEMPT_SWAPPED,
)
_REFUSALS = (EventKind.RELEASE_STARTED, EventKind.CANDIDATE_LOST, EventKind.CANDIDATE_PROMOTED)
_USER = (
    EventKind.CANCEL_REQUESTED,
    EventKind.RELEASE_REQUESTED,
    EventKind.CLEAN_REQUESTED,
    EventKind.RESUME_REQUESTED,
    EventKind.GROUP_REOPENED,
    EventKind.BUDGET_CHANGED,
    EventKind.QUEUE_HELD,
    EventKind.QUEUE_RELEASED,
    EventKind.QUEUE_MOVED,
    EventKind.REQUEUE_REQUESTED,
    EventKind.HANDED_OVER,
)


def places(job: Job) -> int:
    """Return the number of places that the job may ask at once."""
    return job.spec.tpu.race or DEFAULT


class Monitor:
    def __init__(self, play: Play, store_outage: Outage) -> None:
        self.play, self.sim, self.world, self.store = play, play.sim, play.world, play.real
        self.hand_on = play.queue.hand_on
        self.jobs: dict[str, Job] = {}
        self.first: dict[str, Job] = {}
        self.keys: dict[str, str] = {}
        self.removed_jobs: set[str] = set()
        self.seen: dict[tuple[str, str], SliceSeen] = {}  #: (backend, slice) -> its last look
        self.calls: dict[str, list[float]] = {}
        self.ahead = (
            0.0  #: seconds by which the clock of a story's backend was ahead from its start
        )
        self.unread: Callable[[str, float], bool] = lambda job, ago: False
        self.leases: dict[
            str, Lease
        ] = {}  #: job -> its newest lease, and until when it is in force
        self.budgets = Budgets(play.world, self.jobs, self.broken)
        self.bounds = Bounds(play, self.jobs, self.broken, self.budgets)
        self.arrivals = Arrivals(play.copies, self.broken)
        self.checkpoints = Checkpoints(self.jobs, self.broken)
        self.offers = Offers(self.broken)
        self.accusations = Accusations(play.world, self.broken)
        self.views = Views(play.world, self.broken)
        self.planned = PlannedEnds(play.world, self.jobs, self.broken)
        self.queue = self.bounds.queue = QueueChecks(play.sim, self.jobs, self.broken, store_outage)
        self.deadlines = Deadlines(self.broken, self.budgets)
        self.rolled_back, self.resumed = self.checkpoints.rolled_back, self.checkpoints.resumed

    def attended(self, job_id: str) -> None:
        self.bounds.attended(job_id)
        self.queue.ticked[self._who(), job_id] = self.sim.now

    def _circuits(self) -> Mapping[str, Circuit]:
        """Return the circuits of the backend that writes; of a user, none."""
        who = self._who()
        found = (b for b in self.play.backends if b.process.name == who)
        return next((b.reconciler.circuits() for b in found), {})

    def broken(self, rule: str, job: str, text: str) -> NoReturn:
        self.sim.note(f"VIOLATION {rule} {job} {text}")
        raise Violation(rule, job, text)

    def _none(self, violations: list[invariants.Broken]) -> None:
        for violation in violations:
            self.broken(violation.rule, violation.job, violation.text)

    # The store -------------------------------------------------------------------------------------------------------

    def submitted(self, job: Job, key: str) -> None:
        if self.keys.setdefault(key, job.id) != job.id:
            self.broken("I7", job.id, f"the key {key} made job {self.keys[key]}, too")
        if job.id not in self.jobs and job.id not in self.removed_jobs:
            self.jobs[job.id] = self.first[job.id] = job
            self.queue.submitted(job)
            self.sim.note(f"submitted {job.id}")

    def committed(self, job: Job, event: Event | None, expected: int, lease: Lease | None) -> None:
        before = self.jobs[job.id]
        if job.version <= before.version:  # recognised as a repeat
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
        handed_over = event.kind is EventKind.HANDED_OVER
        self._none(broken_by(replace(before, user=job.user) if handed_over else before, job))
        self._none(invariants.of_job(job))
        if CANARY in f"{event.text} {event.payload} {job.message}":
            self.broken("I11", job.id, "an event tells what is in the environment")
        self.jobs[job.id] = job
        for machine in self.world.of_job.get(job.id, ()):
            self.world.settle(machine)
        self.checkpoints.recorded(before, job, self.world.saved.get(job.id, ()))
        self.offers.committed(self._who(), before, job, event)
        self.arrivals.committed(job, event)
        self._reasoned(before, job, event)
        self._raced(before, job, event)
        self.budgets.committed(before, job, event)
        self.queue.committed(self._who(), before, job, event)
        self.planned.committed(before, job, event)
        self.deadlines.committed(
            before, job, event, self.queue.plans[self._who()], self._circuits()
        )
        self.views.check(job)
        if job.state.final:
            self._history(job)

    def handed_on(self, giver: Job, heir: Job) -> None:
        """Q7: a slice is billed to one job until it is billed to the next."""
        took = heir.slices[-1]
        gave = next(slice for slice in giver.slices if slice.name == took.name)
        if (gave.name, gave.gone_at, gave.handed_to) != (took.name, took.ready_at, heir.id):
            self.broken("Q7", heir.id, f"{gave.name} until {gave.gone_at}, from {took.ready_at}")
        if took.epoch != gave.epoch + 1:
            self.broken("Q4", heir.id, f"{took.name} has epoch {took.epoch} after {gave.epoch}")
        if giver.owner != heir.owner and self.hand_on != "lab":
            self.broken("Q6", heir.id, f"{took.name} was handed on to another owner")
        self.queue.handed_on(giver, heir)
        machine = self.world.machines.get(took.name)
        if machine and any(p.run.job != heir.id for p in machine.running(self.sim.now)):
            self.broken("Q6", heir.id, f"{took.name} was handed on with a program on it")
        if machine and machine.runs and machine.wiped.keys() != set(range(machine.hosts)):
            self.broken("Q6", heir.id, f"{took.name} was handed on before it was wiped")
        for host in range(machine.hosts if machine else 0):
            self.used(machine, host)

    def used(self, machine: Machine, host: int) -> None:
        """Q6: no host has files of an owner who no longer holds it."""
        has = self.jobs[machine.job]
        for job in [self.jobs[key] for key in machine.left.get(host, ()) if key in self.jobs]:
            if job.owner != has.owner:
                text = f"files of job {job.id}, of another owner, are on {machine.name}/{host}"
                self.broken("Q6", has.id, text)

    def removed(self, job_id: str) -> None:
        job = self.jobs.pop(job_id, None)
        self.removed_jobs.add(job_id)
        if job:
            self.queue.removed(job)
        owners = (job, self.jobs.get(job.group)) if job else ()
        cleaned = any(owner and owner.desired is DesiredState.CLEAN for owner in owners)
        if job and (not cleaned or not job.state.final):
            self.broken("I7", job_id, f"its record was removed while it was {job.state}")
        self.sim.note(f"{job_id} removed")

    def _history(self, job: Job) -> None:
        self._none(invariants.of_history(self.first[job.id], self.store.events(job.id), job))
        self._accounted(job)

    def _accounted(self, job: Job) -> None:
        """X2: the parts of a job's time and money add up to the whole, but for gaps that a wrong clock has written."""
        try:
            if not job.spec.is_group:  # whose time is that of its elements
                assert_covers(job, self.sim.now, slack=4.0 + self.ahead)
            for by in GROUPS:
                assert_adds_up(job, self.sim.now, by)
        except AssertionError as error:
            self.broken("X2", job.id, f"its time or money does not add up: {error}")

    def _who(self) -> str:
        return self.sim.me.process.name if self.sim.me.process else ""

    def _reasoned(self, before: Job, job: Job, event: Event) -> None:
        """I5, I12: no healthy attempt is ended without a reason that the ledger confirms."""
        attempt = before.attempt
        if event.kind is EventKind.SLICE_GONE and isinstance(event.payload, AboutSlice):
            self._gone(job, event.payload.slice)
        if event.kind not in _ENDS or attempt is None or before.slice is None:
            return
        machine = self.world.machines.get(attempt.slice)
        ended = job.attempts[attempt.number - 1]
        self.bounds.ended(job.id)
        run = self.world.run_of(job.id, attempt)
        programs = [*run.programs.values()] if run else []
        if ended.outcome is Outcome.SUCCEEDED:
            good = [p for p in programs if p.exit_code == 0 and p.exit_at <= self.sim.now]
            if not good or len(good) < good[0].run.hosts:
                self.broken("I5", job.id, "called a success before every host had exited with 0")
            elif good[0].run.step(good[0].exit_at) < good[0].run.steps:
                self.broken("I5", job.id, "called a success before its last step")
            return
        if ended.cause is Cause.PREFLIGHT and job.next_state is State.FAILED:
            self.broken("I5", job.id, "failed for machines that are only suspected")
        if (
            machine
            and machine.healthy(self.sim.now, job.id, attempt.number)
            and before.desired is DesiredState.RUN
        ):
            self.broken("I5", job.id, f"a healthy attempt was ended: {event.text}")
        bad = [p.exit_at for p in programs if p.exit_code and p.exit_at <= self.sim.now]
        lost = [at for at in machine.lost.values() if bad and at < min(bad)] if machine else []
        if ended.cause is Cause.CRASH and lost:
            self.broken("I5", job.id, f"the loss of a host is held against a peer: {event.text}")
        # only what was seen counts: a slice that could not be looked at is no reason
        seen = self.seen.get((self._who(), attempt.slice))
        by_slice = ended.cause is Cause.PREEMPTED and ended.host is None
        reported = any(p.noticed_at <= self.sim.now for p in programs)
        if by_slice and isinstance(seen, Unknown) and not reported:
            self.broken("I12", job.id, f"decided unseen: {event.text}")

    def _raced(self, before: Job, job: Job, event: Event) -> None:
        """Q11: a job races in no more places than it may; what lost stays so, and is no refusal but the cloud's."""
        old = {slice.name: slice for slice in before.slices}
        for slice in job.slices:
            was = old.get(slice.name)
            if was and slice.refused is not was.refused and event.kind not in _REFUSALS:
                self.broken("Q11", job.id, f"{slice.name} counts as refused: {event.text}")
        racing = [s.name for s in job.slices if s.gone_at is None and s.lost_at is None]
        racing = [name for name in racing if name not in [s.name for s in job.condemned]]
        if len(racing) > max(1, places(job)):
            self.broken("Q11", job.id, f"races with {', '.join(racing)} in {places(job)} places")

    def _gone(self, job: Job, name: str) -> None:
        """I2: what is there is not called gone. (A request that was never ready may have been missed once; it has no
        program, and is the sweep's.)"""
        machine = self.world.machines.get(name)
        was_ready = any(s.name == name and s.ready_at is not None for s in job.slices)
        if machine and was_ready and self.sim.now < machine.deleting_at:
            self.broken("I2", job.id, f"{name} is there, and was called gone")

    def stall(self, job_id: str) -> float:
        """Return the seconds without progress that the job's spec allows."""
        return float(self.jobs[job_id].spec.recovery.stall)

    # The cloud -------------------------------------------------------------------------------------------------------

    def looked(self, slice: Slice, seen: SliceSeen) -> None:
        self.seen[self._who(), slice.name] = seen
        if isinstance(seen, Present) and seen.state is SliceState.READY:
            self.offers.granted(self._who(), slice)

    def _call(self, job_id: str) -> None:
        recent = [t for t in self.calls.get(job_id, []) if t > self.sim.now - HOUR]
        self.calls[job_id] = [*recent, self.sim.now]
        if len(recent) > CALLS:
            self.broken("I8", job_id, f"{len(recent)} calls to the cloud in an hour")

    def leased(self, lease: Lease | None) -> None:
        """I6: a backend takes a lease that is free: it was released, or is over by the true time."""
        if lease is None:
            return
        last = self.leases.get(lease.job_id)
        if last and last.owner != lease.owner and self.sim.now < last.until:
            self.broken("I6", lease.job_id, f"{lease.owner} took the lease of {last.owner}")
        self.leases[lease.job_id] = replace(lease, until=self.sim.now + lease.ttl)

    def released(self, lease: Lease) -> None:
        if self.leases[lease.job_id].token == lease.token:
            self.leases[lease.job_id] = replace(lease, until=self.sim.now)

    def accused(self, physicals: tuple[str, ...], accusation: Accusation) -> None:
        self.accusations.made(physicals, accusation, self.store.reputation.suspects())

    def _led(self, job_id: str, action: str) -> None:
        """Check that a backend acts only while it holds the job's lease."""
        lease = self.leases.get(job_id)
        if lease is None or lease.owner != self._who() or self.sim.now > lease.until:
            self.broken("I6", job_id, f"{self._who()}: {action} without the lease")

    def creating(self, slice: Slice, job_id: str) -> None:
        self._call(job_id)
        self._led(job_id, f"create {slice.name}")
        job = self.jobs.get(job_id)
        if job is None or slice.name not in [s.name for s in job.slices]:
            self.broken("I1", job_id, f"{slice.name} was asked for before that was written down")
        requested = [s.name for s in (job.slice, *job.candidates) if s and s.lost_at is None]
        if slice.name not in self.world.machines and (
            slice.name not in requested or job.state is not State.PROVISIONING
        ):
            self.broken("I1", job_id, f"{slice.name} was made while the job was {job.state}")

    def refused(self, slice: Slice) -> None:
        self.offers.answered(self._who(), slice)

    def created(self, machine: Machine) -> None:
        now = self.sim.now
        others = [
            m.name
            for m in self.world.machines.values()
            if m.job == machine.job and m is not machine and m.ours and now < m.deleting_at
        ]  # fmt: skip
        job = self.jobs.get(machine.job)
        records = {s.name: s for s in job.slices} if job else {}
        # where a delete was accepted and came to nothing, it is the sweep's
        claimed = [records[n] for n in others if n in records and records[n].gone_at is None]
        races = machine.name in records and records[machine.name].role is SliceRole.CANDIDATE
        if any(s.role is SliceRole.SERVING for s in claimed) and not races:
            self.broken("I1", machine.job, f"{machine.name} was made beside {', '.join(others)}")
        wanted = [s for s in claimed if s.lost_at is None]
        if len(wanted) >= BILLED - 1 + (places(job) if job else 1):
            self.broken("I10", machine.job, f"{', '.join(others)} are billed beside it, too")

    def deleting(self, slice: Slice) -> None:
        machine = self.world.machines.get(slice.name)
        if slice.k:  # not the sweep's
            self._led(self.world.holder(slice.name), f"delete {slice.name}")
        self._call(machine.job if machine else slice.name)
        if machine is None or self.sim.now >= machine.deleting_at:
            return
        if not slice.k and self.unread(machine.job, 0.0):
            text = f"{slice.name} was swept while the record of its job cannot be read"
            self.broken("I2", machine.job, text)
        if not machine.ours:
            self.broken("I1", "", f"{slice.name} is of another owner, and was deleted")
        job = self.jobs.get(machine.job)
        record = next((s for s in job.slices if s.name == slice.name), None) if job else None
        if record is None or record.gone_at is not None:
            if self.sim.now - machine.created <= GRACE - 5:
                self.broken("I2", machine.job, f"{slice.name} was swept within its grace")
            return
        assert job is not None
        self.queue.deleting(self._who(), job, slice, self.seen.get((self._who(), slice.name)))
        leaves = record.role is SliceRole.CONDEMNED or record.lost_at is not None
        if not record.delete_reason or not (leaves or job.state is State.RELEASING):
            self.broken("I5", job.id, f"{slice.name} was deleted while the job was {job.state}")

    def forcing(self, machine: Machine) -> None:
        """I13: a slice that the cloud suspends is not deleted at once, as a forced deletion may leave it stuck."""
        waited = self.sim.now - min(machine.shown_at, machine.stopped_at)
        if waited < SUSPENDED_WITHIN - 1:
            text = f"{machine.name} was deleted by force after {waited:.0f} s of being suspended"
            self.broken("I13", machine.job, text)

    # Programs --------------------------------------------------------------------------------------------------------

    def started(self, machine: Machine, program: Program) -> None:
        now, run = self.sim.now, program.run
        self._led(run.job, f"start attempt {run.attempt}")
        job = self.jobs.get(run.job)
        newest = job.attempt.number if job and job.attempt else 0
        if run.attempt != newest:
            self.broken("I3", run.job, f"attempt {run.attempt} was started after {newest}")
        record = next((s for s in job.slices if s.name == machine.name), None) if job else None
        if record is None or record.role is not SliceRole.SERVING:
            self.broken("I3", run.job, f"was started on {machine.name}, which does not serve it")
        for other in self.world.of_job[run.job]:
            for running in other.running(now):
                same = (running.run.job, running.run.attempt) == (run.job, run.attempt)
                if other is not machine and running.run.job != run.job:
                    continue  # it serves another job since this one was put back into the queue
                if other is not machine or not same:
                    if other is machine and running.host != program.host:
                        continue  # its own host is started soon
                    text = f"was started on {machine.name} while attempt {running.run.attempt}"
                    self.broken("I3", run.job, f"{text} runs on {other.name}")

    def stopping(self, machine: Machine, program: Program, why: str) -> None:
        run = program.run
        job = self.jobs.get(run.job)
        if job is None or job.attempt is None:
            return
        attempt = job.attempts[run.attempt - 1]
        if (
            attempt.outcome is None
            and job.desired is DesiredState.RUN
            and machine.healthy(self.sim.now, run.job, run.attempt)
        ):
            self.broken("I5", job.id, f"attempt {run.attempt} runs well, and was {why}")

    # The end ---------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """L1: after the faults, every job has ended and no slice is left."""
        for job_id, job in self.jobs.items():
            stored = self.store.get(job_id)
            if stored != job:
                self.broken("I6", job_id, "its record is not what was last written")
            self._history(job)
            self.budgets.kept(job)
            if not job.state.final and not self._goes_on(job):
                self.broken("L1", job_id, f"still {job.state}: {job.message}")
        going = [j.slice.name for j in self.jobs.values() if not j.state.final and j.slice]
        leaked = [m.name for m in self.world.machines.values() if m.ours and m.name not in going]
        if leaked:
            self.broken("I2", "", f"{', '.join(leaked)} are left when every job has ended")
        self._none(invariants.of_groups([*self.jobs.values()]))
        for key, job_id in self.keys.items():
            if job_id not in self.jobs and job_id not in self.removed_jobs:
                self.broken("I7", job_id, f"the submit {key} was acknowledged, and is lost")

    def _goes_on(self, job: Job) -> bool:
        """Return whether a job has much work left and makes progress, or waits for a larger budget."""
        if job.state is State.QUEUED and self.budgets.pay_for_no_more():
            return True
        if job.spec.is_group:
            return any(self._goes_on(item) for item in self.jobs.values() if item.group == job.id)
        attempt = job.attempt
        machine = self.world.machines.get(attempt.slice) if attempt else None
        healthy = attempt and machine and machine.healthy(self.sim.now, job.id, attempt.number)
        return bool(healthy and job.state is State.RUNNING)
