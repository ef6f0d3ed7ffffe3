"""What must be read from all records to be known: money and goodput. Read at most once a minute, and seldom where that
takes long, however often somebody asks."""

import threading
import time
from dataclasses import dataclass

from tpujob.api import CostRowView
from tpujob.ports import Clock
from tpujob.service.money.cost import Costs

#: seconds between two readings at least; and the part of the time that may go into them
EVERY, SHARE = 60.0, 0.02


@dataclass(frozen=True, slots=True)
class Money:
    at: float
    total: CostRowView


class Figures:
    """Thread-safe; one caller at a time reads."""

    def __init__(self, costs: Costs, clock: Clock) -> None:
        self._costs, self._clock = costs, clock
        self._lock = threading.Lock()
        self._money: Money | None = None
        self._again_at = 0.0

    def money(self) -> Money:
        """Of all jobs, as it was a minute ago at most, or a little longer where there are very many."""
        with self._lock:
            now = self._clock.now()
            if self._money is None or now >= self._again_at:
                began = time.monotonic()
                self._money = Money(now, self._costs.cost(by="type")["total"])
                self._again_at = now + max(EVERY, (time.monotonic() - began) / SHARE)
            return self._money
