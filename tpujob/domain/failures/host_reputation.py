"""Reputation of physical machines: which accusations count, their weights, their decay, and thresholds.

A program can say anything of the machine below it. So an accusation counts once it is proved, or once programs of other
code accuse the machine, too. Jobs of an owner avoid a machine that the owner's programs accuse; all jobs avoid one that
two owners accuse, or that a person marks as bad. Pure. The store keeps the records; `accusations.py` makes them.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from tpujob.domain.model import Accusation, Standing, Suspect

#: seconds in which a weight halves: hardware is repaired, and most faults do not return
HALF_LIFE = 7 * 86400.0
#: an owner's part of the score from which that owner's programs avoid the machine
THRESHOLD = 0.4
#: number of such owners from which programs of all owners avoid the machine
OWNERS = 2
#: weight of an accusation: of a machine that is the only possible one, and of each of several
NAMED, ONE_OF_SEVERAL = 2.0, 0.8
#: number of accusations that a record keeps, the newest
MAX_ACCUSATIONS = 20
#: times that a job gives back a slice for a machine that is only suspected; then it takes what it gets
REFUSALS = 3


def counted(suspect: Suspect) -> list[Accusation]:
    """Return the accusations that count: proved ones, and open ones with which a program of other code agrees."""
    made = suspect.accusations
    return [a for a in made if a.standing is Standing.PROVED or any(_differ(a, b) for b in made)]


def _differ(one: Accusation, other: Accusation) -> bool:
    return one.owner != other.owner or not set(one.program) & set(other.program)


def score(suspect: Suspect, now: float) -> float:
    """Return the sum of the weights that count, decayed to `now`."""
    return sum(_weight(a, now) for a in counted(suspect))


def _weight(accusation: Accusation, now: float) -> float:
    return accusation.weight * 0.5 ** (max(0.0, now - accusation.at) / HALF_LIFE)


def refused(suspect: Suspect, now: float, owner: str | None = None) -> bool:
    """Return whether programs of this owner avoid the machine; None: of all owners. A person's mark comes before the
    scores."""
    if suspect.pinned:
        return suspect.pinned == "bad"
    against = accusers(suspect, now)
    return len(against) >= OWNERS or owner in against


def accusers(suspect: Suspect, now: float) -> frozenset[str]:
    """Return the owners whose jobs' accusations count now."""
    parts = defaultdict[str, float](float)
    for accusation in counted(suspect):
        parts[accusation.owner] += _weight(accusation, now)
    return frozenset(owner for owner, part in parts.items() if part >= THRESHOLD)


def avoided(suspects: Iterable[Suspect], now: float, owner: str) -> dict[str, str]:
    """Return the machines that programs of this owner avoid, and why. What a program of another owner saw stays with
    that owner."""
    return {s.physical: _why(s, owner) for s in suspects if refused(s, now, owner)}


def _why(suspect: Suspect, owner: str) -> str:
    if suspect.pinned:
        return "a person marked it as bad"
    newest = max(counted(suspect), key=lambda a: (a.owner == owner, a.at))
    what = f": {newest.text}" if newest.owner == owner else ", of another owner"
    return f"attempt {newest.attempt} of job {newest.job} accuses it{what}"


def worst_first(suspects: Iterable[Suspect]) -> list[Suspect]:
    """Return the machines that are accused or pinned, the highest score first. All scores are decayed to the time of
    the newest update."""
    listed = [s for s in suspects if s.accusations or s.pinned]
    newest = max((s.updated_at for s in listed), default=0.0)
    return sorted(listed, key=lambda s: (-score(s, newest), s.physical))


def accused(suspect: Suspect, accusation: Accusation) -> Suspect:
    """Return the record with this accusation in place of an earlier one of the same attempt; without both if it is
    refuted."""
    attempt = (accusation.job, accusation.attempt)
    others = [a for a in suspect.accusations if (a.job, a.attempt) != attempt]
    stays = [] if accusation.standing is Standing.REFUTED else [accusation]
    made = tuple([*others, *stays][-MAX_ACCUSATIONS:])
    return replace(suspect, updated_at=max(suspect.updated_at, accusation.at), accusations=made)
