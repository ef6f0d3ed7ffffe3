"""TPU quota of a project: limit, use and grants of each type in each zone. Pure.

The API's names of quotas are in `adapters/google/quota.py`. Both a zone and its region have a limit, and the smaller
one counts. The units are inferred from limits that were seen (live: usage-held): cores of v2 and v3, chips of v5e and
v6e; for v4 and v5p Google's page says "chips or TensorCores".
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tpujob.api import AllowanceView
from tpujob.doctor.findings import listed
from tpujob.domain.hardware import accelerators
from tpujob.domain.hardware.accelerators import region_of
from tpujob.domain.hardware.generations import CLOUD_TPU
from tpujob.domain.hardware.pricing import PRICINGS, find_pricing
from tpujob.errors import BadRequest, BadSpec
from tpujob.ports import ONE_HOST, Held, Limit, ProjectQuota, QuotaKind, Scope, Unit

if TYPE_CHECKING:
    from tpujob.config.context import ChipsSetting


#: permission to read limits (Google's reference of the method)
LIMITS_TAKE = "serviceusage.quotas.get"


@dataclass(frozen=True, slots=True)
class QuotaOverview:
    """The limits, use and grants that `tpujob quota` shows."""

    of: str  #: the project; locally the emulator
    rows: Sequence[AllowanceView]
    others: Sequence[Limit] = ()  #: quotas of Cloud TPU that are not of chips or cores
    notes: Sequence[str] = ()  #: sources that could not be read, and why
    complete: bool = False  #: what has no row has no limit


def overview(
    of: str, quota: ProjectQuota, zones: Sequence[str], grants: Sequence[ChipsSetting] = ()
) -> QuotaOverview:
    """Return limits, use and grants in these zones. Raises as `quota.limits` does; other failures become notes."""
    limits, use = quota.limits(), quota.use(zones)
    rows = allowances(
        limits,
        zones,
        held=use.held,
        grants=grants,
        closed=use.missed,
        closed_kinds=quota.complete,
    )
    # most projects cannot use most zones, for the same reason
    reason = next(iter(use.missed.values()), "")
    return QuotaOverview(
        of,
        [{**row, "known": True} for row in rows] if quota.complete else rows,
        others=[limit for limit in limits if limit.kind is None],
        notes=[f"what is held in {listed(use.missed)}: {reason}"] if use.missed else [],
        complete=quota.complete,
    )


def unit_of(generation: str) -> Unit:
    """Return the unit of a generation's quotas; of v4 and v5p, where it is unknown, the one that allows fewer chips."""
    row = accelerators.generation(generation)
    return "cores" if row and row.chip.cores > 1 else "chips"


def per_chip(generation: str, unit: str) -> int:
    """Return the amount of quota that one chip takes."""
    row = accelerators.generation(generation)
    return row.chip.cores if row and unit == "cores" else 1


def chips(row: AllowanceView) -> int | None:
    """Return a limit in chips; None: no limit. For generations with an unknown unit the true limit may be higher."""
    limit = row["limit"]
    return None if limit is None else limit // per_chip(row["type"], row["unit"])


def kind_of(type: str, pricing: str, provider: str = CLOUD_TPU) -> QuotaKind:
    """Return the quota that a slice of the type counts against."""
    part = ONE_HOST if accelerators.has_one_host_quota(type, provider) else ""
    generation = accelerators.find(type, provider).generation
    return QuotaKind(generation, find_pricing(pricing).quota, part, provider)


def allowances(
    limits: Sequence[Limit],
    zones: Sequence[str],
    *,
    held: Sequence[Held] | None = None,
    grants: Sequence[ChipsSetting] = (),
    closed: Iterable[str] = (),
    closed_kinds: bool = False,
) -> list[AllowanceView]:
    """Return a row for each kind that the project may hold, holds, or was granted in these zones, by zone and kind.
    `held`: None if it could not be read; `closed`: zones in which it could not be read; `closed_kinds`: whether to
    include kinds with a limit of 0."""
    kinds = {limit.kind for limit in limits if limit.kind}
    kinds |= {slices.kind for slices in held or ()}
    kinds |= {QuotaKind(grant.type, grant.pricing) for grant in grants}
    order = {name: index for index, name in enumerate(accelerators.GENERATIONS)}
    last = len(order)  # unknown generations

    def sort_key(kind: QuotaKind) -> tuple[int, str, bool, str]:
        preemptible = find_pricing(kind.pricing).preemptible
        return order.get(kind.generation, last), kind.part, not preemptible, kind.pricing

    unread = frozenset(closed)
    rows = [
        _allowance(kind, zone, limits, None if zone in unread else held, grants)
        for zone in zones
        for kind in sorted(kinds, key=sort_key)
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
    of_kind = [limit for limit in limits if limit.kind == kind]
    in_zone = _limit_at(of_kind, "zone", zone)
    in_region = _limit_at(of_kind, "region", region_of(zone))
    in_force = [limit for limit in (in_zone, in_region) if limit]
    amounts = [limit.limit for limit in in_force if limit.limit is not None]
    unit = next((limit.unit for limit in in_force if limit.unit), unit_of(kind.generation))
    used = sum(h.chips for h in held or () if (h.kind, h.zone) == (kind, zone))
    key = (kind.generation, zone, kind.pricing)
    granted = [g.chips for g in grants if (g.type, g.zone, g.pricing) == key]
    return AllowanceView(
        type=kind.generation,
        provider=kind.provider,
        part=kind.part,
        pricing=kind.pricing,
        zone=zone,
        known=bool(in_force),
        limit=min(amounts, default=None),
        zone_limit=in_zone.limit if in_zone else None,
        region_limit=in_region.limit if in_region else None,
        unit=unit,
        used=None if held is None else used * per_chip(kind.generation, unit),
        granted_chips=0 if kind.part == ONE_HOST else sum(granted),
    )


def _limit_at(limits: Sequence[Limit], scope: Scope, place: str) -> Limit | None:
    """Return the limit of one kind at a place. Several metrics may limit one kind: `tpu-v4-preemptible` and
    `tpu-v4s-preemptible` are both seen in public. No page says which of them counts. The larger one is taken, as users
    ask to raise the one that counts. Inferred (live: quota-names)."""
    metrics = dict.fromkeys(limit.metric for limit in limits)
    by_metric = (_limit_of_metric(limits, metric, scope, place) for metric in metrics)
    candidates = [limit for limit in by_metric if limit]
    return max(candidates, key=lambda c: math.inf if c.limit is None else c.limit, default=None)


def _limit_of_metric(
    limits: Sequence[Limit], metric: str, scope: Scope, place: str
) -> Limit | None:
    """Return the limit for the place itself; else the limit for all other places, if the place offers the type."""
    of_metric = [x for x in limits if (x.metric, x.scope) == (metric, scope)]
    own = [x for x in of_metric if x.place == place]
    general = [x for x in of_metric if not x.place and (not x.places or place in x.places)]
    return next(iter([*own, *general]), None)


# Grants --------------------------------------------------------------------------------------------------------------


#: a grant in an e-mail: `64 spot Cloud TPU v5e chips in zone europe-west4-b`; older e-mails count `v2-8 device(s)`
_LINE = re.compile(
    rf"(?P<count>[\d,]+)\s+(?P<pricing>preemptible|{'|'.join(PRICINGS)})\s+(?:Cloud\s+)?TPU\s+"
    r"(?P<type>v\d+[a-z]*(?:-\d+)?)\s+(?P<unit>chips?|devices?|device\(s\)|cores?)\s+in\s+(?:the\s+)?zone\s+"
    r"(?P<zone>[a-z]+-[a-z]+\d+-[a-z]+\d*[a-z]?)",
    re.IGNORECASE,
)
_SHORT = "TYPE:ZONE:PRICING:CHIPS, such as v4:us-central2-b:spot:32"


def parse_option(text: str) -> dict[str, Any]:
    """Return the fields of a grant in its short form, not yet checked. Raises BadRequest."""
    parts = text.split(":")
    if len(parts) != 4 or not parts[3].isdecimal():
        raise BadRequest(f"--grant {text!r} is not a grant", hint=f"write {_SHORT}")
    type, zone, pricing, chips = parts
    return {"type": type, "zone": zone, "pricing": pricing, "chips": int(chips)}


def parse_letter(text: str) -> list[dict[str, Any]]:
    """Return the fields of every grant in an e-mail, in order. Raises BadRequest if the e-mail has none."""
    grants = [_parse_grant(match) for match in _LINE.finditer(" ".join(text.split()))]
    if not grants:
        raise BadRequest(
            "no grant is found in that text: a line of one is `32 spot Cloud TPU v4 chips in zone us-central2-b`",
            hint=f"say each with --grant {_SHORT}",
        )
    return list({repr(grant): grant for grant in grants}.values())


def _parse_grant(match: re.Match[str]) -> dict[str, Any]:
    pricing = match["pricing"].lower()
    generation, _, _ = match["type"].lower().partition("-")
    return {
        "type": generation,
        "zone": match["zone"].lower(),
        "pricing": "spot" if pricing == "preemptible" else pricing,
        "chips": _chips(match, generation),
    }


def _chips(match: re.Match[str], generation: str) -> int:
    """Return the chips of a count in chips, in cores, or in devices such as v2-8."""
    count = int(match["count"].replace(",", ""))
    unit = match["unit"].lower()
    if unit.startswith("core"):
        return count // per_chip(generation, "cores")
    if not unit.startswith("device") or "-" not in match["type"]:
        return count
    try:
        return count * accelerators.find(match["type"].lower()).chips
    except BadSpec as error:
        raise BadRequest(f"the grant names a type that is not known: {error.message}") from error
