"""How much a physical machine is suspected of wrong numbers: what an accusation weighs, how it fades, when it counts.

Pure. The records are kept by the store; who is accused is decided in `nonfinite.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tpujob.domain.model import Suspect

#: a score halves in this many seconds: hardware is mended, and most of what goes wrong once never comes back
HALF_LIFE = 7 * 86400.0
#: programs are kept off a machine from this score on
THRESHOLD = 0.4
#: what an accusation weighs: of the machine that a replay has named, and of each one of several that it may have been
NAMED, ONE_OF_SEVERAL = 2.0, 0.8
#: reasons that a record keeps, the newest
REASONS = 5
#: times that a job gives back a slice for a machine that is only suspected; then it takes what it gets
REFUSALS = 3


def score(suspect: Suspect, now: float) -> float:
    """The score as it has faded by `now`."""
    return suspect.score * 0.5 ** (max(0.0, now - suspect.updated_at) / HALF_LIFE)


def refused(suspect: Suspect, now: float) -> bool:
    """Whether programs are kept off it: a person's word first, then the score."""
    return suspect.pinned == "bad" or (
        suspect.pinned != "good" and score(suspect, now) >= THRESHOLD
    )


def avoided(suspects: Iterable[Suspect], now: float) -> list[str]:
    """The machines that programs are kept off."""
    return sorted(s.physical for s in suspects if refused(s, now))


def worst_first(suspects: Iterable[Suspect]) -> list[Suspect]:
    """The highest score first, all as they have faded by one and the same time."""
    found = list(suspects)
    newest = max((s.updated_at for s in found), default=0.0)
    return sorted(found, key=lambda s: (-score(s, newest), s.physical))


def accused(suspect: Suspect, weight: float, reason: str, at: float) -> Suspect:
    """The record after one more accusation."""
    return replace(
        suspect,
        score=score(suspect, at) + weight,
        updated_at=at,
        reasons=(*suspect.reasons, reason)[-REASONS:],
    )
