"""The text of a program's error, which only its owner and admins may read. Pure.

Stored sentences have the `message` of an attempt, which every user may read. Its `detail` is the same with the text of
the error, and replaces the message for the owner and admins.
"""

from collections.abc import Sequence
from dataclasses import replace

from tpujob.domain.events import Event
from tpujob.domain.model import Attempt, End, Job


def in_full(sentence: str, ends: Sequence[Attempt | End]) -> str:
    """Return the sentence with the detail of the last of these ends whose message it contains, if there is one."""
    end = next((end for end in reversed(ends) if end.message and end.message in sentence), None)
    return sentence.replace(end.message, end.detail, 1) if end and end.detail else sentence


def job_in_full(job: Job) -> Job:
    """Return the record as its owner and admins read it."""
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


def event_in_full(event: Event, ends: Sequence[tuple[int, End]]) -> Event:
    """Return the event with the text of the error. `ends`: of that job's attempts, with the `seq` of their events."""
    return replace(event, text=in_full(event.text, [end for n, end in ends if n <= event.seq]))


def ended_by(job: Job, at: float) -> list[Attempt]:
    """Return the attempts that had ended at that time."""
    return [a for a in job.attempts if a.ended_at is not None and a.ended_at <= at]
