"""What a project may hold of each kind of TPU in each zone, what it holds, and what was granted. Pure.

How the API spells its quotas is in `adapters/google/quota.py`. Both a zone and its region have a limit, and the smaller
one wins. What a quota counts is inferred from limits that were seen (live: usage-held): cores of v2 and v3, chips of
v5e and v6e; of v4 and v5p Google's page says "chips or TensorCores".
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tpujob.api import AllowanceView
from tpujob.domain.hardware import accelerators
from tpujob.domain.hardware.accelerators import region_of
from tpujob.errors import BadRequest, BadSpec

if TYPE_CHECKING:
    from tpujob.config.context import ChipsSetting


Unit = Literal["cores", "chips", ""]
Scope = Literal["zone", "region", "project"]

#: Of generations with two quotas: the one for slices of one host. v2 and v3 call it a device, v5e serving.
ONE_HOST = "one host"

#: what it takes to read limits (Google's reference of the method)
LIMITS_TAKE = "serviceusage.quotas.get"


@dataclass(frozen=True, slots=True)
class QuotaKind:
    """What one quota limits."""

    generation: str
    pricing: str  #: `spot`, `on-demand` or `reserved`
    part: str = ""  #: ONE_HOST, or empty: the others, or all


@dataclass(frozen=True, slots=True)
class Limit:
    metric: str  #: as the API calls it
    kind: QuotaKind | None  #: None: it is not of TPUs, or of a kind that the table does not know
    scope: Scope
    place: str  #: a zone or region; empty: every one that has no limit of its own
    limit: int | None  #: None: there is none
    unit: Unit = ""  #: empty: the API does not say
    places: frozenset[str] = frozenset()  #: where it is offered; empty: the API does not say


@dataclass(frozen=True, slots=True)
class Held:
    """What the API lists in one zone, of all users. Suspended and failed requests hold quota too."""

    kind: QuotaKind
    zone: str
    chips: int


@dataclass(frozen=True, slots=True)
class QuotaOverview:
    """Everything that is shown about quota in one place."""

    of: str  #: the project, or what stands for one
    rows: Sequence[AllowanceView]
    #: quotas of Cloud TPU that are not of chips or cores, or not understood
    others: Sequence[Limit] = ()
    notes: Sequence[str] = ()  #: what could not be read, and why


def unit_of(generation: str) -> Unit:
    """What quotas of that generation count, as far as it is known; for v4 and v5p the careful reading."""
    found = accelerators.generation(generation)
    return "cores" if found and found.suffix_counts_cores else "chips"


def per_chip(generation: str, unit: str) -> int:
    """Return how much of the quota one chip takes."""
    found = accelerators.generation(generation)
    return found.cores_per_chip if found and unit == "cores" else 1


def chips(row: AllowanceView) -> int | None:
    """At most so many chips; of the doubtful generations at least that many. None: no limit."""
    limit = row["limit"]
    return None if limit is None else limit // per_chip(row["type"], row["unit"])


def kind_of(type: str, pricing: str) -> QuotaKind:
    """The quota that a slice of that type counts against. That v5e slices of one host count as serving is inferred
    (live: usage-held)."""
    found = accelerators.find(type)
    row = accelerators.generation(found.generation)
    separate = row is not None and row.one_host_quota and found.hosts == 1
    return QuotaKind(found.generation, pricing, ONE_HOST if separate else "")


def allowances(
    limits: Sequence[Limit],
    zones: Sequence[str],
    *,
    held: Sequence[Held] | None = None,
    grants: Sequence[ChipsSetting] = (),
    closed: Iterable[str] = (),
    closed_kinds: bool = False,
) -> list[AllowanceView]:
    """A row for whatever the project may hold, holds, or was granted in these zones; in the order of zones and
    generations. `held`: None, as it could not be seen; `closed`: zones where it could not be;
    `closed_kinds`: also what has a limit of 0."""
    kinds = {one.kind for one in limits if one.kind}
    kinds |= {one.kind for one in held or ()}
    kinds |= {QuotaKind(one.type, one.pricing) for one in grants}
    order = {name: place for place, name in enumerate(accelerators.GENERATIONS)}
    last = len(order)  # what no table has
    ordered = sorted(
        kinds,
        key=lambda k: (order.get(k.generation, last), k.part, k.pricing != "spot", k.pricing),
    )
    unseen = frozenset(closed)
    rows = [
        _allowance(kind, zone, limits, None if zone in unseen else held, grants)
        for zone in zones
        for kind in ordered
    ]
    return [
        row
        for row in rows
        if (row["known"] and (closed_kinds or row["limit"] != 0))
        or row["used"]
        or row["granted_chips"]
    ]


def _allowance(
    kind: QuotaKind,
    zone: str,
    limits: Sequence[Limit],
    held: Sequence[Held] | None,
    grants: Sequence[ChipsSetting],
) -> AllowanceView:
    ours = [one for one in limits if one.kind == kind]
    in_zone, in_region = _at(ours, "zone", zone), _at(ours, "region", region_of(zone))
    found = [one for one in (in_zone, in_region) if one]
    both = [one.limit for one in found if one.limit is not None]
    unit = next((one.unit for one in found if one.unit), unit_of(kind.generation))
    used = sum(one.chips for one in held or () if (one.kind, one.zone) == (kind, zone))
    same = (kind.generation, zone, kind.pricing)
    granted = [g.chips for g in grants if (g.type, g.zone, g.pricing) == same]
    return AllowanceView(
        type=kind.generation,
        part=kind.part,
        pricing=kind.pricing,
        zone=zone,
        known=bool(found),
        limit=min(both, default=None),
        zone_limit=in_zone.limit if in_zone else None,
        region_limit=in_region.limit if in_region else None,
        unit=unit,
        used=None if held is None else used * per_chip(kind.generation, unit),
        granted_chips=0 if kind.part == ONE_HOST else sum(granted),
    )


def _at(limits: Sequence[Limit], scope: Scope, place: str) -> Limit | None:
    """Return the limit of one kind there. Two metrics may be of one kind: `tpu-v4-preemptible` and
    `tpu-v4s-preemptible` are both seen in public. No page says which of them counts: the larger one is taken, as users
    ask to raise the one that counts. Inferred (live: quota-names)."""
    metrics = dict.fromkeys(one.metric for one in limits)
    each = (_of_one(limits, metric, scope, place) for metric in metrics)
    found = [one for one in each if one]
    return max(found, key=lambda o: math.inf if o.limit is None else o.limit, default=None)


def _of_one(limits: Sequence[Limit], metric: str, scope: Scope, place: str) -> Limit | None:
    """Return the limit of that very place; else the one for every other place, where the API offers it there."""
    ours = [one for one in limits if (one.metric, one.scope) == (metric, scope)]
    rest = [one for one in ours if not one.place and (not one.places or place in one.places)]
    return next((one for one in ours if one.place == place), rest[0] if rest else None)


# Grants --------------------------------------------------------------------------------------------------------------


#: one line of such an e-mail: `64 spot Cloud TPU v5e chips in zone europe-west4-b`; older ones count `v2-8 device(s)`
_LINE = re.compile(
    r"(?P<count>[\d,]+)\s+(?P<pricing>spot|preemptible|on-demand|reserved)\s+(?:Cloud\s+)?TPU\s+"
    r"(?P<type>v\d+[a-z]*(?:-\d+)?)\s+(?P<unit>chips?|devices?|device\(s\)|cores?)\s+in\s+(?:the\s+)?zone\s+"
    r"(?P<zone>[a-z]+-[a-z]+\d+-[a-z]+\d*[a-z]?)",
    re.IGNORECASE,
)
_SHORT = "TYPE:ZONE:PRICING:CHIPS, such as v4:us-central2-b:spot:32"


def of_option(text: str) -> dict[str, Any]:
    """The fields of a grant in its short form, not yet checked. Raises BadRequest."""
    parts = text.split(":")
    if len(parts) != 4 or not parts[3].isdecimal():
        raise BadRequest(f"--grant {text!r} is not a grant", hint=f"write {_SHORT}")
    type, zone, pricing, chips = parts
    return {"type": type, "zone": zone, "pricing": pricing, "chips": int(chips)}


def of_letter(text: str) -> list[dict[str, Any]]:
    """The fields of every grant in an e-mail, in its order; whatever else it says is passed over. Raises BadRequest
    when there is none."""
    found = [_of_line(match) for match in _LINE.finditer(" ".join(text.split()))]
    if not found:
        raise BadRequest(
            "no grant is found in that text: a line of one is `32 spot Cloud TPU v4 chips in zone us-central2-b`",
            hint=f"say each with --grant {_SHORT}",
        )
    return list({repr(grant): grant for grant in found}.values())


def _of_line(match: re.Match[str]) -> dict[str, Any]:
    pricing = match["pricing"].lower()
    generation, _, _ = match["type"].lower().partition("-")
    return {
        "type": generation,
        "zone": match["zone"].lower(),
        "pricing": "spot" if pricing == "preemptible" else pricing,
        "chips": _chips(match),
    }


def _chips(match: re.Match[str]) -> int:
    """Of what is counted: chips, halves of one, or devices such as v2-8, which have four."""
    count, unit = int(match["count"].replace(",", "")), match["unit"].lower()
    if unit.startswith("core"):
        return count // 2
    if not unit.startswith("device") or "-" not in match["type"]:
        return count
    try:
        return count * accelerators.find(match["type"].lower()).chips
    except BadSpec as error:
        raise BadRequest(f"the grant names a type that is not known: {error.message}") from error
