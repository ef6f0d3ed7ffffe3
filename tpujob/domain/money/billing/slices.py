"""Our slices as the bill is held against them. Pure."""

from typing import NamedTuple

from tpujob.domain.money.ledger import between


class LedgerSlice(NamedTuple):
    """One slice that was ever ready, as the ledger has it. Times are microseconds since the epoch."""

    job: str
    name: str
    generation: str
    zone: str
    spot: bool
    chips: int
    ready: int
    gone: int | None  #: None: still billed
    rate: int | None  #: micro-dollars an hour; None: not known
    granted: bool  #: a grant pays for it

    def time(self, start: int, end: int) -> int:
        """Chip-microseconds of it in that time."""
        return self.chips * max(0, self._until(end) - max(self.ready, start))

    def cost(self, start: int, end: int) -> int:
        """Micro-dollars by list price in that time, as far as a price is known."""
        if self.rate is None:
            return 0
        return between(self.rate, self.ready, start, self._until(end))

    def _until(self, end: int) -> int:
        return end if self.gone is None else min(self.gone, end)
