"""What `tpujob capacity` prints: the hardware of all jobs, quota, and what the cloud refuses. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpujob.cli.render.table import Column, table
from tpujob.cli.render.text import clip_middle, wrap
from tpujob.domain.figures import age, rate, seconds, span
from tpujob.domain.text import clean, many

if TYPE_CHECKING:
    from tpujob.api import CapacityReport, OfferView, OpenCircuit, QuotasView, QuotaView

_OFFERS = (
    Column("Type", floors=(10, 8, 7), cut=clip_middle),
    Column("Zone", floors=(14, 13, 8), cut=clip_middle),
    Column("Pricing", floors=(9, 6, 4)),
    Column("Held", right=True),
    Column("$/h", right=True),
    Column("Asked", right=True),
    Column("Ready", right=True),
    Column("Wait", right=True),
    Column("Refused", right=True),
    Column("Preempted", right=True),
)
_QUOTA = (
    Column("Type"),
    Column("Zone", floors=(16, 14, 8), cut=clip_middle),
    Column("Pricing", floors=(9, 6, 4)),
    Column("Limit", right=True),
    Column("Used", right=True),
    Column("Held", right=True),
    Column("Unit"),
    Column("Refused", right=True),
)


def capacity_page(found: CapacityReport, columns: int, now: float, *, color: bool = False) -> str:
    """Ready, wait (half of them waited no longer), refused and preempted are of the last day."""
    out: list[str] = []
    if found["offers"]:
        out.append(table(_OFFERS, [_offer(one) for one in found["offers"]], columns, color=color))
    elif not found["closed"]:
        out.append("No hardware is held or asked for, and nothing happened within a day.")
    out += [_closed(one, now) for one in found["closed"]]
    if found["waiting"]:
        wait = "waits" if found["waiting"] == 1 else "wait"
        out.append(f"{many(found['waiting'], 'job')} {wait} for a slice.")
    if quota := found.get("quota"):
        out += ["", *_quota(quota, columns, now, color=color)]
    return "\n".join(out)


def _quota(found: QuotasView, columns: int, now: float, *, color: bool) -> list[str]:
    """Used: as the cloud says, whoever holds it; held and refused: by this backend's jobs."""
    out: list[str] = []
    if found["rows"]:
        out.append(table(_QUOTA, [_allowed(one) for one in found["rows"]], columns, color=color))
    if found["at"]:
        read = age(max(0.0, now - (seconds(found["at"]) or now)))
        none = "" if found["rows"] else "no quota in these zones, and nothing held; "
        out.append(f"Quota: {none}read {read} ago; `tpujob quota` says more.")
    elif not found["unknown"]:
        out.append("Quota: it is being read; ask again in some seconds.")
    out += [f"Could not be read: {clean(note)}" for note in found["notes"]]
    if found["unknown"]:
        out.append(f"Quota could not be read: {clean(found['unknown'])}. {clean(found['hint'])}")
    return [line for text in out for line in (wrap(text, columns) if "\n" not in text else [text])]


def _allowed(one: QuotaView) -> tuple[str, ...]:
    limit = "no limit" if one["limit"] is None else str(one["limit"])
    return (
        clean(f"{one['type']} {one['part']}".strip()),
        clean(one["zone"]),
        clean(one["pricing"]),
        limit if one["known"] else "?",
        "?" if one["used"] is None else str(one["used"]),
        _count(one["held"]),
        one["unit"],
        _count(one["refused"]),
    )


def _offer(one: OfferView) -> tuple[str, ...]:
    waited = one["wait_p50_s"]
    return (
        clean(one["type"]),
        clean(one["zone"]),
        clean(one["pricing"]),
        _count(one["held"]),
        rate(one["usd_per_hour"]) if one["held"] else "-",
        _count(one["asked"]),
        _count(one["ready"]),
        "-" if waited is None else span(waited),
        _count(one["refused"]),
        _count(one["preempted"]),
    )


def _count(number: int) -> str:
    return str(number) if number else "-"


def _closed(one: OpenCircuit, now: float) -> str:
    """`STOCKOUT of v4-32 spot in us-central2-b: 3 refusals since 12m ago, asked again in 40s`."""
    since, again = seconds(one["since"]) or now, seconds(one["again_at"]) or now
    then = f"asked again in {span(again - now)}" if one["open"] else "asked when a job wants it"
    what = f"{clean(one['what'])} {clean(one['pricing'])} in {clean(one['place'])}"
    told = f"{many(one['refusals'], 'refusal')} within {span(max(0.0, now - since))}"
    return f"{one['cause']} of {what}: {told}, {then}"
