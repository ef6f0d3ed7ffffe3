"""P1: a slice that ends as planned was not preempted; its program is told before that, not long before, and another
slice follows only if the job wants one."""

from collections.abc import Mapping

from tests.support.simulation.machines import Machine
from tests.support.simulation.sim import Broken
from tests.support.simulation.world import World
from tpujob.domain.events import Event, EventKind
from tpujob.domain.model import Attempt, Cause, DesiredState, Job, State

#: seconds before the end: of a tick, of the program's grace (the usual one)
TICK, GRACE = 60.0, 30.0
#: seconds by which clocks differ, and by which the cloud's record of the end may be earlier than the end
SLACK = 20.0
#: seconds of silence before the end after which nobody knows that the slice lived until then
SILENT = 600.0


class PlannedEnds:
    def __init__(self, world: World, jobs: Mapping[str, Job], broken: Broken) -> None:
        self.world, self.jobs, self.broken = world, jobs, broken

    def committed(self, before: Job, job: Job, event: Event) -> None:
        ended = _newly_ended(before, job)
        right = abs(event.at - self.world.sim.now) < SLACK  # else a clock is wrong
        if ended is not None and right:
            machine = self._machine(job, ended.slice)
            if ended.cause is Cause.PLANNED_END:
                self._planned(before, job, machine)
            elif ended.cause is Cause.PREEMPTED and machine and self._reached(job, machine):
                text = f"{machine.name} has reached its planned end, and was called preempted"
                self.broken("P1", job.id, text)
        if event.kind is EventKind.SLICE_REQUESTED:
            self._follows(job)

    def _planned(self, before: Job, job: Job, machine: Machine | None) -> None:
        now = self.world.sim.now
        if machine is None or machine.ends_at is None:
            self.broken("P1", job.id, "called a planned end, and no end was planned")
        longest = max((GRACE, *_stops(before)))
        if now < machine.ends_at - TICK - longest - SLACK:
            text = f"stopped {machine.ends_at - now:.0f} s before the planned end of {machine.name}"
            self.broken("P1", job.id, text)

    def _reached(self, job: Job, machine: Machine) -> bool:
        """Return whether the cloud took the slice at its planned end, and the record tells that it lived until then."""
        end = machine.ends_at
        if end is None or self.world.sim.now < end or machine.suspended_at != end:
            return False
        record = next((s for s in job.slices if s.name == machine.name), None)
        known = record is not None and record.ends_at is not None
        return known and (record.certain_until or end) >= end - SILENT

    def _follows(self, job: Job) -> None:
        """Check the number of slices that followed a planned end since a person last resumed the job."""
        ends = [a for a in job.attempts if a.cause is Cause.PLANNED_END]
        since = sum(a.started_at >= job.fresh_at for a in ends)
        if since > job.spec.recovery.planned_ends:
            allowed = job.spec.recovery.planned_ends
            self.broken(
                "P1", job.id, f"a slice follows planned end {since}, with {allowed} allowed"
            )

    def is_due(self, job: Job) -> bool:
        """Return whether the program should have been told by now that its slice ends."""
        attempt = job.attempt
        machine = self._machine(job, attempt.slice) if attempt else None
        if attempt is None or machine is None or machine.ends_at is None:
            return False
        runs = job.state is State.RUNNING and job.desired is DesiredState.RUN
        late = self.world.sim.now >= machine.ends_at - TICK - GRACE
        return runs and late and machine.healthy(self.world.sim.now, job.id, attempt.number)

    def _machine(self, job: Job, name: str) -> Machine | None:
        return next(
            (m for m in reversed(self.world.of_job.get(job.id, ())) if m.name == name), None
        )


def _newly_ended(before: Job, job: Job) -> Attempt | None:
    """Return the attempt that has got its cause."""
    old = {a.number for a in before.attempts if a.cause is not None}
    return next((a for a in job.attempts if a.cause is not None and a.number not in old), None)


def _stops(job: Job) -> list[float]:
    """Return for how long earlier programs were stopped for a planned end."""
    asked = {s.name: s.delete_asked_at for s in job.slices}
    ends = [(a.ended_at, asked.get(a.slice)) for a in job.attempts if a.cause is Cause.PLANNED_END]
    return [at - ended for ended, at in ends if ended is not None and at is not None]
