"""The quota of a project, as its provider of slices counts it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from tpujob.domain.hardware.generations import CLOUD_TPU

Unit = Literal["cores", "chips", ""]
Scope = Literal["zone", "region", "project"]

#: the quota for slices of one host, of generations with two quotas: device quota of v2 and v3, serving quota of v5e
ONE_HOST = "one host"


@dataclass(frozen=True, slots=True)
class QuotaKind:
    """The hardware that one quota limits."""

    generation: str
    pricing: str  #: of those that share the quota, `Pricing.quota`
    part: str = ""  #: ONE_HOST; empty: all other slices, or all slices
    provider: str = CLOUD_TPU


@dataclass(frozen=True, slots=True)
class Limit:
    metric: str  #: the API's name of the quota
    kind: QuotaKind | None  #: None: not a quota of TPUs, or of an unknown kind
    scope: Scope
    place: str  #: a zone or region; empty: every place without a limit in the list
    limit: int | None  #: None: no limit
    unit: Unit = ""  #: empty: unknown
    places: frozenset[str] = frozenset()  #: zones or regions that offer it; empty: unknown


@dataclass(frozen=True, slots=True)
class Held:
    """The chips that the API lists in one zone, of all users. Suspended and failed requests hold quota too."""

    kind: QuotaKind
    zone: str
    chips: int


@dataclass(frozen=True, slots=True)
class QuotaUse:
    held: Sequence[Held]
    missed: Mapping[str, str]  #: zones that could not be listed, with the reason


class ProjectQuota(Protocol):
    """The quota of a project, and its use by all users."""

    @property
    def complete(self) -> bool:
        """Whether hardware without a limit in `limits` has none."""
        ...

    def limits(self) -> list[Limit]:
        """Return every limit. Raise Refused, Transient."""
        ...

    def use(self, zones: Sequence[str]) -> QuotaUse:
        """Return what is held in these zones. Never raise: zones that cannot be listed are `missed`."""
        ...
