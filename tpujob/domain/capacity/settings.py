"""Settings of the queue in a context: shares, limits and the quota that jobs share."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

#: the jobs that may get another job's slice: of the same owner, of everyone, or none
HandOnTo = Literal["owner", "lab", "never"]


@dataclass(frozen=True, slots=True)
class OwnerLimits:
    """The limits of each owner. None: no limit."""

    running: int | None = None  #: jobs that hold or request a slice
    chips: int | None = None  #: that these hold or request
    queued: int | None = None  #: jobs that have not ended, checked at submission


NO_LIMITS = OwnerLimits()


@dataclass(frozen=True, slots=True)
class QueueSettings:
    weights: Mapping[str, float] = field(default_factory=dict[str, float])  #: by share; else 1
    limits: OwnerLimits = NO_LIMITS
    by_type: Mapping[str, OwnerLimits] = field(default_factory=dict[str, OwnerLimits])
    high: frozenset[str] = frozenset()  #: users who may use the priority high; empty: all
    #: chips that the project may hold, by zone, generation and pricing (`us-east5-b/v6e/spot`); others are not known
    quota: Mapping[str, int] = field(default_factory=dict[str, int])
    hand_on: HandOnTo = "owner"
    #: seconds for which the slice of an ended program is kept, if no waiting job needs its capacity
    keep: float = 0.0


#: of a context without settings of the queue
ANYTHING = QueueSettings()
