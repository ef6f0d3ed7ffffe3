"""The cursor of a reader who goes on from page to page: what was given of each host; nothing else knows it. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tpujob.errors import BadRequest

_CURSOR = re.compile(r"(\d{1,9})((?:~\d{1,6}\.\d{1,13}\.\d{1,12}\.\d{1,12}(?:\.\d{1,12})?)*)")


class Place(NamedTuple):
    """Between two lines of a host."""

    segment: int = 0  #: its number
    offset: int = 0  #: bytes of the segment before it
    lines: int = 0  #: number of the line before it
    #: number of the last line that was given, if it was not stored by then: it and those before it come no more
    seen: int = 0

    @property
    def given(self) -> int:
        """The number of the last line that was given."""
        return max(self.lines, self.seen)


BEGIN = Place()


@dataclass(frozen=True, slots=True)
class Cursor:
    attempt: int
    places: Mapping[int, Place] = field(default_factory=dict[int, Place])  #: by host

    def __str__(self) -> str:
        return (
            f"{self.attempt}{''.join(_text(h, place) for h, place in sorted(self.places.items()))}"
        )


def _text(host: int, place: Place) -> str:
    numbers = (host, *place) if place.seen else (host, *place[:3])
    return "~" + ".".join(map(str, numbers))


def read(text: str) -> Cursor:
    """Raises BadRequest."""
    match = _CURSOR.fullmatch(text)
    if not match:
        raise BadRequest("this is not a cursor of a log", hint="Begin without a cursor.")
    numbers = (tuple(map(int, part.split("."))) for part in match[2].split("~")[1:])
    return Cursor(int(match[1]), {host: Place(*place) for host, *place in numbers})
