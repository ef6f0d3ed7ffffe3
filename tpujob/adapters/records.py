"""What every store says and writes of a record, whatever it keeps it in. Pure."""

from __future__ import annotations

from dataclasses import replace

from tpujob.domain.codec import to_text
from tpujob.domain.model import Event, Job, Wish
from tpujob.errors import Conflict, Fenced, NotFound

#: of one job: how many commits back a repeat is still recognised; one that is older meets the version check
REMEMBERED = 16
#: decoded records kept; a job of 64 hosts takes about 30 kB
CACHED = 4096


def job_text(job: Job) -> str:
    return to_text(job)


def event_text(event: Event, seq: int) -> str:
    return to_text(replace(event, seq=seq))


def waking(job: Job) -> float | None:
    """When the job is due; None: nothing is left to do."""
    idle = job.state.final and job.wish is not Wish.CLEAN
    return None if idle else job.wake


def missing(job_id: str) -> NotFound:
    return NotFound(f"there is no job {job_id}", hint="`tpujob list --all` shows what there is")


def moved_on(job_id: str, version: int, expected: int) -> Conflict:
    return Conflict(
        f"job {job_id} is at version {version} by now, not {expected}",
        hint="somebody else changed it: look again",
    )


def fenced(job_id: str, owner: str) -> Fenced:
    return Fenced(f"job {job_id} is led by {owner} by now", hint="another backend acts for it")
