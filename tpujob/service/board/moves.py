"""The latest changes of rows, for whoever shows lists and wants to know which of them a change concerns. Bounded."""

from collections import deque
from itertools import islice

from tpujob.domain.listing import Listed, Move

MOST = 2000  #: that are kept


class Moves:
    """Counts from 0 in each process. Not for use by several threads."""

    def __init__(self) -> None:
        self.newest = 0
        self._kept = deque[Move](maxlen=MOST)

    def add(self, number: int, old: Listed | None, new: Listed | None) -> None:
        self.newest += 1
        self._kept.append(Move(number, old, new))

    def after(self, number: int) -> tuple[int, list[Move] | None]:
        """The number of the newest, and those after another number; None: so many are not kept."""
        count = self.newest - number
        if not 0 <= count <= len(self._kept):
            return self.newest, None
        return self.newest, list(islice(self._kept, len(self._kept) - count, None))
