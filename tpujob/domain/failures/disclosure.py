"""The text of a program's error is its owner's and admins': what stands in its place, and where it is put back. Pure.

A stored sentence has the `message` of an attempt, which anybody may read; `detail` is the same with the text. Beside it
the evidence, the verdict and what is sent on channels have that text.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tpujob.domain.events import Event
from tpujob.domain.model import Attempt, End, Job

#: the message of an attempt that ended before its text was kept apart
RECORDED_BEFORE = "an older version recorded why"
_ENDED = re.compile(r"(attempt \d+ ended, [A-Z_]+: ).*", re.DOTALL)


def in_full(sentence: str, ends: Sequence[Attempt | End]) -> str:
    """Return the sentence with the text of the error, that of the last of these ends whose message it has."""
    end = next((one for one in reversed(ends) if one.message and one.message in sentence), None)
    return sentence.replace(end.message, end.detail, 1) if end and end.detail else sentence


def job_in_full(job: Job) -> Job:
    """The record as its owner and admins read it."""
    if not any(one.detail for one in job.attempts):
        return job
    slices = [
        replace(
            s,
            delete_reason=in_full(s.delete_reason, [a for a in job.attempts if a.slice == s.name]),
        )
        for s in job.slices
    ]
    attempts = [replace(a, message=a.detail or a.message) for a in job.attempts]
    message = in_full(job.message, job.attempts)
    return replace(job, message=message, slices=tuple(slices), attempts=tuple(attempts))


def event_in_full(event: Event) -> Event:
    """Return the event with the text of the error, if it is the end of an attempt."""
    end: End | None = getattr(event.payload, "end", None)
    return replace(event, text=in_full(event.text, [end])) if end else event


def ended_by(job: Job, at: float) -> list[Attempt]:
    """The attempts that had ended at that time."""
    return [a for a in job.attempts if a.ended_at is not None and a.ended_at <= at]


# Records of schema version 6 and before, whose sentences have the text ------------------------------------------------


def old_job(job: Job) -> Job:
    slices = tuple(replace(s, delete_reason=_without(s.delete_reason)) for s in job.slices)
    attempts = tuple(_apart(a) if a.cause else a for a in job.attempts)
    return replace(job, message=_without(job.message), slices=slices, attempts=attempts)


def old_event(event: Event) -> Event:
    payload: Any = event.payload
    end = getattr(payload, "end", None)
    if end and end.cause:
        payload = replace(payload, end=_apart(end))
    return replace(event, text=_without(event.text), payload=payload)


def _apart(end: Any) -> Any:
    return replace(end, message=RECORDED_BEFORE, detail=end.message) if end.message else end


def _without(sentence: str) -> str:
    return _ENDED.sub(rf"\1{RECORDED_BEFORE}", sentence)
