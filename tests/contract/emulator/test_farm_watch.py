"""The API's view of hosts that a farm has lost, or that no farm can report on."""

import pytest

from tests.contract.emulator.world_rig import Model
from tests.support.tpu_rig import NoFarm
from tpujob.emulator.driver import FarmError, FarmGone, FarmWatch
from tpujob.emulator.tpu import convert


class Farm(NoFarm):
    """Answers the one question of the watch as the test sets."""

    def __init__(self, answer: Exception | frozenset[str] | None) -> None:
        super().__init__()
        self.answer = answer

    def slices(self) -> dict[str, frozenset[int]] | None:  # type: ignore[override]
        if isinstance(self.answer, Exception):
            raise self.answer
        return None if self.answer is None else dict.fromkeys(self.answer, frozenset[int]())


def seen(model: Model) -> tuple[str, str]:
    (node,) = model.world.nodes.values()
    message = convert.node_message(node, model.now)
    return type(message).State.Name(message.state), type(message).Health.Name(message.health)


@pytest.fixture
def model() -> Model:
    """Return a world with one slice, which is ready."""
    return Model.with_slice()


def test_a_slice_that_the_farm_has_is_left_alone(model: Model) -> None:
    FarmWatch(model.world, Farm(frozenset({"q"}))).look()
    FarmWatch(model.world, Farm(None)).look()
    assert seen(model) == ("READY", "HEALTHY")


def test_a_slice_that_the_farm_does_not_have_is_terminated(model: Model) -> None:
    FarmWatch(model.world, Farm(frozenset({"another"}))).look()
    assert model.state("q")[1] == "TERMINATED"
    model.go(5)
    assert model.state("q") == ("SUSPENDED", ""), "a suspended request has lost its node"
    assert not any(h.used_by for h in model.world.stock.hosts["us-central2-b"].values())


def test_a_farm_that_does_not_answer_terminates_no_slice(model: Model) -> None:
    farm = Farm(FarmError("timed out"))
    watch = FarmWatch(model.world, farm)
    for _ in range(10):
        watch.look()
    assert seen(model) == ("READY", "TIMEOUT")
    farm.answer = frozenset({"q"})
    watch.look()
    assert seen(model) == ("READY", "HEALTHY")


def test_a_farm_that_has_ended_is_believed_at_the_second_look(model: Model) -> None:
    farm = Farm(FarmGone("refused"))
    watch = FarmWatch(model.world, farm)
    watch.look()
    assert seen(model) == ("READY", "TIMEOUT"), "one look is none"
    farm.answer = frozenset({"q"})
    watch.look()
    farm.answer = FarmGone("refused")
    watch.look()
    assert seen(model)[0] == "READY", "the looks were not in a row"
    watch.look()
    assert model.state("q")[1] == "TERMINATED"


def test_slices_that_come_up_meanwhile_are_not_missed() -> None:
    """The farm's answer is older than the slice."""
    model = Model()

    class Slow(Farm):
        def slices(self) -> dict[str, frozenset[int]] | None:  # type: ignore[override]
            model.go(20)
            return {}

    model.ask("q")
    FarmWatch(model.world, Slow(None)).look()
    model.go(20)
    assert model.state("q") == ("ACTIVE", "READY")
