"""Methods for operators: suspected machines, slices without an owner, inconsistent records.

Writes only a person's verdict on a machine. `engine/orphans.py` decides what the sweep deletes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Literal

from tpujob.api import BrokenView, LeakView, SuspectView, SweptView
from tpujob.domain import invariants
from tpujob.domain.hardware.prices import LIST, PriceList
from tpujob.domain.invariants import Broken
from tpujob.domain.model import Job, Suspect
from tpujob.engine import Orphans
from tpujob.errors import BadRequest, NotFound, Refused, StoreError, Transient
from tpujob.ports import Clock, Owned, Reputation, Store
from tpujob.service.views import leak_view, suspect_view

#: characters of a machine's name; Google Cloud's are hashes of 32
MAX_MACHINE_NAME = 128


class Admin:
    """The part of `api.JobsApi` for operators: suspected machines, unclaimed slices, damaged records."""

    def __init__(
        self,
        store: Store,
        orphans: Orphans,
        reputation: Reputation,
        clock: Clock,
        prices: PriceList = LIST,
    ) -> None:
        self._prices = prices
        self._store, self._orphans = store, orphans
        self._reputation, self._clock = reputation, clock

    # Machines --------------------------------------------------------------------------------------------------------

    def hosts(self) -> list[SuspectView]:
        now = self._clock.now()
        suspects = [suspect_view(s, now=now) for s in self._reputation.suspects()]
        return sorted(suspects, key=lambda s: (not s["refused"], -s["score"], s["physical"]))

    def pin_host(self, physical: str, verdict: str) -> SuspectView:
        if not physical.strip() or len(physical) > MAX_MACHINE_NAME or not physical.isprintable():
            raise BadRequest(f"{physical[:MAX_MACHINE_NAME]!r} is not the name of a machine")
        now = self._clock.now()
        suspect = self._suspect(physical) or Suspect(physical, "", now)
        pinned = replace(suspect, pinned=_word(verdict))
        if pinned.pinned or pinned.accusations:
            self._reputation.put(pinned)
        else:
            self._reputation.remove(physical)  # nothing was ever held against it
        return suspect_view(pinned, now=now)

    def clear_host(self, physical: str) -> None:
        if self._suspect(physical) is None:
            raise NotFound(
                f"machine {physical!r} is neither suspected nor pinned",
                hint="`tpujob hosts` shows every machine that is suspected or pinned.",
            )
        self._reputation.remove(physical)

    def _suspect(self, physical: str) -> Suspect | None:
        return next((s for s in self._reputation.suspects() if s.physical == physical), None)

    # Slices ----------------------------------------------------------------------------------------------------------

    def leaks(self) -> SweptView:
        return self.sweep(dry_run=True)

    def sweep(self, *, dry_run: bool = False, slice: str = "") -> SweptView:
        if slice and dry_run:
            raise BadRequest("a sweep of one slice has no dry run", hint="`tpujob leaks` shows it.")
        swept = self._orphans.release(slice) if slice else self._orphans.sweep(dry_run=dry_run)
        now = self._clock.now()
        return SweptView(
            deleted=self._views(swept.deleted, now),
            kept=self._views(swept.kept, now),
            failed=[
                LeakView({**leak_view(owned, now=now, prices=self._prices), "detail": why})
                for owned, why in swept.failed
            ],
            keys=swept.keys,
            unclear=self._views(swept.unclear, now),
            unlisted=swept.unlisted,
        )

    def _views(self, leaks: Sequence[Owned], now: float) -> list[LeakView]:
        """Return the views of leaks, oldest first."""
        by_age = sorted(leaks, key=lambda o: (o.created_at, o.name))
        return [leak_view(o, now=now, prices=self._prices) for o in by_age]

    # Records ---------------------------------------------------------------------------------------------------------

    def fsck(self) -> list[BrokenView]:
        broken = [Broken("I6", job_id, reason) for job_id, reason in self._store.damaged()]
        jobs = self._store.list()[::-1]
        for job in jobs:
            broken += invariants.of_job(job)
            broken += self._history(job)
        broken += invariants.of_groups(jobs)
        broken += self._billed()
        return [BrokenView(**asdict(b)) for b in broken]

    def _history(self, job: Job) -> list[Broken]:
        try:
            events = self._store.events(job.id)
        except NotFound:  # removed meanwhile
            return []
        except StoreError as error:
            return [Broken("I6", job.id, f"its events cannot be read: {error.message}")]
        of_this_version = [e for e in events if e.seq <= job.version]
        try:
            return invariants.of_history(invariants.first_record(job), of_this_version, job)
        except (LookupError, TypeError, ValueError, AssertionError) as error:
            reason = f"its events do not make a record: {type(error).__name__} {error}"
            return [Broken("I6", job.id, reason)]

    def _billed(self) -> Iterator[Broken]:
        try:
            swept = self._orphans.sweep(dry_run=True)
        except (Transient, Refused) as error:
            yield Broken("I2", "", f"the slices in the cloud could not be listed: {error.message}")
            return
        for owned in swept.unclear:
            text = f"{owned.name} in {owned.zone}: its job's record cannot be read ({owned.detail})"
            yield Broken("I2", owned.job_id, text)
        for owned in (*swept.deleted, *swept.kept):
            text = f"{owned.name} in {owned.zone} belongs to no job ({owned.detail})"
            yield Broken("I2", owned.job_id, text)
        for subject, why in swept.unlisted.items():
            yield Broken("I2", "", f"{subject} could not be listed: {why}")


def _word(verdict: str) -> Literal["", "good", "bad"]:
    if verdict == "good" or verdict == "bad" or verdict == "":
        return verdict
    raise BadRequest(f"a machine is pinned as `good`, `bad` or not at all, never as {verdict!r}")
