"""Who is told what: rules of jobs, users and contexts, and hours in which nothing but the urgent is told."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo

from tpujob.domain.notify.model import Kind, Note

#: what is of use to those who run the backend, and not to the owner of a job
OPERATORS = frozenset({Kind.LEAK, Kind.HOST_REFUSED})
DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Rule:
    """Of a context."""

    channels: tuple[str, ...]
    users: tuple[str, ...] = ()  #: whose jobs; empty: everybody's, and what is about no job
    on: frozenset[Kind] = frozenset()  #: empty: everything that concerns them

    def wants(self, note: Note) -> bool:
        if note.kind is Kind.SUMMARY:  # whose it is, is said in it
            return False
        if self.users and note.user not in self.users:
            return False
        if self.on:
            return note.kind in self.on
        return not self.users or note.kind not in OPERATORS


@dataclass(frozen=True, slots=True)
class Clocktime:
    """A time of each day, in minutes since midnight, where somebody lives."""

    minutes: int
    zone: tzinfo

    def on(self, day: datetime) -> datetime:
        hour, minute = divmod(self.minutes, 60)
        return day.replace(hour=hour, minute=minute, second=0, microsecond=0, fold=0)

    def last(self, now: float) -> float:
        """When it was that time last."""
        here = datetime.fromtimestamp(now, self.zone)
        today = self.on(here).timestamp()
        return today if today <= now else self._other(here, -DAY)

    def next(self, now: float) -> float:
        """When it is that time next, later than now."""
        here = datetime.fromtimestamp(now, self.zone)
        today = self.on(here).timestamp()
        return today if today > now else self._other(here, DAY)

    def _other(self, here: datetime, by: timedelta) -> float:
        return self.on(here + by).timestamp()


@dataclass(frozen=True, slots=True)
class Quiet:
    """Hours of each day."""

    start: Clocktime
    end: Clocktime

    def ends(self, now: float) -> float | None:
        """When the quiet hours end that it is now; None: it is none."""
        return self.end.next(now) if self.start.last(now) > self.end.last(now) else None


def recipients(rules: Iterable[Rule], note: Note, of_job: Sequence[str] = ()) -> list[str]:
    """The channels that are told; `of_job`: those that its own file names."""
    found = list(of_job) if note.kind not in OPERATORS else []
    for rule in rules:
        if rule.wants(note):
            found += rule.channels
    return list(dict.fromkeys(found))
