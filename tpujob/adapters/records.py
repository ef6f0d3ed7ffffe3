"""What all stores have in common: how records are decoded and which errors they raise."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Generic, TypeVar

from tpujob.domain.codec import to_text
from tpujob.domain.events import Event
from tpujob.domain.model import DesiredState, Job
from tpujob.errors import Conflict, Fenced, NotFound, StoreError

log = logging.getLogger(__name__)
R = TypeVar("R")

#: how many commits back a repeat is recognised, for each job; an older one fails the version check
REMEMBERED = 16
#: decoded records kept of jobs that have ended; one of 64 hosts takes about 30 kB
CACHED = 4096
#: records that a walk over all of them reads at once
WALKED = 200


def same_identity(before: str, now: str) -> str:
    """Return the identity of a store. Raises StoreError when another one was read before; empty: none was."""
    if before not in ("", now):
        raise StoreError(
            f"the store was emptied or replaced: its id was {before}, and is {now or 'gone'}",
            hint="no job is created and no slice deleted; restore a backup of the store, then start the backend again",
        )
    return now


def event_text(event: Event, seq: int) -> str:
    return to_text(replace(event, seq=seq))


class Decoded:
    """The newest version of each job that was read: of all that go on, as a tick reads its job several times, and of
    some that have ended. For one thread at a time, or for a caller who can bear to read a job again."""

    def __init__(self) -> None:
        self._live: dict[str, Job] = {}
        self._ended: dict[str, Job] = {}

    def get(self, job_id: str) -> Job | None:
        return self._live.get(job_id) or self._ended.get(job_id)

    def keep(self, job: Job) -> None:
        if not job.state.final:
            self._live[job.id] = job
            return
        if len(self._ended) >= CACHED:
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
    """Decodes the rows of a store."""

    def __init__(self, decode: Callable[[R], Job], id_of: Callable[[R], str]) -> None:
        self._decode, self._id_of = decode, id_of
        self._named: set[tuple[str, str]] = set()

    def sift(
        self, rows: Iterable[R], decode: Callable[[R], Job] | None = None
    ) -> tuple[list[Job], list[tuple[str, str]]]:
        """The jobs of these rows, and the ids of those that cannot be decoded, each with the reason. `decode`: in
        another way than usual."""
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
        """The jobs that can be decoded; the log names each of the others once."""
        jobs, damaged = self.sift(rows, decode)
        for one in damaged:
            if one not in self._named:
                self._named.add(one)
                log.error("%s; it is left out of every list", one[1])
        return jobs


def waking(job: Job) -> float | None:
    """Return when the job is due; None: nothing is left to do."""
    idle = job.state.final and job.wish is not DesiredState.CLEAN
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
