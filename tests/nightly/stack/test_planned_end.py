"""A flex-start slice ends as planned, on real processes: its program saves before that, and goes on after it."""

import re
import shlex
from pathlib import Path

import pytest

from tests.support.local_stack import LocalStack

pytestmark = pytest.mark.timeout(900)

#: Counts from where it was saved until a file exists, its argument; saves on SIGTERM.
PROGRAM = """
import pathlib, signal, sys, time
saved = pathlib.Path("saved/step")
saved.parent.mkdir(exist_ok=True)
step = int(saved.read_text()) if saved.exists() else 0
print("begins at", step, flush=True)
def save(*_):
    saved.write_text(str(step))
    print("saved", step, flush=True)
    sys.exit(75)
signal.signal(signal.SIGTERM, save)
while not pathlib.Path(sys.argv[1]).exists():
    step += 1
    time.sleep(0.1)
"""
FLEX = {"type": "v6e-8", "zones": ["us-central2-b"], "pricing": "flex-start", "run_for": "10m"}


def test_a_program_saves_before_its_slice_ends_and_goes_on(
    stack: LocalStack, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    stack.run("emulator", "max-run", "3m")
    job_id = stack.create(
        "flex",
        f"python3 -c {shlex.quote(PROGRAM)} {go}",
        tpu=FLEX,
        outputs="saved",
        recovery={"planned_ends": 1},
    )
    view = stack.until(job_id, "running")
    [first] = view["slices"]
    assert "as planned: at " in stack.run("show", job_id)
    assert "the program is told to save before that" in stack.run("why", job_id)
    stack.run("emulator", "max-run", "0")
    view = stack.until(job_id, lambda v: v["state"] == "running" and v["attempt"] == 2)
    assert view["attempts"][0]["cause"] == "PLANNED_END", view["attempts"][0]["message"]
    assert view["retries_used"] == {"planned_ends": 1}
    assert view["slices"][0]["gone_at"] < first["ends_at"], "released before the cloud takes it"
    go.touch()
    stack.until(job_id, "succeeded")
    [saved] = re.findall(r"saved (\d+)", stack.run("logs", job_id, "--attempt", "1"))
    assert int(saved) > 0
    assert f"begins at {saved}\n" in stack.run("logs", job_id, "--attempt", "2")
