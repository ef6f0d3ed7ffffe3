"""What of ours no job claims, in the cloud and among the keys of this machine: the sweep deletes it, `tpujob leaks`
shows it. One rule for all of them, so that what is shown is what goes."""

from __future__ import annotations

from collections.abc import Sequence

from tpujob.domain import invariants
from tpujob.domain.model import Slice
from tpujob.ports import Owned, Store


def unclaimed(found: Sequence[Owned], store: Store) -> list[Owned]:
    """Those of `found` that no live job expects to be there. List them before this is called, so that one that is just
    being asked for is never taken for one of nobody. What a job claims whose record cannot be read is not known:
    nothing of it is among them."""
    lost = set(invariants.unclaimed((o.name for o in found), store.list(live=True)))
    unreadable = {job_id for job_id, _ in store.damaged()}
    return [o for o in found if o.name in lost and o.job_id not in unreadable]


def unused_keys(kept: Sequence[str], found: Sequence[Owned], store: Store) -> list[str]:
    """Those of `kept`, names of slices that there are keys for, whose slice is gone: it is not among `found`, and no
    live job holds it. List both before this is called. Nothing of a job whose record cannot be read is among them."""
    there = {owned.name for owned in found}
    held = {s.name for job in store.list(live=True) for s in job.slices if s.gone_at is None}
    unreadable = tuple(f"tj-{job_id}-" for job_id, _ in store.damaged())
    gone = [name for name in kept if name not in there | held]
    return [name for name in gone if not name.startswith(unreadable)]


def as_slice(orphan: Owned) -> Slice:
    """As much of a slice as its deletion needs: a name and a zone."""
    return Slice(
        name=orphan.name,
        k=0,
        type="",
        zone=orphan.zone,
        pricing="spot",
        runtime_version="",
        usd_per_hour=None,
        requested_at=orphan.created_at,
        tpu_slices=orphan.tpu_slices,
    )
