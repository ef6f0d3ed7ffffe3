"""Programs that tell what they do by printing alone, through a preemption on the local stack."""

import re
from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.local_stack import LocalStack

#: Saves at step 20 alone, dies at SIGTERM, and never ends by itself.
PROGRAM = """
import pathlib, time
saved = pathlib.Path("checkpoints/step")
begin = int(saved.read_text()) if saved.exists() else 0
if begin:
    print("resumed from step", begin, flush=True)
for step in range(begin + 1, 100_000):
    print("step", step, "loss", 1 / step, flush=True)
    time.sleep(0.05)
    if step == 20:
        saved.write_text("20")
        print("saved step 20", flush=True)
"""
PROGRESS = {"progress": r"^step (?P<step>\d+)"}
ALL = {
    **PROGRESS,
    "checkpoint": r"saved step (?P<step>\d+)",
    "resume": r"resumed from step (?P<step>\d+)",
}


def submit(stack: LocalStack, name: str, watch: Mapping[str, str]) -> str:
    code = stack.folder / name
    code.mkdir()
    (code / "train.py").write_text(PROGRAM)
    fields: dict[str, Any] = {"tpu": {"type": "v4-8"}, "outputs": "checkpoints", "watch": watch}
    return stack.create(name, "python3 train.py", code=str(code), **fields)


@pytest.mark.timeout(300)
def test_what_was_lost_is_what_the_next_attempt_made_again(stack: LocalStack) -> None:
    printing, silent = submit(stack, "prints-all", ALL), submit(stack, "prints-steps", PROGRESS)
    stack.until(printing, lambda view: view["checkpoint"] == 20 and view["step"] >= 30)
    stack.until(silent, lambda view: (view["step"] or 0) >= 30)
    for job in (printing, silent):
        stack.run("emulator", "preempt", job, "--notice", "5s")
    views = {job: stack.until(job, goes_on) for job in (printing, silent)}

    first, second = views[printing]["attempts"]
    assert (first["checkpoint"], second["resumed_from"], second["first_step"]) == (20, 20, 21)
    assert f"not saved, {first['step'] - 20} steps lost" in first["message"]

    first, second = views[silent]["attempts"]
    assert (first["checkpoint"], second["resumed_from"], second["first_step"]) == (None, None, 21)
    assert "lost" not in first["message"], "it has not reported what it saved"
    for job, view in views.items():
        made_again = view["attempts"][0]["step"] - 20
        assert view["attempts"][0]["redone"] == made_again
        events = [event["text"] for event in stack.json("events", job)]
        # until it has printed two steps, a silent program has not shown where it began
        end = f"; {made_again} steps of earlier attempts are repeated"
        end = f"({end})?" if job == silent else end
        assert any(re.fullmatch("first step seen: [0-9]+" + end, text) for text in events), events
        parts = stack.json("cost", "report", job)["total"]["parts"]
        assert [part["part"] for part in parts if part["part"] in ("redone", "unknown")] == [
            "redone"
        ]
        stack.run("delete", job, "--yes")
        stack.until(job, "cancelled")


def goes_on(view: Mapping[str, Any]) -> bool:
    """Return whether the second attempt has made a step that the backend has seen."""
    return view["attempt"] == 2 and view["step"] is not None
