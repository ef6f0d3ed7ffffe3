"""When a slice that is not to be seen is believed gone.

Pure. A look may miss what is there, so a single one proves nothing: a program may still run on it, and is billed. A
slice is gone when a second look agrees, or when its deletion was watched before it went out of sight.
"""

from __future__ import annotations

from collections.abc import Iterable

from tpujob.domain.actions import Decision, DeleteSlice
from tpujob.domain.decide.looks import look_at, soon
from tpujob.domain.lifecycle import event
from tpujob.domain.model import Event, EventKind, Job, Slice
from tpujob.domain.observations import Absent, Present, Seen, SliceState

#: an absent slice is believed gone only when a second look, this many seconds later, agrees
SECOND_LOOK = 60.0
#: and no more than this many seconds later: two looks that each missed it, hours apart, are no agreement
AGREES_FOR = 240.0
#: seconds until the next look at a slice that was missing
LOOK_AGAIN = 15.0

_E = EventKind


def missing_twice(one: Slice, now: float) -> bool:
    """Whether a look at `now` that misses it agrees with an earlier one."""
    return one.missing_since is not None and SECOND_LOOK <= now - one.missing_since <= AGREES_FOR


def look_again(job: Job, one: Slice, now: float) -> Decision:
    """A look missed it. The first one is stored; the next one may agree."""
    if one.missing_since is not None and now - one.missing_since <= AGREES_FOR:
        return Decision(wake_in=LOOK_AGAIN)
    text = f"{one.name} is not to be seen; looking again in a minute"
    return Decision(event(job, _E.SLICE_MISSING, now, text, slice=one.name), wake_in=LOOK_AGAIN)


def vanished(one: Slice) -> str:
    return f"{one.name} is gone, deleted outside tpujob or lost"


def note_found(job: Job, one: Slice, now: float) -> Event | None:
    """That it was missed, and is there; None: nobody had missed it."""
    if one.missing_since is None:
        return None
    return event(job, _E.SLICE_FOUND, now, f"{one.name} is there again", slice=one.name)


def fresh_first(slices: Iterable[Slice]) -> list[Slice]:
    """Those that nobody has asked to go come first: they are billed while another one's deletion takes its time."""
    return sorted(slices, key=lambda one: one.delete_asked_at is not None)


def leaving(job: Job, one: Slice, seen: Seen, now: float) -> Decision:
    """What a slice needs that has no use any more: its deletion, until it is gone."""
    look = look_at(one, seen)
    again = Decision(action=DeleteSlice(one.name), wake_in=soon(job, now))
    if one.delete_asked_at is None:
        return again
    match look:
        case Present(SliceState.DELETING):
            return Decision(wake_in=soon(job, now))
        case Present():  # the deletion was accepted, and has failed since
            return Decision(note_found(job, one, now), again.action, again.wake_in)
        case Absent() if _gone(one, seen, now):
            gone = event(job, _E.SLICE_GONE, now, f"{one.name} is gone", slice=one.name)
            return Decision(gone, wake_in=0)
        case Absent():
            return look_again(job, one, now)
        case _:
            return again


def _gone(one: Slice, seen: Seen, now: float) -> bool:
    """One that was never ready has no program, so one look is enough: the sweep sees to what that may have missed."""
    return one.ready_at is None or one.name in seen.leaving or missing_twice(one, now)
