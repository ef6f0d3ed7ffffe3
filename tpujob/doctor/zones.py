"""The resources of zones and regions: offered types, TPU quota, external addresses, and buckets."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tpujob.doctor.findings import Finding, NotSeen, fail, judged, listed, ok, unknown, warn
from tpujob.doctor.quota import allowances, chips, per_chip
from tpujob.domain.hardware import accelerators
from tpujob.domain.hardware.accelerators import region_of
from tpujob.domain.hardware.generations import at_provider
from tpujob.errors import BadSpec
from tpujob.ports import BucketFacts, Limit

if TYPE_CHECKING:
    from tpujob.api import AllowanceView
    from tpujob.config.context import Context

#: page on which users ask for quota
QUOTA_PAGE = "https://console.cloud.google.com/iam-admin/quotas"


@dataclass(frozen=True, slots=True)
class Addresses:
    """The external IP addresses of one region."""

    limit: int
    used: int


def check_types(context: Context, zone: str, types: frozenset[str]) -> Finding:
    """Check that the zone offers the granted generations; without grants, any generation."""
    prefixes = {type.partition("-")[0] for type in types}
    offered = [g.name for g in accelerators.GENERATIONS.values() if g.prefix in prefixes]
    offered += sorted(_generations(types) - {*accelerators.GENERATIONS})
    granted = dict.fromkeys(grant.type for grant in context.grants if grant.zone == zone)
    missing = [generation for generation in granted if generation not in offered]
    if missing:
        others = [other for other in accelerators.zones(missing[0]) if other != zone]
        where = f"in {listed(others)}" if others else "in no zone that tpujob knows"
        return fail(f"{missing[0]} is not offered there", f"it is offered {where}")
    if not offered:
        return fail("no TPUs are offered there", "remove it from `zones` of the context")
    return ok(f"offers {listed(offered, 9)}")


def check_quota(context: Context, zone: str, limits: Sequence[Limit]) -> Finding:
    """Check the quota for the grants in a zone; without grants, that any limit is above 0."""
    rows = allowances(limits, [zone], grants=context.grants)
    ask = f"ask for quota at {QUOTA_PAGE}?project={context.project}&service=tpu.googleapis.com"
    granted = [row for row in rows if row["granted_chips"]]
    for row in granted:
        amount = f"{row['granted_chips']} chips"
        if not row["known"]:
            why = f"{amount} of {_name(row)} were granted, and no quota of that name is listed"
            return unknown(NotSeen(why, "tpujob quota --all"))
        if row["limit"] == 0:
            text = f"{_name(row)}: {amount} granted, but the limit is 0"
            return fail(text, f"show TPU Research Cloud support this line, or {ask}")
    for row in granted:
        limit = chips(row)
        if limit is not None and limit < row["granted_chips"]:
            return warn(_describe_shortage(row), ask)
    if granted:
        return ok(listed((f"{_name(row)}: {_limit(row)}" for row in granted), 6))
    if not rows:
        return fail("the limit is 0 for every type", ask)
    return ok(listed((f"{_name(row)}: {_limit(row)}" for row in rows), 4))


def check_addresses(context: Context, region: str, addresses: Addresses) -> Finding:
    """Check that external addresses are left: each host takes one if hosts have external addresses."""
    free = max(0, addresses.limit - addresses.used)
    text = f"{free} of {addresses.limit} external addresses are free"
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
    """Return a finding for each region of the zones. `seen`: URL -> the bucket's settings; None: it does not exist."""
    findings: list[Finding] = []
    for region in context.every_region:
        url = context.buckets.get(region)
        if url is None:
            text = f"{region} has zones of the context, and no bucket"
            finding = fail(text, _create_command(region)).named(f"bucket {region}")
        else:
            facts = seen.get(url, NotSeen("the bucket was not checked"))
            finding = judged(f"bucket {region}", facts, partial(_check_bucket, region, url))
        findings.append(finding)
    return findings


def _check_bucket(region: str, url: str, facts: BucketFacts | None) -> Finding:
    create = _create_command(region)
    if facts is None:
        return fail(f"there is no bucket {url}", create)
    if facts.location != region:
        places = f"{url} is in {facts.location}, the zones are in {region}"
        traffic = "every checkpoint and every read of data is billed as traffic between them"
        result = fail if facts.location_type == "region" else warn
        return result(f"{places}: {traffic}", f"{create} --name gs://NEW_NAME")
    if facts.soft_delete_s > 0:
        retention = f"kept {facts.soft_delete_s / 86400:g} days, and billed"
        return warn(f"{url}: deleted checkpoints are {retention}", f"{create} --adopt")
    if not facts.uniform_access:
        text = f"{url}: each object can have its own access rights, which no list shows"
        return warn(text, f"{create} --adopt")
    if facts.public_access != "enforced":
        return warn(f"{url}: objects can be made public", f"{create} --adopt")
    return ok(f"{url} is there, not public, without soft delete")


def _create_command(region: str) -> str:
    return f"tpujob bucket create --region {region}"


def _generations(types: frozenset[str]) -> set[str]:
    """Return the generations of these types, including unknown generations."""
    generations: set[str] = set()
    for type in types:
        with contextlib.suppress(BadSpec):
            generations.add(accelerators.find(type).generation)
    return generations


def _name(row: AllowanceView) -> str:
    part = f" ({row['part']})" if row["part"] else ""
    return f"{row['type']} {row['pricing']}{at_provider(row['provider'])}{part}"


def _limit(row: AllowanceView) -> str:
    return "no limit" if row["limit"] is None else f"{row['limit']} {row['unit']}"


def _describe_shortage(row: AllowanceView) -> str:
    limit, granted = row["limit"], row["granted_chips"]
    scope = "region" if limit == row["region_limit"] else "zone"
    text = f"{_name(row)}: {granted} chips granted, the limit of the {scope} is {limit}"
    generation = accelerators.GENERATIONS.get(row["type"])
    unit_unknown = generation is not None and not generation.quota_unit_known
    if unit_unknown and limit is not None and limit >= granted:
        cores = granted * per_chip(row["type"], "cores")
        return f"{text}: enough if it counts chips; counted in cores it takes {cores}"
    return f"{text} {row['unit']}"
