"""Short stories of a job that asks in several places at once."""

from collections.abc import Callable, Mapping
from typing import Any

from tests.support.simulation.acts import ask, once, submit, work_of_all
from tests.support.simulation.machines import Machine
from tests.support.simulation.plans import Work
from tests.support.simulation.play import Play
from tests.support.simulation.sim import EPOCH
from tpujob.domain.capacity.settings import OwnerLimits, QueueSettings
from tpujob.domain.model import Slice, State, Suspect

A, B, CENTRAL = "us-east5-a", "us-east5-b", "us-central2-b"
TPU: Mapping[str, Any] = {"type": ["v5p-16", "v4-16"], "zones": [A, B, CENTRAL], "pricing": "spot"}
THREE: Mapping[str, Any] = {"tpu": TPU | {"race": 3}}
TWO: Mapping[str, Any] = {"tpu": TPU | {"race": 2}}
#: pays for no third candidate, as each has its way out reserved
FEW_CHIPS = QueueSettings(limits=OwnerLimits(chips=16))


def takes(play: Play, **seconds: tuple[float, float]) -> None:
    """Let each request in a zone wait in the cloud's queue, and be created, for so many seconds."""
    add = play.world.add

    def adds(machine: Machine, slice: Slice, *, owner: str = "") -> None:
        zone = slice.zone.replace("-", "_")
        if zone in seconds:
            waits, machine.creates_in = seconds[zone]
            machine.waits_until = play.sim.now + waits
        add(machine, slice, owner=owner)

    play.world.add = adds


def one_is_first(play: Play) -> None:
    """Let two places be created at once, and the other one wait."""
    takes(play, us_east5_a=(900, 60), us_east5_b=(20, 60), us_central2_b=(20, 90))


def one_is_full(play: Play) -> None:
    play.world.scarce[A] = EPOCH + 7200
    takes(play, us_east5_b=(600, 30), us_central2_b=(60, 30))


def two_at_once(play: Play) -> None:
    """Let two places be ready in the same second."""
    takes(play, us_east5_a=(60, 60), us_east5_b=(60, 60), us_central2_b=(900, 60))


def another_waits(play: Play) -> None:
    """Let another job wait for the zone in which a slice loses."""
    two_at_once(play)
    work_of_all(play, Work(12))

    def wait() -> None:
        play.world.scarce[B] = play.sim.now + 7200
        submit(play, "next", tpu={"type": "v5p-16", "zones": [B], "pricing": "spot"})

    once(play, lambda job: len(job.candidates) == 2, wait)


def refused_machines(play: Play) -> None:
    """Let the pre-flight refuse every machine of the first place that is ready; the others wait."""
    takes(play, us_east5_a=(900, 60), us_east5_b=(20, 60), us_central2_b=(600, 60))
    for name in play.world.free(B, "v5p-16"):
        play.real.reputation.put(Suspect(name, B, EPOCH, "bad"))


def serving_is_refused(play: Play) -> None:
    """Let the request that serves fail while the others wait."""
    takes(play, us_east5_a=(300, 60), us_east5_b=(900, 60), us_central2_b=(1200, 60))
    fail = lambda: setattr(next(iter(play.world.machines.values())), "fails", True)  # noqa: E731
    once(play, lambda job: len(job.candidates) == 2, fail)


def cancelled(play: Play) -> None:
    takes(play, us_east5_a=(900, 60), us_east5_b=(900, 60), us_central2_b=(900, 60))
    cancel: Callable[[], object] = lambda: ask(play, lambda api: api.cancel("000001"))  # noqa: E731
    once(play, lambda job: len(job.candidates) == 2, cancel)


def preempted_while_prepared(play: Play) -> None:
    """Preempt the slice that was chosen before its program runs, while another place waits."""
    one_is_first(play)

    def preempt() -> None:
        for machine in [*play.world.machines.values()]:
            if machine.ready_at <= play.sim.now:
                play.slices.faults.preempt(machine)

    once(play, lambda job: job.state is State.PREPARING, preempt)
