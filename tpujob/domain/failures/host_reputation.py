"""Reputation of physical machines that produced wrong numbers: weights of accusations, their decay, and thresholds.

A machine that a program accuses is avoided by other jobs of the same owner; by all jobs once two owners have accused
it, or a person has condemned it. Pure. The store keeps the records; `nonfinite.py` decides which machine is accused.
"""

from collections.abc import Iterable
from dataclasses import replace

from tpujob.domain.model import Suspect

#: a score halves in this many seconds: hardware is mended, and most of what goes wrong once never comes back
HALF_LIFE = 7 * 86400.0
#: programs of an owner are kept off a machine from this score on, in so far as that owner's jobs have made it
THRESHOLD = 0.4
#: owners whose jobs say so, after which programs of all are kept off it
OWNERS = 2
#: what an accusation weighs: of the machine that a replay has named, and of each one of several that it may have been
NAMED, ONE_OF_SEVERAL = 2.0, 0.8
#: reasons that a record keeps, the newest
REASONS = 5
#: times that a job gives back a slice for a machine that is only suspected; then it takes what it gets
REFUSALS = 3


def score(suspect: Suspect, now: float) -> float:
    """The score as it has faded by `now`."""
    return suspect.score * _left(suspect, now)


def refused(suspect: Suspect, now: float, owner: str | None = None) -> bool:
    """Return whether programs of this owner are kept off it; None: of all owners. A person's verdict counts first, then
    the scores."""
    if suspect.pinned:
        return suspect.pinned == "bad"
    if not suspect.owners:  # of before it was noted whose jobs had made it
        return score(suspect, now) >= THRESHOLD
    against = accusers(suspect, now)
    return len(against) >= OWNERS or owner in against


def accusers(suspect: Suspect, now: float) -> frozenset[str]:
    """Return the owners whose jobs' accusations count now."""
    left = _left(suspect, now)
    return frozenset(owner for owner, part in suspect.owners.items() if part * left >= THRESHOLD)


def avoided(suspects: Iterable[Suspect], now: float, owner: str) -> list[str]:
    """The machines that programs of this owner are kept off."""
    return sorted(s.physical for s in suspects if refused(s, now, owner))


def worst_first(suspects: Iterable[Suspect]) -> list[Suspect]:
    """The highest score first, all as they have faded by one and the same time."""
    listed = list(suspects)
    newest = max((s.updated_at for s in listed), default=0.0)
    return sorted(listed, key=lambda s: (-score(s, newest), s.physical))


def accused(suspect: Suspect, weight: float, reason: str, at: float, owner: str) -> Suspect:
    """The record after one more accusation, by a job of this owner."""
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
