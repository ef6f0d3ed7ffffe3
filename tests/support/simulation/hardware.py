"""The rules of requests to the cloud and of suspects: circuits (I8), accusations (I5), the time of condemned slices."""

from tests.support.simulation.sim import Broken
from tests.support.simulation.world import World
from tpujob.domain.events import CandidateLost, CandidatePromoted, Event, EventKind
from tpujob.domain.failures.host_reputation import HALF_LIFE, NAMED, score
from tpujob.domain.model import Accusation, Cause, Job, Slice, Suspect

#: seconds: the first wait after a refusal, what it grows to, and how long one that asks is waited for
BACKOFF = {Cause.STOCKOUT: (15.0, 600.0), Cause.QUOTA: (60.0, 900.0)}
PROBE = 120.0
_REQUESTS = (EventKind.SLICE_REQUESTED, EventKind.CANDIDATE_REQUESTED)
_REFUSALS = (EventKind.RELEASE_STARTED, EventKind.CANDIDATE_LOST, EventKind.CANDIDATE_PROMOTED)
#: refusals that only a person's resume ends
FOR_GOOD = (Cause.PERMISSION, Cause.BAD_SPEC)


def _offer(slice: Slice, number: int) -> str:
    return f"{slice.zone}/{slice.type}/{slice.pricing}/{number}"


class Offers:
    """I8: only one job at a time requests an offer that its backend knows to be refused, and ever more rarely."""

    def __init__(self, broken: Broken) -> None:
        self.broken = broken
        #: (backend, offer) -> [refusals in a row, when the last was noted, when it was last asked for]
        self.refused: dict[tuple[str, str], list[float]] = {}
        self._unsure_until = 0.0
        self.asking: dict[tuple[str, str], str] = {}  #: the job that requested the offer last

    def committed(self, backend: str, before: Job, job: Job, event: Event) -> None:
        slice = _concerned(before, job, event)
        if slice is None:
            return
        key = (backend, _offer(slice, slice.tpu_slices))
        if event.kind in _REQUESTS:
            self._asked(key, job, slice, event.at)
            for old in before.slices:
                same = old.place == slice.place
                if same and old.refused in FOR_GOOD and old.requested_at >= before.fresh_at:
                    text = f"{slice.type} was refused in {slice.zone} for good, as {old.refused}"
                    self.broken("I8", job.id, f"{text}, and is requested again")
        elif event.kind in _REFUSALS and slice.refused is Cause.STOCKOUT:
            self._refused(key, slice, event.at)

    def clock_set(self, until: float) -> None:
        """Judge no request until then: records have times of a wrong clock, also such as are still to come."""
        self.refused.clear()
        self._unsure_until = max(self._unsure_until, until)

    def granted(self, backend: str, slice: Slice) -> None:
        """Note that the cloud has as much again, or less."""
        for number in range(1, slice.tpu_slices + 1):
            self.refused.pop((backend, _offer(slice, number)), None)

    def answered(self, backend: str, slice: Slice) -> None:
        """Let other jobs request the offer again: this backend's request is answered."""
        refusal = self.refused.get((backend, _offer(slice, slice.tpu_slices)))
        if refusal:
            refusal[2] = 0.0

    def _refused(self, key: tuple[str, str], slice: Slice, at: float) -> None:
        refusal = self.refused.get(key)
        if refusal is None:
            self.refused[key] = [1, at, 0.0]
        elif slice.requested_at > refusal[1]:  # else it was out already before that refusal
            self.refused[key] = [refusal[0] + 1, at, 0.0]

    def _asked(self, key: tuple[str, str], job: Job, slice: Slice, at: float) -> None:
        refusal = self.refused.get(key)
        if refusal is None or at < self._unsure_until:
            return
        first, longest = BACKOFF[Cause.STOCKOUT]
        wait = 0.75 * min(longest, first * 2 ** (refusal[0] - 1))
        if at < refusal[1] + wait - 2:
            text = f"{slice.zone} was asked {at - refusal[1]:.0f} s after refusal {refusal[0]:.0f}"
            self.broken("I8", job.id, f"{text}, by the backend that was told")
        if at < refusal[2] + PROBE - 2 and job.id != self.asking[key]:
            self.broken("I8", job.id, f"{slice.zone} was asked while another job asked for all")
        refusal[2], self.asking[key] = at, job.id


def _concerned(before: Job, job: Job, event: Event) -> Slice | None:
    """Return the slice that an event about a request concerns, as it is after the event."""
    if event.kind in _REQUESTS:
        return job.slices[-1]
    match event.payload:
        case CandidateLost(name) | CandidatePromoted(_, CandidateLost(name)):
            return next(slice for slice in job.slices if slice.name == name)
        case _:
            return job.slice or before.slice


class Accusations:
    """I5 of machines: only a machine that broke a number, or its neighbour, is suspected, once for each time."""

    def __init__(self, world: World, broken: Broken) -> None:
        self.world, self.broken = world, broken
        self.held: dict[str, dict[str, float]] = {}  #: machine -> occasion -> weight

    def made(
        self, physicals: tuple[str, ...], accusation: Accusation, stored: list[Suspect]
    ) -> None:
        job, attempt = accusation.job, accusation.attempt
        broke = self._broke(job, attempt)
        if broke is None or broke not in physicals:
            text = (
                f"{', '.join(physicals)} suspected for attempt {attempt}, in which it did nothing"
            )
            self.broken("I5", job, text)
        if len(physicals) > 1 and accusation.weight >= NAMED:
            self.broken("I5", job, f"all of {', '.join(physicals)} called bad, and one was")
        for physical in physicals:
            self.held.setdefault(physical, {}).setdefault(f"{job}:{attempt}", accusation.weight)
        for suspect in stored:
            allowed = sum(self.held.get(suspect.physical, {}).values())
            counts = score(suspect, self.world.sim.now)
            if counts > allowed + 1e-6:
                text = f"{suspect.physical} counts {counts:.2f}, and did {allowed:.2f}"
                self.broken("I5", job, f"{text} (half of it fades in {HALF_LIFE / 86400:.0f} days)")

    def _broke(self, job: str, attempt: int) -> str | None:
        for machine in self.world.of_job.get(job, []):
            run = machine.run_of(job, attempt)
            if run and run.culprit >= 0:
                return machine.physical[run.culprit]
        return None
