"""Who is told how a copy goes on."""

from collections.abc import Callable
from dataclasses import dataclass


def _nobody(*_: object) -> None: ...


@dataclass(frozen=True, slots=True)
class Told:
    """By any thread."""

    sent: Callable[[int], None] = _nobody  #: of bytes that were sent, or arrived
    had: Callable[[int], None] = _nobody  #: of bytes that an earlier process had moved
    unverified: Callable[[], None] = _nobody  #: of one whose source has no checksum


NOBODY = Told()
