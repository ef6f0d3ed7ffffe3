"""What all stores have in common: how records are decoded and which errors they raise."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Generic, TypeVar

from tpujob.domain.codec import to_text
from tpujob.domain.events import Event
from tpujob.domain.model import Job, Wish
from tpujob.errors import Conflict, Fenced, NotFound, StoreError

log = logging.getLogger(__name__)
R = TypeVar("R")

#: how many commits back a repeat is recognised, for each job; an older one fails the version check
REMEMBERED = 16
#: decoded records kept; a job of 64 hosts takes about 30 kB
CACHED = 4096


def event_text(event: Event, seq: int) -> str:
    return to_text(replace(event, seq=seq))


class Reader(Generic[R]):
    """Decodes the rows of a store."""

    def __init__(self, decode: Callable[[R], Job], id_of: Callable[[R], str]) -> None:
        self._decode, self._id_of = decode, id_of
        self._named: set[tuple[str, str]] = set()

    def sift(self, rows: Iterable[R]) -> tuple[list[Job], list[tuple[str, str]]]:
        """The jobs of these rows, and the ids of those that cannot be decoded, each with the reason."""
        jobs: list[Job] = []
        damaged: list[tuple[str, str]] = []
        for row in rows:
            try:
                jobs.append(self._decode(row))
            except StoreError as error:
                damaged.append((self._id_of(row), error.message))
        return jobs, damaged

    def readable(self, rows: Iterable[R]) -> list[Job]:
        """The jobs that can be decoded; the log names each of the others once."""
        jobs, damaged = self.sift(rows)
        for one in damaged:
            if one not in self._named:
                self._named.add(one)
                log.error("%s; it is left out of every list", one[1])
        return jobs


def waking(job: Job) -> float | None:
    """When the job is due; None: nothing is left to do."""
    idle = job.state.final and job.wish is not Wish.CLEAN
    return None if idle else job.wake


def missing(job_id: str) -> NotFound:
    return NotFound(f"there is no job {job_id}", hint="`tpujob list --all` shows what there is")


def moved_on(job_id: str, version: int, expected: int) -> Conflict:
    return Conflict(
        f"job {job_id} is at version {version} now, not {expected}: somebody else changed it",
        hint="look at it again, then repeat the command",
    )


def fenced(job_id: str, owner: str) -> Fenced:
    return Fenced(f"job {job_id} is led by {owner} now", hint="another backend acts for it")
