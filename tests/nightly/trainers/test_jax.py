"""Trainers in JAX, from their released packages on two emulated hosts."""

import pytest

from tests.nightly.trainers.stories import play
from tests.support.local_stack import LocalStack

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]


def test_keras(stack: LocalStack) -> None:
    view = play(stack, "keras", "--epochs=12", lambda view: (view["checkpoint"] or 0) >= 42)
    first, last = view["attempts"]
    assert last["resumed_from"] == last["first_step"] - 1 >= first["checkpoint"] >= 42
    assert (view["step"], view["checkpoint"], view["steps"]) == (168, 168, 168)
    assert view["metrics"]["accuracy"] > 0.9
