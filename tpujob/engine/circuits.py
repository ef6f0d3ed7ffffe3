"""The circuits of all offers, in the memory of one backend: what was refused lately, for every job that wants the same.

The rules are in `domain/placement/circuits.py`. A backend that was just started recalls them from the records.
"""

import threading
from collections.abc import Mapping

from tpujob.domain.events import Event, EventKind
from tpujob.domain.model import Job
from tpujob.domain.observations import Circuit
from tpujob.domain.placement import circuits
from tpujob.errors import Conflict
from tpujob.ports import Store

#: the events that tell whether an offer can be had
_OFFERS = frozenset({EventKind.SLICE_REQUESTED, EventKind.SLICE_READY, EventKind.RELEASE_STARTED})


class CircuitBreaker:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._circuits: Mapping[str, Circuit] | None = None  #: None: not yet recalled
        self._lock = threading.Lock()

    def circuits(self) -> Mapping[str, Circuit]:
        """The offers that were refused lately, for all jobs; a backend that was just started recalls them."""
        if self._circuits is None:
            recalled = circuits.recalled(self._store.list(live=True))
            with self._lock:
                self._circuits = recalled if self._circuits is None else self._circuits
        return self._circuits

    def note(self, before: Job, after: Job, happened: Event) -> None:
        """Learn from an event that is about to be written. Raises Conflict for a second request: of several jobs that
        saw a circuit half open at the same time, one asks, and the others wait for the answer."""
        now, slice = happened.at, after.slice or before.slice
        if slice is None or happened.kind not in _OFFERS:
            return
        self.circuits()  # recalls them, outside of the lock
        with self._lock:
            known = self._circuits or {}
            if happened.kind is EventKind.SLICE_REQUESTED:
                if circuits.retry_at(slice, known) > now:
                    raise Conflict(f"another job asks for {slice.type} in {slice.zone} just now")
                self._circuits = circuits.asked(known, slice, now)
            elif happened.kind is EventKind.SLICE_READY:
                self._circuits = circuits.granted(known, slice)
            else:
                self._circuits = circuits.refused(known, slice, now)
