"""Settings of the queue in a context: shares, limits and the quota that jobs share."""

from collections.abc import Mapping, Set
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
    give_way: bool = True  #: jobs of low priority give way to jobs of a higher one
    #: users whose jobs may name a share, by share; a share that is not here is open to all users
    members: Mapping[str, Set[str]] = field(default_factory=dict[str, Set[str]])

    def account(self, share: str) -> str:
        """Return what a share is weighed as: a share with members as itself; all others together, as their number says
        nothing of who uses them."""
        return share if share in self.members else ""

    def weight(self, share: str) -> float:
        return self.weights.get(share, 1.0)

    @property
    def account_weights(self) -> Mapping[str, float]:
        """The weight of each account: that of its share, or the sum of all shares that are open to all users."""
        open_ones = {"", *self.weights} - self.members.keys()
        return {"": sum(map(self.weight, open_ones))} | {n: self.weight(n) for n in self.members}

    def own_weight(self, share: str) -> float:
        """Return the weight of a job in its account: in an open share each user has that of the share."""
        return 1.0 if share in self.members else self.weight(share)


#: of a context without settings of the queue
ANYTHING = QueueSettings()
