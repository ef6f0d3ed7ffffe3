"""A sweep whose elements have curves, on a real backend."""

import math
import random
from typing import Any

from tests.support.stage import Stage
from tpujob.agent.upload.progress import Series
from tpujob.domain.access import Principal

SPEC: dict[str, Any] = {
    "name": "lr-sweep",
    "tpu": {"type": "v4-8", "zones": ["us-central2-b"]},
    "run": {"command": "python3 train.py --lr {lr} --seed {seed}"},
    "matrix": {"lr": [0.0001, 0.001, 0.01], "seed": [1, 2]},
}


def make(stage: Stage, principal: Principal, **changes: Any) -> tuple[str, list[str]]:
    """Make a sweep, of which all elements run; return its id and those of its elements."""
    api = stage.api.acting_for(principal)
    group = api.create({**SPEC, **changes})["id"]
    stage.step(group)
    rows = api.list({"group": group, "order": "id", "reverse": True})["rows"]
    elements = [row["id"] for row in rows]
    for element in elements:
        stage.running(element)
    return group, elements


def train(
    stage: Stage, job: str, steps: int, *, first: int = 1, attempt: int = 1, **report: Any
) -> None:
    """Let the program of the job's newest attempt make its steps up to `steps`, ten a second. Its loss depends on its
    parameters alone."""
    lr, seed = (
        float(stage.job(job).params.get(name, default))
        for name, default in (("lr", 0.001), ("seed", 1))
    )
    series, chance, begun = Series(), random.Random(seed), stage.clock.now()
    speed = 300 / (1 + abs(math.log10(lr) + 3))
    loss = accuracy = 0.0
    for step in range(first, steps + 1):
        loss = 2 + 6 * math.exp(-step / speed) + chance.gauss(0, 0.04) + abs(math.log10(lr) + 3) / 4
        accuracy = 1 - loss / 9
        series.step(
            step,
            begun + (step - first) / 10,
            {
                "loss": loss,
                "accuracy": accuracy,
                "tokens_per_second": 52_000 + 900 * chance.random(),
            },
        )
    facts = {
        "step": steps,
        "steps": 1000,
        "loss": round(loss, 4),
        "metrics": {"accuracy": round(accuracy, 4)},
    }
    for host in range(stage.job(job).hosts or 1):
        stage.report(job, host, **{**facts, **report})
    stage.draw(job, series.line())
    stage.step(job)
