"""Reputation of physical machines that produced wrong numbers: weights of accusations, their decay, and thresholds.

Jobs of an owner avoid a machine that the owner's programs accuse; all jobs avoid one that two owners accuse, or that a
person marks as bad. Pure. The store keeps the records; `nonfinite.py` decides which machine is accused.
"""

from collections.abc import Iterable
from dataclasses import replace

from tpujob.domain.model import Suspect

#: seconds in which a score halves: hardware is repaired, and most faults do not return
HALF_LIFE = 7 * 86400.0
#: an owner's part of the score from which that owner's programs avoid the machine
THRESHOLD = 0.4
#: number of such owners from which programs of all owners avoid the machine
OWNERS = 2
#: weight of an accusation: of a machine that is the only possible one, and of each of several
NAMED, ONE_OF_SEVERAL = 2.0, 0.8
#: number of reasons that a record keeps, the newest
REASONS = 5
#: times that a job gives back a slice for a machine that is only suspected; then it takes what it gets
REFUSALS = 3


def score(suspect: Suspect, now: float) -> float:
    """Return the decayed score at `now`."""
    return suspect.score * _left(suspect, now)


def refused(suspect: Suspect, now: float, owner: str | None = None) -> bool:
    """Return whether programs of this owner avoid the machine; None: of all owners. A person's mark comes before the
    scores."""
    if suspect.pinned:
        return suspect.pinned == "bad"
    if not suspect.owners:  # an old record
        return score(suspect, now) >= THRESHOLD
    against = accusers(suspect, now)
    return len(against) >= OWNERS or owner in against


def accusers(suspect: Suspect, now: float) -> frozenset[str]:
    """Return the owners whose jobs' accusations count now."""
    left = _left(suspect, now)
    return frozenset(owner for owner, part in suspect.owners.items() if part * left >= THRESHOLD)


def avoided(suspects: Iterable[Suspect], now: float, owner: str) -> list[str]:
    """Return the names of the machines that programs of this owner avoid."""
    return sorted(s.physical for s in suspects if refused(s, now, owner))


def worst_first(suspects: Iterable[Suspect]) -> list[Suspect]:
    """Return the suspects, the highest score first. All scores are decayed to the time of the newest update."""
    listed = list(suspects)
    newest = max((s.updated_at for s in listed), default=0.0)
    return sorted(listed, key=lambda s: (-score(s, newest), s.physical))


def accused(suspect: Suspect, weight: float, reason: str, at: float, owner: str) -> Suspect:
    """Return the record after one more accusation by a job of this owner."""
    before = suspect.owners or ({"": suspect.score} if suspect.score else {})
    owners = {accuser: part * _left(suspect, at) for accuser, part in before.items()}
    return replace(
        suspect,
        score=score(suspect, at) + weight,
        updated_at=at,
        reasons=(*suspect.reasons, reason)[-REASONS:],
        owners={**owners, owner: owners.get(owner, 0.0) + weight},
    )


def _left(suspect: Suspect, now: float) -> float:
    return 0.5 ** (max(0.0, now - suspect.updated_at) / HALF_LIFE)
