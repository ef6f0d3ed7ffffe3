"""The records that all checks share: findings, what a context wants, and a look that failed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from tpujob.domain.hardware.accelerators import region_of


class Severity(StrEnum):
    OK = "ok"
    WARN = "warn"  #: jobs run, but something about it will cost time, money or safety
    FAIL = "fail"  #: jobs do not run before this is put right
    UNKNOWN = "unknown"  #: could not be told: neither good nor bad


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    name: str  #: of the check, one or two words
    verdict: Severity
    what: str  #: one sentence without a full stop
    cure: str = ""  #: what to do next: one line, mostly a command that can be pasted


@dataclass(frozen=True, slots=True)
class NotSeen:
    """A look that failed: nothing is concluded from it."""

    why: str
    cure: str = ""


@dataclass(frozen=True, slots=True)
class GrantedChips:
    """Chips that a programme such as the TPU Research Cloud pays for."""

    generation: str
    zone: str
    pricing: str
    chips: int


@dataclass(frozen=True, slots=True)
class Wants:
    """What a context asks of its project."""

    project: str
    zones: Sequence[str] = ()
    buckets: Mapping[str, str] = field(default_factory=dict[str, str])  #: `gs://...` by region
    network: str = ""
    subnetwork: str = ""
    service_account: str = ""
    ssh: str = "external"  #: `external`, `internal` or `iap`
    external_ips: bool = True
    tags: Sequence[str] = ()  #: of the hosts
    firestore: bool = False  #: jobs are kept there, and not in a file
    database: str = "(default)"
    grants: Sequence[GrantedChips] = ()
    deployed: bool = False  #: the backend runs in the cloud

    @property
    def regions(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(region_of(zone) for zone in self.all_zones))

    @property
    def all_zones(self) -> tuple[str, ...]:
        """Those of the grants too, in order of preference."""
        return tuple(dict.fromkeys((*self.zones, *(grant.zone for grant in self.grants))))


def ok(name: str, what: str) -> Finding:
    return Finding(name, Severity.OK, what)


def warn(name: str, what: str, cure: str = "") -> Finding:
    return Finding(name, Severity.WARN, what, cure)


def fail(name: str, what: str, cure: str) -> Finding:
    return Finding(name, Severity.FAIL, what, cure)


def unknown(name: str, seen: NotSeen) -> Finding:
    return Finding(name, Severity.UNKNOWN, f"could not be told: {seen.why}", seen.cure)


def worst(findings: Iterable[Finding]) -> Severity:
    """FAIL before UNKNOWN before WARN; OK of no findings."""
    found = {one.verdict for one in findings}
    order = (Severity.FAIL, Severity.UNKNOWN, Severity.WARN)
    return next((verdict for verdict in order if verdict in found), Severity.OK)


def listed(names: Iterable[str], most: int = 4) -> str:
    """The names in a sentence; of many, the first ones and how many there are beside them."""
    names = list(names)
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[: most - 1])} and {len(names) - most + 1} more"
