"""Cache of a provider's lists of slices: one list serves the polls of all jobs for some seconds.

A list may lag behind and be incomplete. Only slices that it shows, and that were not deleted just before, are taken
from it; all others are polled by name. Before a job ends, deletes or requests something, all its slices are polled by
name (`domain/decide/dispatch.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from tpujob.domain.model import Slice
from tpujob.domain.observations import Present, SliceSeen, Unknown
from tpujob.ports import Clock, Providers, SliceSurvey

#: seconds for which one list serves, for each call that it takes, so that lists take at most 50 calls a minute; and at
#: most, however many it takes
FOR_EACH_CALL, MAX_LIST_AGE = 1.2, 60.0
#: calls that a list takes which has no pages, or fails
CALLS = 2
#: seconds for one list, and for each slice on it more: a page of a hundred may take 0.3 s, and there are two lists
TIMEOUT, FOR_EACH_SLICE = 15.0, 0.006
#: seconds for which a list may lag behind a request or a deletion
LAG = 60.0
#: seconds for which a poll by name serves, unless something was asked of the slice since; a poll of a slice that is not
#: being deleted serves as long as a list
NAMED = 2.0
#: rate limit of polls by name of slices that lists do not show: one per GAP seconds, in bursts of AHEAD seconds
GAP, AHEAD = 0.5, 10.0
#: seconds for which a slice counts among those, after it was last looked for
MISSED = 60.0
#: seconds for which a zone is listed after the last look at a slice there
ZONE_TTL = 600.0


@dataclass(slots=True)
class _Listed:
    at: float  #: by this process's clock: when the list was begun
    survey: SliceSurvey

    @property
    def lasts(self) -> float:
        return min(MAX_LIST_AGE, FOR_EACH_CALL * max(CALLS, self.survey.calls))

    def lost_since(self, before: _Listed) -> set[str]:
        """Return the slices that this list shows as lost, and an earlier one did not."""
        lost, listed = (
            {n for n, s in one.survey.seen.items() if isinstance(s, Present) and s.state.lost}
            for one in (self, before)
        )
        return lost - listed


class SliceCache:
    """The slices of one provider. Threads may share it: one of them makes a list, while the others use the one
    before."""

    def __init__(self, providers: Providers, name: str, clock: Clock) -> None:
        self._providers, self._name = providers, name
        self._clock, self._lock = clock, threading.Lock()
        self._newest: _Listed | None = None
        self._making = False
        self._zones: dict[str, float] = {}  #: when a slice there was last looked at
        self._asked: dict[str, float] = {}  #: when the last look at a slice by name ended
        #: when a slice was last looked at by name, and what was seen
        self._named: dict[str, tuple[float, Present]] = {}
        self._unshown: dict[str, float] = {}  #: when a slice was last looked for in vain
        #: for which job a slice was last looked at, and when
        self._looked: dict[str, tuple[str, float]] = {}
        self._booked = 0.0  #: until when looks by name at what lists do not show are used up
        #: called with each job of which a slice is lost, as soon as a list shows it
        self.news: Callable[[str], None] = lambda _: None

    def look(
        self, slice: Slice, *, timeout: float, job_id: str = "", by_name: bool = False
    ) -> tuple[SliceSeen, bool]:
        """Return what is known of the slice, and whether that may be some seconds old. Never raises."""
        now = self._clock.now()
        self._zones[slice.zone] = now
        self._looked[slice.name] = job_id, now
        if not by_name and (named := self._just_named(slice, now)):
            return named
        if not by_name and now >= _settled(slice) and (listed := self._current(now)):
            shown = self._shown(slice, listed, now)
            if shown is not None:
                return shown, True
        seen = self._providers.look(slice, timeout=timeout)
        self._asked[slice.name] = self._clock.now()
        if isinstance(seen, Present):
            self._named[slice.name] = now, seen
        else:
            self._named.pop(slice.name, None)
        return seen, False

    def _just_named(self, slice: Slice, now: float) -> tuple[Present, bool] | None:
        """Return what the newest poll by name has shown, if it is young, no list is younger, and nothing was requested
        of the slice since; and whether it is some seconds old."""
        at, seen = self._named.get(slice.name, (0.0, None))
        newest, lasts = self._newest, NAMED
        if newest and slice.delete_asked_at is None:
            lasts = max(NAMED, newest.lasts)
        young = 0 <= now - at < lasts and at >= (newest.at if newest else 0.0)
        asked_at = max(slice.requested_at, slice.delete_asked_at or 0.0)  # by whichever backend
        return (seen, now - at >= NAMED) if seen and young and at > asked_at else None

    def _current(self, now: float) -> _Listed | None:
        """Return a list that is young enough, made now if needed; None: the first one in a long time is still being
        made."""
        with self._lock:
            newest = self._newest
            age = now - newest.at if newest else -1.0
            if newest and 0 <= age < newest.lasts:
                return newest
            if self._making:  # else all jobs would ask a cloud that is slow by name
                return newest if newest and 0 <= age < max(MAX_LIST_AGE, 2 * newest.lasts) else None
            self._making = True
        try:
            self._newest = made = self._made(now)
        finally:
            self._making = False
        for name in made.lost_since(newest) if newest else ():
            if name in self._looked:
                self.news(self._looked[name][0])
        return made

    def _made(self, now: float) -> _Listed:
        self._zones = {zone: at for zone, at in self._zones.copy().items() if now - at < ZONE_TTL}
        self._asked = {name: at for name, at in self._asked.copy().items() if now - at < ZONE_TTL}
        looked = self._looked.copy().items()
        self._looked = {name: look for name, look in looked if now - look[1] < ZONE_TTL}
        named = self._named.copy().items()
        self._named = {name: look for name, look in named if now - look[0] < MAX_LIST_AGE}
        self._unshown = {n: at for n, at in self._unshown.copy().items() if now - at < MISSED}
        timeout = TIMEOUT + FOR_EACH_SLICE * len(self._looked)
        survey = self._providers.slices[self._name].survey(sorted(self._zones), timeout=timeout)
        return _Listed(now, survey)

    def _shown(self, slice: Slice, listed: _Listed, now: float) -> SliceSeen | None:
        """Return what the list shows of the slice; None: it must be polled by name."""
        if listed.at < _settled(slice):
            return None
        asked_at, seen = self._asked.get(slice.name, 0.0), listed.survey.seen.get(slice.name)
        if isinstance(seen, Present):
            return seen if listed.at >= asked_at else None
        if now < slice.requested_at + LAG:
            return None  # lists need not show it yet
        self._unshown[slice.name] = now
        turn = GAP * len(self._unshown)  # all of them have theirs
        if now - asked_at >= turn and self._booked <= now + AHEAD:
            self._booked = max(self._booked, now) + GAP
            return None
        missed = listed.survey.missed.get(slice.zone)
        return seen or Unknown(missed or f"the list of all slices does not show {slice.name}")


def _settled(slice: Slice) -> float:
    """Return the time from which lists show the slice as it was after the last request about it."""
    return slice.requested_at if slice.delete_asked_at is None else slice.delete_asked_at + LAG
