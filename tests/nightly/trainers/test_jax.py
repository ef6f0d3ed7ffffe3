"""Trainers in JAX, from their released packages on two emulated hosts; of big_vision, which has none, a stand-in."""

import re

import pytest
import yaml

from tests.nightly.trainers.stories import CONFIGS, play
from tests.support.local_stack import LocalStack
from tests.support.paths import ROOT
from tests.support.trainer_packages import environment

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

STAND_INS = ROOT / "tests" / "support" / "trainers"


def test_keras(stack: LocalStack) -> None:
    view = play(stack, "keras", "--epochs=12", lambda view: (view["checkpoint"] or 0) >= 42)
    first, last = view["attempts"]
    assert last["resumed_from"] == last["first_step"] - 1 >= first["checkpoint"] >= 42
    assert (view["step"], view["checkpoint"], view["steps"]) == (168, 168, 168)
    assert view["metrics"]["accuracy"] > 0.9


def test_levanter(stack: LocalStack) -> None:
    arguments = "--trainer.num_train_steps 200 --trainer.checkpointer.save_interval 5s"
    view = play(stack, "levanter", arguments, lambda view: view["checkpoint"] is not None)
    first, last = view["attempts"]
    assert last["first_step"] - 1 >= first["checkpoint"]
    assert (view["step"], view["steps"]) == (199, 200), "it counts from 0"


def test_maxtext(stack: LocalStack) -> None:
    """With the arguments that its file names for a laptop, on generated data, which is the same for each step."""
    text = (CONFIGS / "maxtext.yaml").read_text(encoding="utf-8")
    small = re.findall(
        r"\b\w+=\w+", text.partition("makes the model small:")[2].partition("Expect:")[0]
    )
    arguments = " ".join([*small, "steps=200", "checkpoint_period=20"])
    view = play(stack, "maxtext", arguments, lambda view: (view["checkpoint"] or 0) >= 20)
    first, last = view["attempts"]
    assert last["resumed_from"] == last["first_step"] - 1 >= first["checkpoint"] >= 20
    assert (view["step"], view["steps"]) == (199, 200), "it counts from 0"


def test_big_vision(stack: LocalStack) -> None:
    """Its folder is a local one."""
    programs = environment("big-vision", STAND_INS / "big-vision.txt", "3.11")
    run = yaml.safe_load((CONFIGS / "big-vision.yaml").read_text(encoding="utf-8"))["run"]
    command = run["command"].replace("$TPUJOB_WORKDIR/run", "$PWD/run")
    fields = {
        "code": str(STAND_INS / "big-vision"),
        "setup": "cd repo && bash big_vision/run_tpu.sh",
        "run": {**run, "command": command},
        "outputs": "repo/run",
    }
    view = play(stack, "big-vision", "", lambda view: view["step"] >= 220, programs, **fields)
    first, last = view["attempts"]
    assert last["first_step"] % 100 == 1, "its newest checkpoint"
    assert first["step"] - 100 < last["first_step"] <= first["step"] + 1
    assert (view["step"], view["steps"]) == (600, 600)
