"""Jobs one after the other in one zone, each estimated from what the earlier ones met, then played by the simulation:
the product's own backend under a virtual clock, with slices that come and go as the zone's history says."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from tests.bench.estimator.spot import Zone
from tests.support.simulation.faults import SliceFaults
from tests.support.simulation.plans import Work as Program
from tests.support.simulation.play import Play
from tests.support.simulation.profile import RATES, Profile
from tests.support.simulation.programs import EVERY, STEP
from tests.support.simulation.scenarios import JOB, ask
from tests.support.simulation.sim import EPOCH
from tpujob.domain.model import Job
from tpujob.domain.money import ledger
from tpujob.domain.money.conditions import conditions
from tpujob.domain.money.forecast import Forecast, PlannedWork, forecast
from tpujob.domain.money.ledger import US
from tpujob.domain.money.samples import SamplePlace, SliceSample, history

PLACE = SamplePlace("v5p-16", "us-east5-a", "spot")
HOUR = 3600.0
#: hours of work of a job
LENGTHS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
#: of preemptions come without a notice, so that steps are lost
SILENT = 0.3
LONGEST = 90 * 86_400.0


@dataclass(frozen=True)
class Trial:
    """One job: its estimate, and what it cost."""

    zone: str
    number: int
    hours: float
    forecast: Forecast
    micros: tuple[int, ...]  #: what the forecast's slices cost, in the order of a `Range`
    job: Job
    paid: int  #: micro-dollars of the ledger

    @property
    def wall(self) -> float:
        assert self.job.finished_at is not None
        return self.job.finished_at - self.job.created_at


def trials(
    zone: Zone, count: int, seed: int, lengths: Sequence[float] = LENGTHS
) -> Iterator[Trial]:
    """Yield so many jobs in that zone. Each starts hours after the one before it has ended."""
    random, samples = Random(f"{zone.name}:{seed}"), list[SliceSample]()
    at = random.uniform(0, zone.length)
    for number in range(count):
        hours = random.choice(lengths)
        expected = estimated(hours, samples)
        job = run(zone, at, int(hours * HOUR / STEP), random.getrandbits(32))
        yield _trial(zone, number, hours, expected, job)
        samples += history([job], job.finished_at or 0.0)
        assert job.finished_at is not None
        at += job.finished_at - EPOCH + random.expovariate(1 / (6 * HOUR))


def estimated(hours: float, samples: Sequence[SliceSample]) -> Forecast:
    """Estimate a job with so many hours of work from what earlier jobs met."""
    work = PlannedWork(hours * HOUR, checkpoint=EVERY * STEP)
    return forecast(work, conditions(samples, PLACE, "python train.py"))


def priced(rate: int, expected: Forecast) -> tuple[int, ...]:
    """Return the micro-dollars of its slices at so many an hour, in the order of a `Range`."""
    return tuple(round(rate * seconds / HOUR) for seconds in expected.billed)


def _trial(zone: Zone, number: int, hours: float, expected: Forecast, job: Job) -> Trial:
    rate = ledger.rate(job.slices[0])
    assert rate
    paid = round((ledger.usd(job.slices, job.finished_at or 0.0) or 0.0) * US)
    return Trial(zone.name, number, hours, expected, priced(rate, expected), job, paid)


def run(zone: Zone, at: float, steps: int, seed: int) -> Job:
    """Play one job that is submitted at that time of the zone's history, to its end."""
    profile = Profile(dict.fromkeys(RATES, 0.0) | {"preempt_silent": SILENT}, 1, 1, 0.0)

    def script(play: Play) -> None:
        play.world.work[JOB] = Program(steps=steps, contract=True)
        _Market(play, zone, at - EPOCH).begin()
        spec = {
            "name": "estimated",
            "tpu": {"type": PLACE.type, "zones": [PLACE.zone], "pricing": PLACE.pricing},
            "run": {"command": "python train.py"},
        }
        ask(play, lambda api: api.create(spec, idempotency_key="key"))

    play = Play(seed, profile, script)
    try:
        while play.sim.now < EPOCH + LONGEST:
            play.sim.run_until(play.sim.now + 1800)
            job = play.monitor.jobs.get(JOB)
            if job is not None and job.state.final:
                return job
    finally:
        play.close()
    raise AssertionError(f"a job of {steps} steps did not end in {zone.name}")


class _Market:
    """Slices of the zone are taken away when its capacity goes, and refused until it is back."""

    def __init__(self, play: Play, zone: Zone, shift: float) -> None:
        self.play, self.zone, self.shift = play, zone, shift
        self.faults = SliceFaults(play.world)

    def begin(self) -> None:
        now = self.play.sim.now
        until = self.zone.changes_at(now + self.shift) - self.shift
        world = self.play.world
        if not self.zone.has(now + self.shift):
            world.scarce[PLACE.zone] = until
            for machine in [m for m in world.machines.values() if m.zone == PLACE.zone]:
                self.faults.preempt(machine)
                world.stirred(machine.job)
        self.play.sim.at(until + 0.001, self.begin)
