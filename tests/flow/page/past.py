"""A job with a past on a real backend: a crash, a preemption, lost steps, hosts, curves, evidence."""

import math
import random
from typing import Any

from tests.support.records import accusation, curves_in
from tests.support.stage import Stage
from tpujob.agent.upload.progress import Series
from tpujob.domain.access import Principal
from tpujob.protocol import paths

SPEC: dict[str, Any] = {
    "name": "llama-8b-pretrain",
    "tpu": {"type": "v4-16", "zones": ["us-central2-b"]},
    "run": {"command": "python3 train.py", "env": {"WANDB_MODE": "offline"}},
    "budget": {"usd": 500},
}


def preempted(stage: Stage, principal: Principal, **changes: Any) -> str:
    """Make a job that crashed once, was preempted once, lost 400 steps by that, and runs again; one of its machines is
    suspected."""
    job = stage.api.acting_for(principal).create({**SPEC, **changes})["id"]
    stage.running(job)
    tell(stage, job, 1, 1200, seconds=1500, checkpoint=1000)
    curves = curves_in(stage.bucket.objects[report_of(stage, job)][0])
    stage.report(job, 1, phase="exited", exit_code=143)
    stage.report(job, 0, phase="exited", exit_code=1)
    stage.last_words(
        job,
        0,
        "Traceback (most recent call last):",
        '  File "train.py", line 40, in <module>',
        "    batch = next(data)",
        "OSError: [Errno 5] Input/output error: '/data/shard-00017'",
    )
    stage.draw(job, curves, evidence=stage.bucket.objects[report_of(stage, job)][0])
    stage.running(job, 2)
    tell(stage, job, 1001, 3400, seconds=3000, checkpoint=3000, resumed_from=1000)
    stage.cloud.preempt(stage.job(job).slices[-1].name)
    stage.running(job, 3)
    for number in (1, 2):  # two owners: programs of all keep off it
        proof = accusation(f"00009{number}", owner=f"uid:{number}", at=stage.clock.now())
        stage.store.reputation.accuse(["rack-07"], proof)
    stage.report(job, 0, physical="rack-03")
    stage.report(job, 1, physical="rack-07")
    tell(stage, job, 3001, 4100, seconds=1400, checkpoint=4000, resumed_from=3000)
    return job


def report_of(stage: Stage, job_id: str) -> str:
    """Return the path of host 0's newest report."""
    job = stage.job(job_id)
    return paths.report_path(job.workdir, len(job.attempts), 0)


def tell(
    stage: Stage, job_id: str, first: int, last: int, *, seconds: float, **fields: Any
) -> None:
    """Let the program of the newest attempt make these steps in that time."""
    series, begun, chance = Series(), stage.clock.now(), random.Random(first)
    for step in range(first, last + 1):
        wobble = chance.gauss(0, 0.03)
        at, loss = (
            begun + seconds * (step - first) / (last - first),
            1.8 + 6 * math.exp(-step / 900) + wobble,
        )
        series.step(
            step,
            at,
            {"loss": loss, "ms": 1200 + 400 * wobble, "tokens_per_second": 52_000 - 9000 * wobble},
        )
        if step in (first, last):
            stage.clock.time = max(stage.clock.time, at)
            stage.reports(
                job_id, step=step, steps=8000, program_phase="train", loss=round(loss, 4), **fields
            )
            stage.step(job_id)
    stage.draw(job_id, series.line())
    stage.step(job_id)
