"""What the zones have for the project: types, TPU quota, external addresses, and buckets nearby."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tpujob.doctor.findings import Finding, NotSeen, fail, judged, listed, ok, unknown, warn
from tpujob.doctor.quota import Limit, allowances, chips, per_chip
from tpujob.domain.hardware import accelerators
from tpujob.domain.hardware.accelerators import region_of
from tpujob.errors import BadSpec
from tpujob.ports import BucketFacts

if TYPE_CHECKING:
    from tpujob.api import AllowanceView
    from tpujob.config.context import Context

#: where a person asks for more
QUOTA_PAGE = "https://console.cloud.google.com/iam-admin/quotas"


@dataclass(frozen=True, slots=True)
class Addresses:
    """External IP addresses in use, of one region."""

    limit: int
    used: int


def check_types(context: Context, zone: str, types: frozenset[str]) -> Finding:
    """Check that the zone offers the generations that were granted there, or any at all."""
    prefixes = {type.partition("-")[0] for type in types}
    offered = [g.name for g in accelerators.GENERATIONS.values() if g.prefix in prefixes]
    offered += sorted(_generations(types) - {*accelerators.GENERATIONS})
    granted = dict.fromkeys(grant.type for grant in context.grants if grant.zone == zone)
    missing = [g for g in granted if g not in offered]
    if missing:
        others = [z for z in accelerators.zones(missing[0]) if z != zone]
        where = f"in {listed(others)}" if others else "in no zone that tpujob knows"
        return fail(f"{missing[0]} is not offered there", f"it is offered {where}")
    if not offered:
        return fail("no TPUs are offered there", "remove it from `zones` of the context")
    return ok(f"offers {listed(offered, 9)}")


def check_quota(context: Context, zone: str, limits: Sequence[Limit]) -> Finding:
    """Check the grants in a zone; without grants, that anything may be held there."""
    rows = allowances(limits, [zone], grants=context.grants)
    ask = f"ask for quota at {QUOTA_PAGE}?project={context.project}&service=tpu.googleapis.com"
    granted = [row for row in rows if row["granted_chips"]]
    for row in granted:
        what = f"{row['granted_chips']} chips"
        if not row["known"]:
            why = f"{what} of {_what(row)} were granted, and no quota of that name is listed"
            return unknown(NotSeen(why, "tpujob quota --all"))
        if row["limit"] == 0:
            what = f"{_what(row)}: {what} granted, but the limit is 0"
            return fail(what, f"show TPU Research Cloud support this line, or {ask}")
    short = [
        row for row in granted if (most := chips(row)) is not None and most < row["granted_chips"]
    ]
    if short:
        return warn(*_short(short[0], ask))
    if granted:
        return ok(listed((f"{_what(row)}: {_limit(row)}" for row in granted), 6))
    if not rows:
        return fail("the limit is 0 for every type", ask)
    return ok(listed((f"{_what(row)}: {_limit(row)}" for row in rows), 4))


def check_addresses(context: Context, region: str, seen: Addresses) -> Finding:
    """Check that addresses are left: each host of a slice takes one, when slices have external addresses."""
    free = max(0, seen.limit - seen.used)
    text = f"{free} of {seen.limit} external addresses are free"
    cure = (
        f"ask for more IN_USE_ADDRESSES at {QUOTA_PAGE}?project={context.project}, or `ssh: iap` with "
        "`external_ips: false` in the context"
    )
    chips = max((g.chips for g in context.grants if region_of(g.zone) == region), default=1)
    hosts = -(-chips // accelerators.CHIPS_PER_HOST)
    if free == 0:
        return fail(f"{text}: no slice can start", cure)
    if free < hosts:
        return warn(f"{text}, and the whole grant has {hosts} hosts", cure)
    return ok(text)


def check_buckets(
    context: Context, seen: Mapping[str, BucketFacts | NotSeen | None]
) -> list[Finding]:
    """Return a finding for each region of the zones. `seen`: by the bucket's URL; None: it does not exist."""
    found: list[Finding] = []
    for region in context.every_region:
        url = context.buckets.get(region)
        if url is None:
            gap = fail(f"{region} has zones of the context, and no bucket", _make(region))
            found.append(gap.named(f"bucket {region}"))
        else:
            there = seen.get(url, NotSeen("the bucket was not checked"))
            found.append(judged(f"bucket {region}", there, partial(_bucket, region, url)))
    return found


def _bucket(region: str, url: str, seen: BucketFacts | None) -> Finding:
    if seen is None:
        return fail(f"there is no bucket {url}", _make(region))
    if seen.location != region:
        where = f"{url} is in {seen.location}, the zones are in {region}"
        what = f"{where}: every checkpoint and every read of data is billed as traffic between them"
        cure = f"{_make(region)} --name gs://NEW_NAME"
        return (fail if seen.location_type == "region" else warn)(what, cure)
    for wrong, what in (
        (
            seen.soft_delete_s > 0,
            f"deleted checkpoints are kept {seen.soft_delete_s / 86400:g} days, and billed",
        ),
        (
            not seen.uniform_access,
            "each object can have its own access rights, which no list shows",
        ),
        (seen.public_access != "enforced", "objects can be made public"),
    ):
        if wrong:
            return warn(f"{url}: {what}", f"{_make(region)} --adopt")
    return ok(f"{url} is there, not public, without soft delete")


def _make(region: str) -> str:
    """Return the command that makes the bucket; with `--adopt`, it sets up the one that there is."""
    return f"tpujob bucket create --region {region}"


def _generations(types: frozenset[str]) -> set[str]:
    """Return the generations of these types, those that no table has included."""
    found: set[str] = set()
    for type in types:
        with contextlib.suppress(BadSpec):
            found.add(accelerators.find(type).generation)
    return found


def _what(row: AllowanceView) -> str:
    return f"{row['type']} {row['pricing']}" + (f" ({row['part']})" if row["part"] else "")


def _limit(row: AllowanceView) -> str:
    return "no limit" if row["limit"] is None else f"{row['limit']} {row['unit']}"


def _short(row: AllowanceView, ask: str) -> tuple[str, str]:
    limit, granted = row["limit"], row["granted_chips"]
    where = "region" if limit == row["region_limit"] else "zone"
    text = f"{_what(row)}: {granted} chips granted, the limit of the {where} is {limit}"
    generation = accelerators.GENERATIONS.get(row["type"])
    doubtful = generation is not None and not generation.quota_unit_known
    if doubtful and limit is not None and limit >= granted:
        cores = granted * per_chip(row["type"], "cores")
        return f"{text}: enough if it counts chips; counted in cores it takes {cores}", ask
    return f"{text} {row['unit']}", ask
