"""What the ledger keeps of a job that is removed: its slices with their times and rates, and how its time was used.

Pure. It is a record of a job, so that every report, budget and share reads it as it reads the others. It has no
program, environment, text or place of data.
"""

from dataclasses import replace

from tpujob.domain.copies import Copy, CopyProgress
from tpujob.domain.model import Attempt, Job, Progress
from tpujob.domain.spec import JobSpec, parse

#: the program in what is kept
REMOVED = "(removed)"
#: the other fields of the spec that count for costs
_COUNTS = {"tpu", "share", "time", "stop_grace"}


def remainder(job: Job) -> Job | None:
    """Return what is kept of the job when it is removed; None: it has requested none."""
    if not job.slices and not job.copies:
        return None
    return Job(
        id=job.id,
        name=job.name,
        user=job.user,
        owner=job.owner,
        group=job.group,
        index=job.index,
        spec=_spec(job.spec),
        state=job.state,
        desired=job.desired,
        created_at=job.created_at,
        state_since=job.state_since,
        finished_at=job.finished_at,
        version=job.version,
        idle_periods=job.idle_periods,
        grants=job.grants,
        slices=tuple(replace(s, endpoints=(), delete_reason="", bucket="") for s in job.slices),
        attempts=tuple(map(_attempt, job.attempts)),
        copies=tuple(map(_copy, job.copies)),
    )


def _spec(spec: JobSpec) -> JobSpec:
    counts = spec.model_dump(mode="json", include=_COUNTS, exclude_none=True)
    return parse({"name": spec.name, "run": {"command": REMOVED}, **counts})


def _attempt(attempt: Attempt) -> Attempt:
    progress = attempt.progress
    return Attempt(
        number=attempt.number,
        slice=attempt.slice,
        started_at=attempt.started_at,
        running_at=attempt.running_at,
        ended_at=attempt.ended_at,
        outcome=attempt.outcome,
        cause=attempt.cause,
        progress=replace(progress, loss=None, metrics=Progress().metrics),
        progress_at=attempt.progress_at,
        resume_before=attempt.resume_before,
        first_step_at=attempt.first_step_at,
        first_step=attempt.first_step,
        idle=attempt.idle,
    )


def _copy(copy: Copy) -> Copy:
    progress = CopyProgress(objects=copy.progress.objects, bytes=copy.progress.bytes)
    return replace(
        copy, id="", name="", source="", target="", error="", saved=None, progress=progress
    )
