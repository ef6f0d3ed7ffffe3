"""The planned end of a slice, as of flex-start and calendar: when the cloud takes it back, as known once it is ready.
Pure.

The program is stopped before that, so that it can save. The end counts as no preemption, and another slice follows only
if `recovery.planned_ends` allows one.
"""

from collections.abc import Sequence
from dataclasses import replace

from tpujob.domain.decide.condemned import STOP_PATIENCE
from tpujob.domain.failures import preemption_notice
from tpujob.domain.hardware.pricing import find_pricing
from tpujob.domain.model import Cause, End, Job, Slice
from tpujob.domain.money.budget import LOOK
from tpujob.domain.observations import HostReport, Present

#: seconds before its planned end from which on the loss of a slice is that end: clocks differ
EARLY = 60.0
#: seconds without a sign of life before a loss which nobody saw: then it came before the planned end
SILENT = 600.0

#: causes that the planned end may look like, to those who did not see it
_LOSSES = (Cause.PREEMPTED, Cause.LOST_CONTACT)


def requested_for(job: Job, pricing: str) -> int | None:
    """Return the seconds for which a slice with that pricing is requested; None: for any time."""
    return job.spec.tpu.run_for if find_pricing(pricing).takes_run_for else None


def end_of(slice: Slice, look: Present, ready_at: float) -> float | None:
    """Return when the cloud takes back a slice that is ready; None: at no time that is known. Without a time of the
    cloud it counts from the creation of the node, which may be too early by the time until it was ready."""
    if look.ends_at is not None or slice.run_for is None:
        return look.ends_at
    return min(look.created_at or ready_at, ready_at) + slice.run_for


def stops_at(job: Job) -> float | None:
    """Return when the program is stopped because its slice ends: early enough for one late tick and for the stop, which
    takes up to the grace, or as long as it took at earlier planned ends. None: no end is planned."""
    slice, grace = job.slice, job.spec.stop_grace
    if slice is None or slice.ends_at is None:
        return None
    return slice.ends_at - LOOK - min(max(grace, *_stops(job)), grace + STOP_PATIENCE)


def _stops(job: Job) -> list[float]:
    """Return for how long earlier programs were being stopped at a planned end, until their slices were released."""
    released = {s.name: s.delete_asked_at for s in job.slices}
    ends = [
        (a.ended_at, released.get(a.slice)) for a in job.attempts if a.cause is Cause.PLANNED_END
    ]
    return [0.0, *(gone - ended for ended, gone in ends if ended is not None and gone is not None)]


def is_due(job: Job, now: float) -> bool:
    at = stops_at(job)
    return at is not None and now >= at


def due_in(job: Job, now: float) -> float | None:
    """Return the seconds until the program is to be stopped; None: no end is planned, or it is being stopped."""
    at = stops_at(job)
    return at - now if at is not None and at > now else None


def as_planned(job: Job, end: End, reports: Sequence[HostReport], now: float) -> End:
    """Return the end of the newest attempt, as PLANNED_END if its slice was lost at its planned end."""
    slice = job.slice
    if end.cause not in _LOSSES or slice is None or not _has_ended(slice, now):
        return end
    saved = preemption_notice.saved_words(reports)
    text = f"{slice.name} has reached its planned end" + (f"; {saved}" if saved else "")
    return replace(end, cause=Cause.PLANNED_END, host=None, message=text, detail="")


def _has_ended(slice: Slice, now: float) -> bool:
    """Return whether a slice that is lost was lost at its planned end, and was alive shortly before that."""
    lost_at = slice.preempted_at or slice.missing_since or now
    if slice.ends_at is None or lost_at < slice.ends_at - EARLY:
        return False
    return slice.certain_until is None or slice.certain_until >= slice.ends_at - SILENT
