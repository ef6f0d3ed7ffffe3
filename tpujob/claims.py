"""What of ours in the cloud no job claims: the sweep deletes it, `tpujob leaks` shows it."""

from __future__ import annotations

from collections.abc import Sequence

from tpujob.domain import invariants
from tpujob.ports import Owned, Store


def unclaimed(found: Sequence[Owned], store: Store) -> list[Owned]:
    """Those of `found` that no live job expects to be there. List them before this is called, so that one that is just
    being asked for is never taken for one of nobody. What a job claims whose record cannot be read is not known:
    nothing of it is among them."""
    lost = set(invariants.unclaimed((o.name for o in found), store.list(live=True)))
    unreadable = {job_id for job_id, _ in store.damaged()}
    return [o for o in found if o.name in lost and o.job_id not in unreadable]
