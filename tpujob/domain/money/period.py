"""Periods of a report: whole days, UTC. Pure."""

import re
from calendar import monthrange
from datetime import UTC, date, datetime
from typing import NamedTuple

from tpujob.errors import BadRequest


class Period(NamedTuple):
    """Days as `2026-11-01`. Empty: without that bound."""

    since: str = ""  #: first day
    until: str = ""  #: last day

    def __bool__(self) -> bool:
        """Return whether the period has a bound."""
        return bool(self.since or self.until)

    def has(self, day: str) -> bool:
        return self.since <= day and (not self.until or day <= self.until)


ALWAYS = Period()


def parse_period(since: str, until: str) -> Period:
    """Return the period of these days. Raises BadRequest."""
    for name, day in (("since", since), ("until", until)):
        if day and not _is_day(day):
            raise BadRequest(f"{name}: {day[:40]!r} is not a day", hint="such as 2026-11-01")
    if since and until and until < since:
        raise BadRequest(
            f"the period ends on {until}, before it begins on {since}",
            hint="give the first day as since and the last day as until",
        )
    return Period(since, until)


def month_of(text: str) -> Period:
    """Return the days of a month, such as `2026-11`. Raises BadRequest."""
    if not (re.fullmatch(r"[0-9]{4}-[0-9]{2}", text) and _is_day(f"{text}-01")):
        raise BadRequest(f"{text[:40]!r} is not a month", hint="such as 2026-11")
    first = date.fromisoformat(f"{text}-01")
    last = first.replace(day=monthrange(first.year, first.month)[1])
    return Period(first.isoformat(), last.isoformat())


def day_of(at: float) -> str:
    """Return the day of a time in seconds since the epoch."""
    return datetime.fromtimestamp(at, UTC).date().isoformat()


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False
