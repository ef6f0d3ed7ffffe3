"""Orders of lists as their first pages showed them, so that the pages that follow show each job once.

Thread-safe. Bounded: the order that nobody has used for longest is forgotten first; its list goes on by value.
"""

from __future__ import annotations

import secrets
import threading
from array import array
from collections import OrderedDict
from collections.abc import Iterable

from tpujob.domain.listing import Wanted

#: numbers of jobs that are kept in all, of four bytes each; orders that are kept
NUMBERS, ORDERS = 2_000_000, 1000


class Snapshots:
    def __init__(self, numbers: int = NUMBERS) -> None:
        self._most, self._held = numbers, 0
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, tuple[Wanted, array[int]]] = OrderedDict()
        self._newest: dict[Wanted, str] = {}  #: an order that has not changed is kept once

    def keep(self, asked: Wanted, numbers: Iterable[int]) -> str:
        """Under which name `find` gives this order of that list back."""
        of, order = asked.same, array("I", numbers)
        with self._lock:
            name = self._newest.get(of, "")
            if name and self._kept[name][1] == order:
                self._kept.move_to_end(name)
                return name
            name = secrets.token_urlsafe(9)
            self._kept[name], self._newest[of] = (of, order), name
            self._held += len(order)
            while len(self._kept) > 1 and (self._held > self._most or len(self._kept) > ORDERS):
                self._forget()
        return name

    def find(self, name: str, asked: Wanted) -> array[int] | None:
        """None: it is not known any more, or is of another list."""
        with self._lock:
            found = self._kept.get(name)
            if found is None or found[0] != asked.same:
                return None
            self._kept.move_to_end(name)
            return found[1]

    def _forget(self) -> None:
        name, (of, order) = self._kept.popitem(last=False)
        self._held -= len(order)
        if self._newest.get(of) == name:
            del self._newest[of]
