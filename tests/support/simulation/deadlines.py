"""Jobs with deadlines (Q12): the net is never later than the rule, and nothing is paid that the line does not need."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from tests.support.simulation.budgets import Budgets
from tests.support.simulation.queue_rules import Planned
from tests.support.simulation.sim import Broken
from tpujob.domain.capacity import circuits
from tpujob.domain.capacity.deadline import JobDeadline, deadline_of
from tpujob.domain.events import Event, EventKind, SliceHeld
from tpujob.domain.hardware.pricing import find_pricing
from tpujob.domain.model import DesiredState, Job, State
from tpujob.domain.observations import Circuit

#: seconds that rounding may cost
CLOSE = 1.0


class Deadlines:
    def __init__(self, broken: Broken, budgets: Budgets) -> None:
        self.broken, self.budgets = broken, budgets

    def committed(
        self,
        before: Job,
        job: Job,
        event: Event,
        plans: Sequence[Planned],
        known: Mapping[str, Circuit],
    ) -> None:
        """Check a request, and the end of a program that nothing but its deadline asks for, by the writer's clock.
        `known`: the circuits of the writer, with a request that it could not store."""
        facts = deadline_of(before)
        if facts is None:
            return
        if event.kind is EventKind.SLICE_REQUESTED and job.slice:
            if find_pricing(job.slice.pricing).preemptible:
                placed = next(p for p in reversed(plans) if job.id in p.plan.places)
                refused = (*placed.circuits.values(), *known.values())
                ask = placed.plan.places[job.id].ask
                self._in_time(before, facts, event.at, ask, refused)
            else:
                self._needed(before, facts, event)
        held = event.payload if isinstance(event.payload, SliceHeld) else None
        asked = before.next_state is State.QUEUED or before.desired is not DesiredState.RUN
        if held and held.next_state is State.QUEUED and not asked:
            self._ahead(before, facts, event)

    def _in_time(
        self,
        job: Job,
        facts: JobDeadline,
        at: float,
        ask: Collection[str],
        refused: Iterable[Circuit],
    ) -> None:
        """No preemptible slice is requested when only a safe one is sure to end in time, and may be requested: no limit
        or budget forbids it, and none was refused."""
        net = facts.finish_by - facts.left - 2 * facts.start - facts.wait - facts.lost
        closed = {c.pool for c in refused if c.until > at - CLOSE}
        free = [
            offer
            for offer in circuits.allowed(job)
            if not find_pricing(offer.pricing).preemptible
            and closed.isdisjoint(names := circuits.names(offer))
            and names[0] in ask
        ]
        pays = job.spec.budget is None and not self.budgets.shared
        if at > net + CLOSE and free and pays:
            self.broken("Q12", job.id, f"requests spot {at - net:.0f} s after its net")

    def _needed(self, job: Job, facts: JobDeadline, event: Event) -> None:
        """No safe slice is requested while the work is ahead of the line, unless others are refused for good."""
        line = facts.work * (facts.finish_by - event.at) / (facts.finish_by - facts.since)
        cheap = [o for o in circuits.allowed(job) if find_pricing(o.pricing).preemptible]
        net = facts.finish_by - facts.left - 2 * facts.start - facts.wait - facts.lost
        if facts.left < line - CLOSE and event.at < net - CLOSE and cheap:
            self.broken("Q12", job.id, f"is ahead of the line, and {event.text}")

    def _ahead(self, job: Job, facts: JobDeadline, event: Event) -> None:
        """A safe slice is given up only where two starts may be lost and the work stays ahead of the line."""
        line = facts.work * (facts.finish_by - event.at) / (facts.finish_by - facts.since)
        preemptible = job.slice and find_pricing(job.slice.pricing).preemptible
        if preemptible or facts.left > line + CLOSE or facts.left < 2 * facts.start:
            self.broken("Q12", job.id, f"gives its slice up in vain: {event.text}")
