"""Trainers of other projects: the files of `configs/`, played with stand-ins through a preemption."""

import math
import re

import pytest
import yaml

from tests.support.local_stack import LocalStack
from tests.support.paths import ROOT
from tpujob.agent.patterns import PatternWatch
from tpujob.domain.host.plan import watch_patterns
from tpujob.domain.spec.jobspec import JobSpec, load

CONFIGS = ROOT / "configs"
STAND_INS = ROOT / "tests" / "support" / "trainers"
NAMES = ("maxtext",)


def spec(name: str) -> JobSpec:
    path = CONFIGS / f"{name}.yaml"
    return load(path.read_text(), str(path))


#: Lines of the real programs, as their documentation or their source has them.
LINES = [
    ("maxtext", 9, False, "completed step: 9, seconds: 1.010, TFLOP/s/device: 31.541, Tokens/s/device: 2027.424, "
     "total_weights: 7979, loss: 9.436"),
    ("maxtext", 30, True, "0: I0122 21:20:55.494193 140737350402816 metric_logger.py:180] completed step: 30, "
     "seconds: 0.449, TFLOP/s/device: 1877.176, Tokens/s/device: 36470.971, total_weights: 131072, loss: nan"),
    ("maxtext", None, False, "eval metrics after step: 4, loss=9.855, total_weights=75264.0"),
    ("big-vision", 1234, False, "I0224 07:12:27.0 124 train.py:125] \x1b[33mNOTE\x1b[0m: Steps:1234/112590 [1.1%]"),
    ("big-vision", None, True, "RuntimeError: The loss became nan or inf somewhere within steps [50, 100]"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "step", "bad", "line"), LINES)
def test_a_line_of_the_program_is_read(name: str, step: int | None, bad: bool, line: str) -> None:
    watch = PatternWatch(watch_patterns(spec(name)), lambda *_: None, int)
    watch.add_lines([line.encode()])
    watch.search()
    matches = watch.take_matches()
    assert [match.step for match in matches] == ([] if step is None else [step])
    if watch.nonfinite:
        assert watch.nonfinite[1] in (step, 100)
    losses = [match.values.get("loss", 0.0) for match in matches]
    assert (watch.nonfinite is not None or any(map(math.isnan, losses))) is bad


@pytest.mark.parametrize("name", NAMES)
def test_the_file_says_that_no_tpu_has_run_it(name: str) -> None:
    assert "Not tested on a TPU." in (CONFIGS / f"{name}.yaml").read_text()


def submit(stack: LocalStack, name: str) -> str:
    """The job of that file with the stand-in as its code, in the environment of the tests; its id."""
    document = yaml.safe_load((CONFIGS / f"{name}.yaml").read_text())
    for key in ("setup", "env"):
        document.pop(key, None)
    changes = {"code": str(STAND_INS / name), "preflight": False}
    file = stack.folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump({**document, **changes}))
    return stack.json("create", str(file))["id"]


@pytest.mark.timeout(600)
def test_each_goes_on_after_a_preemption_in_its_own_manner(stack: LocalStack) -> None:
    for name in NAMES:
        output = stack.run("create", str(CONFIGS / f"{name}.yaml"), "--dry-run")
        assert "nothing was submitted" in output
    jobs = {name: submit(stack, name) for name in NAMES}
    for job_id in jobs.values():
        stack.until(job_id, lambda view: (view["step"] or 0) >= 12)
        stack.run("emulator", "preempt", job_id, "--notice", "5s")
    for name, job_id in jobs.items():
        view = stack.until(job_id, lambda view: view["state"] in ("succeeded", "failed"))
        ends = [(attempt["outcome"], attempt["cause"]) for attempt in view["attempts"]]
        assert ends == [("interrupted", "PREEMPTED"), ("succeeded", None)], f"{name}: {ends}"
    first, last = (
        {
            name: stack.run("logs", job_id, "--attempt", n, "--host", "0")
            for name, job_id in jobs.items()
        }
        for n in "12"
    )

    assert "Training stopped: Job received termination signal" in first["maxtext"]
    saved = max(map(int, re.findall(r"completed step: (\d+)", first["maxtext"])))
    assert f"restoring from this run's directory step {saved}" in last["maxtext"], "no step is lost"
    assert "completed step: 999," in last["maxtext"]
