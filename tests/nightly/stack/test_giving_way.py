"""On real processes: a job of low priority saves, gives way to one that waits for its chips, and goes on later."""

from pathlib import Path

import pytest

from tests.support.local_stack import LocalStack

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]

ZONE = "us-central2-b"
#: makes a step each half second; saves at SIGTERM, and goes on from there
PROGRAM = """
mkdir -p out
step=$(cat out/step 2>/dev/null || echo 0)
echo "began at step $step"
trap 'echo "$step" > out/step; echo "saved step $step"; exit 75' TERM
while [ "$step" -lt 120 ]; do step=$((step + 1)); sleep 0.5; done
"""
#: in every process of the stack, the twenty minutes that a program runs first are ten seconds
SOON = """
try:
    from tpujob.domain.capacity import giving_way
    giving_way.LEAST_RUN = 10.0
except ImportError:
    pass
"""


def test_a_job_of_low_priority_saves_gives_way_and_goes_on(tmp_path: Path) -> None:
    stack = LocalStack(tmp_path)
    (tmp_path / "soon").mkdir()
    (tmp_path / "soon" / "sitecustomize.py").write_text(SOON)
    stack.env["PYTHONPATH"] = str(tmp_path / "soon")
    stack.state.mkdir()
    quota = f"{{type: v4, zone: {ZONE}, pricing: spot, chips: 4}}"
    (stack.state / "queue.yaml").write_text(f"hand_on: lab\nquota: [{quota}]\n")
    tpu = {"type": "v4-8", "zones": [ZONE]}
    try:
        stack.run("up")
        low = stack.create("low", PROGRAM, tpu=tpu, priority="low", outputs=["out"])
        stack.until(low, "running")
        head = stack.create("head", "sleep 2", tpu=tpu)
        stack.until(head, "succeeded")
        told = stack.run("why", low)
        assert f"gave way to job {head}" in told
        ended = stack.until(low, "succeeded")
        first, second = ended["attempts"]
        assert (first["outcome"], first["cause"]) == ("interrupted", "GAVE_WAY")
        assert all(budget["used"] == 0 for budget in ended["budgets"])
        assert stack.job(head)["slices"][0]["name"] == ended["slices"][0]["name"], "handed on"
        output = stack.run("logs", low, "--attempt", "1") + stack.run("logs", low)
        saved = output.split("saved step ")[1].split()[0]
        assert f"began at step {saved}" in output
        assert second["outcome"] == "succeeded"
        assert "GAVE_WAY" not in stack.run("why", head)
    finally:
        stack.down()
