"""The text of a program's error is its owner's and admins': what stands in its place, and where it is put back. Pure.

A stored sentence has the `message` of an attempt, which anybody may read; `detail` is the same with the text. Beside it
the evidence, the verdict and what is sent on channels have that text.
"""

from collections.abc import Sequence
from dataclasses import replace

from tpujob.domain.events import Event
from tpujob.domain.model import Attempt, End, Job


def in_full(sentence: str, ends: Sequence[Attempt | End]) -> str:
    """Return the sentence with the text of the error, that of the last of these ends whose message it has."""
    end = next((end for end in reversed(ends) if end.message and end.message in sentence), None)
    return sentence.replace(end.message, end.detail, 1) if end and end.detail else sentence


def job_in_full(job: Job) -> Job:
    """The record as its owner and admins read it."""
    if not any(attempt.detail for attempt in job.attempts):
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
