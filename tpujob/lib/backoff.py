"""The pauses between the tries of one call."""

from typing import NamedTuple


class Backoff(NamedTuple):
    """Exponential backoff: the pause doubles with each failure."""

    first: float  #: seconds
    longest: float  #: seconds

    def pause(self, failures: int, chance: float = 0.5) -> float:
        """Return the seconds to pause after so many failures. `chance`, from 0 to 1, makes them up to a quarter less or
        more, so that callers that failed together do not retry together."""
        plain = min(self.longest, self.first * 2.0 ** min(failures - 1, 60))
        return plain * (0.75 + 0.5 * chance)
