"""QUEUED, before a slice is requested: copies of the job's data to the region of the offer. Pure.

No slice that is billed waits for a copy. The storage makes a copy in steps, one in each tick. The progress is stored,
so that another backend can continue the copy.
"""

from dataclasses import replace

from tpujob.domain.actions import Copied, Decision, Denied, MakeCopy, Result
from tpujob.domain.capacity import datasets
from tpujob.domain.capacity.offers import Offer
from tpujob.domain.copies import Copy, CopyProgress
from tpujob.domain.events import CopyMoved, CopyRefused, CopyStarted, Event, EventKind
from tpujob.domain.hardware.prices import PriceList
from tpujob.domain.lifecycle import event
from tpujob.domain.model import Job
from tpujob.domain.text import amount_of_bytes, dollars, many

_E = EventKind


def decide(job: Job, offer: Offer, prices: PriceList, now: float) -> Decision | None:
    """Return the next step of the first copy that is not complete; None: all are."""
    wish = next(datasets.missing(job, offer.zone, prices), None)
    if wish is None:
        return None
    is_new = datasets.found(job, wish.id) is None
    begun = event(job, _E.COPY_STARTED, now, _begun(wish), wish) if is_new else None
    return Decision(begun, MakeCopy(wish.id), wake_in=1)


def follow_up(job: Job, id: str, result: Result, now: float) -> Event | None:
    """Return the event for the result of one step; None: there is no progress, and the step is repeated."""
    copy = datasets.found(job, id)
    if copy is None:
        return None
    match result:
        case Copied(progress) if progress.whole:
            return event(
                job, _E.COPY_FINISHED, now, _finished(copy, progress), CopyMoved(id, progress)
            )
        case Copied(progress) if progress != copy.progress:
            return event(
                job, _E.COPY_ADVANCED, now, advanced(copy, progress), CopyMoved(id, progress)
            )
        case Denied(cause, error):
            text = f"{copy.name} cannot be copied to {copy.region}: {error}"
            return event(job, _E.COPY_REFUSED, now, text, CopyRefused(id, cause, error))
        case _:
            return None


def advanced(copy: Copy, progress: CopyProgress) -> str:
    """Return the progress of a copy in one line."""
    done = amount_of_bytes(progress.there)
    if progress.total_bytes is None:
        return f"{done} of {copy.name} are in {copy.region}"
    whole = amount_of_bytes(progress.total_bytes)
    return f"{done} of {whole} of {copy.name} are in {copy.region}"


def _begun(wish: CopyStarted) -> str:
    price = (
        f"{dollars(wish.micros_per_gib)} a GiB" if wish.micros_per_gib else "no charge for traffic"
    )
    return f"{wish.name} is being copied to {wish.region} before a slice is requested there, at {price}"


def _finished(copy: Copy, progress: CopyProgress) -> str:
    arrived = f"{copy.name} is in {copy.region}"
    if not progress.objects:
        return f"{arrived} already: {many(progress.same, 'object')}, {amount_of_bytes(progress.same_bytes)}"
    cost = dollars(replace(copy, progress=progress).micros)
    return f"{arrived}: {many(progress.objects, 'object')} copied, {amount_of_bytes(progress.bytes)}, for {cost}"
