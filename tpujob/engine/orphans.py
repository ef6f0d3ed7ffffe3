"""The sweep: deletes slices with our label that no live job claims, and the keys of slices that are gone.

The loop, `tpujob sweep` and `tpujob leaks` share this rule. A zone that could not be listed is unknown, not empty.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from tpujob.domain import invariants
from tpujob.domain.decide import SUSPENDED_WITHIN
from tpujob.domain.events import SliceReceived
from tpujob.domain.hardware import accelerators
from tpujob.domain.model import Job, Slice
from tpujob.engine.counters import Counters
from tpujob.errors import NotFound, Refused, StoreError, TpujobError, Transient
from tpujob.ports import Clock, Hosts, Owned, Providers, Slices, Store, side_by_side

log = logging.getLogger(__name__)

#: seconds that an unclaimed slice may be old before it is deleted: its job may just be being written
GRACE = 300.0
#: seconds to list all zones at once; to list one of them; for all that are listed one by one; to delete one slice
LISTING, ONE_ZONE, ONE_BY_ONE, DELETING = 30.0, 10.0, 60.0, 30.0


@dataclass(frozen=True, slots=True)
class Swept:
    """The result of one sweep, or of a dry run."""

    deleted: list[Owned] = field(default_factory=list[Owned])  #: asked to end
    kept: list[Owned] = field(default_factory=list[Owned])  #: younger than their grace
    failed: list[tuple[Owned, str]] = field(default_factory=list[tuple[Owned, str]])  #: and why
    #: neither deleted nor kept: the record of their job cannot be read, or just could not
    unclear: list[Owned] = field(default_factory=list[Owned])
    keys: list[str] = field(default_factory=list[str])  #: slices that are gone, whose keys go
    #: why, by zone, provider, or `keys`
    unlisted: dict[str, str] = field(default_factory=dict[str, str])
    live: list[Job] = field(default_factory=list[Job])  #: the active jobs, as they were read


def zones(store: Store, of_site: Sequence[str] = ()) -> list[str]:
    """Return where our slices may be: the zones of the site (none: all zones), and every zone in which a slice was ever
    requested, also for jobs that are removed."""
    return sorted({*(of_site or accelerators.all_zones()), *store.zones()})


class Orphans:
    """Safe to use from several threads and backends at once: deleting is safe to repeat."""

    def __init__(
        self,
        store: Store,
        providers: Providers,
        hosts: Hosts,
        clock: Clock,
        *,
        zones: Callable[[], Sequence[str]],
        leaked: Callable[[Sequence[Owned], Sequence[Owned]], None] = lambda _, __: None,
        counters: Counters | None = None,
    ) -> None:
        """`leaked`: called with what is about to be deleted, and with what is unclear; never raises."""
        self.store, self.providers, self.hosts, self.clock = store, providers, hosts, clock
        self.zones, self.leaked = zones, leaked
        self._counters = counters or Counters()
        #: since when this process has seen the cloud suspend an orphan: no record says it, and one that starts later
        #: waits a little longer
        self._suspending: dict[str, float] = {}

    def sweep(self, *, dry_run: bool = False) -> Swept:
        """Delete orphans that are older than their grace. If every zone was listed, remove the keys of slices that are
        gone. What could not be listed or deleted is left for the next sweep. Raises Transient or Refused when no zone
        could be listed, StoreError; also when the store was emptied or replaced: it says nothing about what the slices
        are for."""
        self.store.identity()  # raises then
        swept = Swept()
        # keys and slices before the jobs: a job writes its record before it has either
        names = self._keys(swept)
        slices = self._listed(swept)
        now, jobs = self.clock.now(), self.store.list(live=True)
        swept.live.extend(jobs)
        lost, unused = unclaimed(slices, jobs), unused_keys(names, slices, jobs)
        unsure = self._unsure({o.name: o.job_id for o in lost} | {n: _job_of(n) for n in unused})
        swept.unclear.extend(o for o in lost if o.name in unsure)
        lost = [o for o in lost if o.name not in unsure]
        old = [orphan for orphan in lost if now - orphan.created_at > GRACE]
        swept.kept.extend(o for o in lost if now - o.created_at <= GRACE)
        if dry_run:
            swept.deleted.extend(old)
        else:
            self.leaked(old, [o for o in swept.unclear if now - o.created_at > GRACE])
            for orphan in old:
                self._delete(orphan, swept)
        for name in () if swept.unlisted else unused:
            if name not in unsure and (dry_run or self._forget(name)):
                swept.keys.append(name)
        return swept

    def release(self, name: str) -> Swept:
        """Delete one slice that no readable job claims, whatever its age, at a person's request. Raise NotFound if
        there is none, and the errors of `sweep`."""
        self.store.identity()
        swept = Swept()
        found = [owned for owned in self._listed(swept) if owned.name == name]
        if not unclaimed(found, self.store.list(live=True)):
            hint = (
                "`tpujob delete JOB` releases the slice of a job; `tpujob leaks` shows the others."
            )
            raise NotFound(f"there is no slice {name} without a job", hint=hint)
        self._delete(found[0], swept)
        return swept

    def _unsure(self, jobs: Mapping[str, str]) -> set[str]:
        """Return those of these slices, each with its job, that a damaged record may claim. As reads are billed, all
        records are read only for a slice that was handed on, or may have been by a job that was removed."""
        unsure: set[str] = set()
        handed_on: set[str] = set()
        for name, job_id in jobs.items():
            if not job_id.isdecimal():
                continue
            try:
                job = self.store.get(job_id)
            except NotFound:
                handed_on.add(name)
            except StoreError as error:
                log.warning("sweep: %s", error.message)
                unsure.add(name)
            else:
                if not invariants.unclaimed([name], [job]):  # it could not be read before
                    unsure.add(name)
                elif any(slice.handed_to for slice in job.slices):
                    handed_on.add(name)
        return unsure | self._received(handed_on) if handed_on else unsure

    def _received(self, names: set[str]) -> set[str]:
        """Return those of these slices that jobs with a damaged record have received, or may have, and those of jobs
        whose record was damaged when the sweep read all jobs."""
        received: set[str] = set()
        for job_id, _ in self.store.damaged():
            try:
                payloads = [event.payload for event in self.store.events(job_id)]
            except StoreError as error:
                log.warning("sweep: %s", error.message)
                return names
            received |= {p.slice.name for p in payloads if isinstance(p, SliceReceived)}
        # after the damaged ones: a record that is repaired in between is in both
        claimed = names - set(invariants.unclaimed(names, self.store.list(live=True)))
        return claimed | (names & received)

    def _keys(self, swept: Swept) -> list[str]:
        try:
            return self.hosts.kept()
        except (Transient, Refused) as error:
            _unlisted(swept, "keys", error)
            return []

    def _listed(self, swept: Swept) -> list[Owned]:
        """Return our slices in all zones; a zone that a provider cannot list is left out and noted. Raises the error of
        a provider when none could list any."""
        zones = sorted(set(self.zones()))
        providers = self.providers.slices
        listings = side_by_side(
            {name: partial(self._listed_by, slices, zones) for name, slices in providers.items()}
        )
        errors = [listing for listing in listings.values() if isinstance(listing, TpujobError)]
        if len(errors) == len(listings):
            raise errors[0]
        owned = list[Owned]()
        for name, listing in listings.items():
            if isinstance(listing, TpujobError):
                _unlisted(swept, name, listing)
                continue
            owned += listing[0]
            for zone, error in listing[1].items():
                _unlisted(swept, zone, error)
        return owned

    def _listed_by(
        self, slices: Slices, zones: Sequence[str]
    ) -> tuple[list[Owned], dict[str, TpujobError]]:
        """Return the slices of one provider, and the zones that it cannot list. Raises Transient or Refused when it can
        list none."""
        try:
            return slices.list_all(zones, timeout=LISTING), {}
        except (Transient, Refused) as error:
            if len(zones) == 1:
                raise
            first = error
        until, owned, dead = self.clock.now() + ONE_BY_ONE, list[Owned](), dict[str, TpujobError]()
        for zone in zones:
            try:
                if self.clock.now() > until:
                    raise Transient("no time was left to list it")
                owned += slices.list_all([zone], timeout=ONE_ZONE)
            except (Transient, Refused) as error:
                dead[zone] = error
        if len(dead) == len(zones):
            raise first
        return owned, dead

    def _delete(self, orphan: Owned, swept: Swept) -> None:
        log.warning("sweep: no live job claims %s in %s: deleting it", orphan.name, orphan.zone)
        try:
            overdue = self._overdue(orphan)
            self.providers.delete(as_slice(orphan), timeout=DELETING, even_suspending=overdue)
            self.hosts.forget(as_slice(orphan))
        except (Transient, Refused) as error:
            log.warning("sweep: %s: %s", orphan.name, error)
            swept.failed.append((orphan, error.message))
            self._counters.leaks.labels("failed").inc()
        else:
            swept.deleted.append(orphan)
            self._counters.leaks.labels("deleted").inc()

    def _overdue(self, orphan: Owned) -> bool:
        """Return whether the cloud has been suspending it for longer than the sweep waits."""
        if not orphan.suspending:
            self._suspending.pop(orphan.name, None)
            return False
        now = self.clock.now()
        return now - self._suspending.setdefault(orphan.name, now) >= SUSPENDED_WITHIN

    def _forget(self, name: str) -> bool:
        try:
            self.hosts.forget(as_slice(Owned(name, "", "", 0.0, "")))
        except (Transient, Refused) as error:
            log.warning("sweep: the keys of %s: %s", name, error)
            return False
        return True


def unclaimed(slices: Sequence[Owned], jobs: Sequence[Job]) -> list[Owned]:
    """Return the slices that none of these live jobs expects to exist."""
    lost = set(invariants.unclaimed((o.name for o in slices), jobs))
    return [o for o in slices if o.name in lost]


def unused_keys(names: Sequence[str], slices: Sequence[Owned], jobs: Sequence[Job]) -> list[str]:
    """Return the names of slices with keys that are not in the cloud and that no live job holds."""
    existing = {owned.name for owned in slices}
    free = set(invariants.unclaimed(names, jobs)) - existing
    return [name for name in names if name in free]


def _job_of(name: str) -> str:
    """Return the job's id in the name of a slice (`tj-000042-1`); empty: it has none."""
    return name.partition("-")[2].partition("-")[0]


def as_slice(orphan: Owned) -> Slice:
    """Return a record with what the deletion of a slice needs: a name and a zone."""
    return Slice(
        name=orphan.name,
        k=0,
        type="",
        zone=orphan.zone,
        pricing=orphan.pricing,
        system_image="",
        usd_per_hour=None,
        requested_at=orphan.created_at,
        tpu_slices=orphan.tpu_slices,
        provider=orphan.provider,
    )


def _unlisted(swept: Swept, subject: str, error: TpujobError) -> None:
    log.warning("sweep: %s could not be listed: %s", subject, error)
    swept.unlisted[subject] = error.message
