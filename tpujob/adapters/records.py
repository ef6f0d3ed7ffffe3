"""The records of all stores: how they are decoded and cached, and the errors that stores raise."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Generic, TypeVar

from tpujob.domain.codec import job_from_text, to_text
from tpujob.domain.events import Event
from tpujob.domain.model import DesiredState, Job
from tpujob.errors import Conflict, Fenced, NotFound, StoreError

log = logging.getLogger(__name__)
R = TypeVar("R")

#: commits of each job whose repeat is recognised; a repeat of an older one fails the version check
REMEMBERED_OPS = 16
#: decoded records of ended jobs in the cache; that of a job on 64 hosts takes about 30 kB
CACHED_ENDED = 4096
#: records that `Store.walk` reads at once
WALK_PAGE = 200


def check_identity(before: str, now: str) -> str:
    """Return a store's identity `now`. Raises StoreError when it differs from the one read before; empty: none was."""
    if before not in ("", now):
        raise StoreError(
            f"the store was emptied or replaced: its id was {before}, and is {now or 'gone'}",
            hint="no job is created and no slice deleted; restore a backup of the store, then start the backend again",
        )
    return now


def event_text(event: Event, seq: int) -> str:
    return to_text(replace(event, seq=seq))


class Decoded:
    """A cache of decoded jobs: of all live ones, as a tick reads its job several times, and of some that have ended.
    Not thread-safe, but a race costs no more than that a job is decoded again."""

    def __init__(self) -> None:
        self._live: dict[str, Job] = {}
        self._ended: dict[str, Job] = {}

    def get(self, job_id: str) -> Job | None:
        return self._live.get(job_id) or self._ended.get(job_id)

    def keep(self, job: Job) -> None:
        if not job.state.final:
            self._live[job.id] = job
            return
        if len(self._ended) >= CACHED_ENDED:
            self._ended.clear()
        self._ended[job.id] = job
        self._live.pop(job.id, None)

    def drop(self, job_id: str) -> None:
        self._live.pop(job_id, None)
        self._ended.pop(job_id, None)

    def clear(self) -> None:
        self._live.clear()
        self._ended.clear()


class RecordReader(Generic[R]):
    """Decodes the rows of a store. A damaged row never hides the others."""

    def __init__(self, decode: Callable[[R], Job], id_of: Callable[[R], str]) -> None:
        self._decode, self._id_of = decode, id_of
        self._logged: set[tuple[str, str]] = set()

    def sift(
        self, rows: Iterable[R], decode: Callable[[R], Job] | None = None
    ) -> tuple[list[Job], list[tuple[str, str]]]:
        """Return the jobs of these rows, and id and reason of each row that cannot be decoded. `decode`: in place of
        the usual function."""
        decode = decode or self._decode
        jobs: list[Job] = []
        damaged: list[tuple[str, str]] = []
        for row in rows:
            try:
                jobs.append(decode(row))
            except StoreError as error:
                damaged.append((self._id_of(row), error.message))
        return jobs, damaged

    def readable(self, rows: Iterable[R], decode: Callable[[R], Job] | None = None) -> list[Job]:
        """Return the jobs of the rows that can be decoded. The log names each damaged row once."""
        jobs, damaged = self.sift(rows, decode)
        for row_id, reason in damaged:
            if (row_id, reason) not in self._logged:
                self._logged.add((row_id, reason))
                log.error("%s; it is left out of every list", reason)
        return jobs


def kept_job(row: tuple[str, int, str] | Job) -> Job:
    """Return what is kept of a removed job. It is in no cache, where it would be taken for the job."""
    return row if isinstance(row, Job) else job_from_text(row[0], row[2])


def wake_time(job: Job) -> float | None:
    """Return the time at which the job is due; None when nothing is left to do for it."""
    idle = job.state.final and job.desired is not DesiredState.CLEAN
    return None if idle else job.wake


def missing(job_id: str) -> NotFound:
    return NotFound(f"there is no job {job_id}", hint="`tpujob list --all` shows what there is")


def moved_on(job_id: str, version: int, expected: int) -> Conflict:
    return Conflict(
        f"job {job_id} is at version {version} now, not {expected}: another command changed it",
        hint="read it again, then repeat the command",
    )


def fenced(job_id: str, owner: str) -> Fenced:
    return Fenced(f"job {job_id} is led by {owner} now", hint="another backend acts for it")
