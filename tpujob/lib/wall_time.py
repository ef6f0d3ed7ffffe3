"""The time of day for ages, on a machine whose clock may be set at any moment."""

from collections.abc import Callable

#: seconds by which the machine's clock may be set and is followed at once
SMALL = 5.0
#: seconds for which a clock must have been set by more before it is followed
LASTS = 1800.0
#: seconds after boot in which every setting is followed: a machine that has just booted corrects its clock
BOOT = 600.0


class WallTime:
    """The time of day, which follows the machine's clock only when it is set for long.

    An age is the difference of two readings, often of two processes. One that was stored while the clock was wrong for
    some minutes makes it wrong by as much, so a setting counts as an error until it has lasted. Thread-safe."""

    def __init__(self, wall: Callable[[], float], steady: Callable[[], float]) -> None:
        """`wall`: seconds since the epoch; `steady`: seconds since boot, by a clock that is never set."""
        self._wall, self._steady = wall, steady
        self._offset = wall() - steady()
        #: the offset of a setting that is not followed yet, and since when it lasts
        self._set = self._offset, 0.0

    def now(self) -> float:
        """Return the seconds since the epoch, UTC."""
        steady = self._steady()
        offset = self._wall() - steady
        if abs(offset - self._offset) > SMALL:
            if abs(offset - self._set[0]) > SMALL:
                self._set = offset, steady
            if steady - self._set[1] < LASTS and steady > BOOT:
                return steady + self._offset
        self._offset = offset
        self._set = offset, 0.0
        return steady + offset
