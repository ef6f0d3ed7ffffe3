"""What an operator asks of the whole: machines under suspicion, slices that nobody owns, records that do not add up.

Reads and tells; only a person's word on a machine is written here. What is deleted is the reconciler's affair.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

from tpujob.api import BrokenView, LeakView, SuspectView, SweptView
from tpujob.domain import invariants
from tpujob.domain.hardware import accelerators
from tpujob.domain.invariants import Broken
from tpujob.domain.model import Job, Suspect
from tpujob.engine import GRACE, as_slice, unclaimed, unused_keys
from tpujob.errors import BadRequest, NotFound, Refused, StoreError, Transient
from tpujob.ports import Clock, Hosts, Owned, Reputation, Slices, Store
from tpujob.service.views import leak_view, suspect_view

#: seconds to list what is ours in every zone
LISTING = 45.0
#: seconds to ask for the end of one slice
DELETING = 45.0
#: characters of a machine's name; Google Cloud's are hashes of 32
LONGEST = 128


def zones(store: Store, of_site: Sequence[str] = ()) -> list[str]:
    """Where a slice of ours may be: wherever one was ever asked for, by jobs that are removed by now too, and
    wherever a job without zones of its own could ask: in those of the site, or in every one."""
    everywhere = {zone for name in accelerators.GENERATIONS for zone in accelerators.zones(name)}
    return sorted({*(of_site or everywhere), *store.zones()})


class Upkeep:
    """The part of `jobsapi.JobsApi` that is about no single job."""

    def __init__(
        self,
        store: Store,
        slices: Slices,
        clock: Clock,
        *,
        reputation: Reputation,
        site: Sequence[str] = (),
        hosts: Hosts | None = None,
    ) -> None:
        """`site`: the zones of the context; empty: every one. `hosts`: whose keys are swept; None: no one's."""
        self._store, self._slices, self._clock = store, slices, clock
        self._reputation, self._site, self._hosts = reputation, site, hosts

    # Machines --------------------------------------------------------------------------------------------------------

    def hosts(self) -> list[SuspectView]:
        now = self._clock.now()
        found = [suspect_view(s, now=now) for s in self._reputation.suspects()]
        return sorted(found, key=lambda s: (not s["refused"], -s["score"], s["physical"]))

    def pin_host(self, physical: str, verdict: str) -> SuspectView:
        if not physical.strip() or len(physical) > LONGEST or not physical.isprintable():
            raise BadRequest(f"{physical[:LONGEST]!r} is no name of a machine")
        now = self._clock.now()
        known = self._suspect(physical) or Suspect(physical, "", 0.0, now)
        pinned = replace(known, pinned=_word(verdict))
        if pinned.pinned or pinned.reasons:
            self._reputation.put(pinned)
        else:
            self._reputation.remove(physical)  # nothing was ever held against it
        return suspect_view(pinned, now=now)

    def clear_host(self, physical: str) -> None:
        if self._suspect(physical) is None:
            raise NotFound(
                f"nothing is held against a machine {physical!r}",
                hint="`tpujob hosts` shows every machine that is suspected or pinned.",
            )
        self._reputation.remove(physical)

    def _suspect(self, physical: str) -> Suspect | None:
        return next((s for s in self._reputation.suspects() if s.physical == physical), None)

    # Slices ----------------------------------------------------------------------------------------------------------

    def leaks(self) -> list[LeakView]:
        now = self._clock.now()
        found = sorted(self._unclaimed(), key=lambda owned: (owned.created_at, owned.name))
        return [leak_view(owned, now=now) for owned in found]

    def sweep(self, *, dry_run: bool = False) -> SweptView:
        kept = self._hosts.kept() if self._hosts else []  # before the jobs are read
        found = self._listed()
        now = self._clock.now()
        swept = SweptView(
            deleted=[], kept=[], failed=[], keys=unused_keys(kept, found, self._store)
        )
        for orphan in unclaimed(found, self._store):
            view = leak_view(orphan, now=now)
            young = now - orphan.created_at <= GRACE
            trouble = "" if young or dry_run else self._trouble_deleting(orphan)
            if trouble:
                swept["failed"].append(LeakView({**view, "detail": trouble}))
            else:
                swept["kept" if young else "deleted"].append(view)
        if self._hosts and not dry_run:
            for name in swept["keys"]:
                self._hosts.forget(as_slice(Owned(name, "", "", now)))
        return swept

    def _trouble_deleting(self, orphan: Owned) -> str:
        """Ask for its end; why that could not be done, empty: it was."""
        try:
            self._slices.delete(as_slice(orphan), timeout=DELETING)
            if self._hosts:
                self._hosts.forget(as_slice(orphan))
        except (Transient, Refused) as error:
            return error.message
        return ""

    def _unclaimed(self) -> list[Owned]:
        return unclaimed(self._listed(), self._store)

    def _listed(self) -> list[Owned]:
        return self._slices.list_all(zones(self._store, self._site), timeout=LISTING)

    # Records ---------------------------------------------------------------------------------------------------------

    def fsck(self) -> list[BrokenView]:
        found = [Broken("I6", job_id, reason) for job_id, reason in self._store.damaged()]
        for job in reversed(self._store.list()):
            found += invariants.of_job(job)
            found += self._history(job)
        found += self._billed()
        return [BrokenView(rule=b.rule, job=b.job, text=b.text) for b in found]

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
            reason = f"its events make no record: {type(error).__name__} {error}"
            return [Broken("I6", job.id, reason)]

    def _billed(self) -> Iterator[Broken]:
        try:
            for owned in self._unclaimed():
                text = f"{owned.name} in {owned.zone} is owned by nobody ({owned.detail})"
                yield Broken("I2", owned.job_id, text)
        except (Transient, Refused) as error:
            yield Broken("I2", "", f"the slices in the cloud could not be listed: {error.message}")


def _word(verdict: str) -> Literal["", "good", "bad"]:
    if verdict == "good" or verdict == "bad" or verdict == "":
        return verdict
    raise BadRequest(f"a machine is pinned as `good`, `bad` or not at all, never as {verdict!r}")
