"""The result of a sync, real or previewed, as a record and as lines. Pure."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from tpujob.data.locations import Traffic
from tpujob.data.objects import CopyOutcome, Operations, Problems
from tpujob.data.sync.run import Preview
from tpujob.domain.hardware.prices import GIB, LIST
from tpujob.domain.text import amount_of_bytes, clean, many, span, usd

_SHOWN = 20  #: problems that are listed


def preview_record(preview: Preview) -> dict[str, Any]:
    return _record(preview, preview.objects, preview.bytes, preview)


def outcome_record(outcome: CopyOutcome, operations: Operations, seconds: float) -> dict[str, Any]:
    return {
        **_record(outcome, outcome.copied, outcome.copied_bytes, operations),
        "bytes_moved": outcome.sent_bytes,
        "unverified": outcome.unverified,
        "seconds": round(seconds, 3),
    }


def _record(
    result: Preview | CopyOutcome, objects: int, size: int, billed: Preview | Operations
) -> dict[str, Any]:
    return {
        "objects": objects,
        "bytes": size,
        "same": result.same,
        "class_a": billed.class_a,
        "class_b": billed.class_b,
        "usd_operations": float(LIST.usd_of_operations(billed.class_a, billed.class_b)),
        **_traffic_record(result.traffic, size),
        "prices_as_of": LIST.class_a.source.as_of.isoformat(),
        **problem_fields(result),
    }


def preview_page(record: Mapping[str, Any]) -> str:
    title = f"To copy: {_amount(record)}; {record['same']:,} are there already."
    return "\n".join([title, *_cost_lines(record), *problem_lines(record)])


def outcome_page(record: Mapping[str, Any]) -> str:
    speed = ""
    if record["bytes_moved"]:
        rate = record["bytes_moved"] / max(record["seconds"], 0.001)
        verified = "" if record["unverified"] else ", each verified by its CRC32C"
        speed = f" in {span(record['seconds'])} ({amount_of_bytes(rate)}/s){verified}"
    lines = [f"Copied {_amount(record)}{speed}; {record['same']:,} were there already."]
    if record["unverified"]:
        count = many(record["unverified"], "object")
        text = f"{count} without a checksum at the source: length and TLS"
        lines.append(f"  not verified      {text}")
    return "\n".join([*lines, *_cost_lines(record), *problem_lines(record)])


def _amount(record: Mapping[str, Any]) -> str:
    return f"{many(record['objects'], 'object')}, {amount_of_bytes(record['bytes'])}"


def _cost_lines(record: Mapping[str, Any]) -> list[str]:
    operations = f"{record['class_a']:,} class A, {record['class_b']:,} class B"
    price = f"{usd(record['usd_operations'])} (list prices of {record['prices_as_of']})"
    return [f"  operations        {operations}: {price}", *_traffic_lines(record)]


def _traffic_record(traffic: Traffic, size: int) -> dict[str, Any]:
    """Return route and price of the traffic; `usd_traffic` is null where no price is known."""
    usd: Decimal | None = Decimal(0)
    if traffic.route == "regions":
        both = traffic.here and traffic.there
        usd = LIST.usd_of_traffic(size, traffic.here, traffic.there) if both else None
    elif traffic.route == "internet":
        usd = LIST.to_internet.of(Decimal(size) / GIB)
    elif traffic.route == "aws" and size:
        usd = None
    return {
        "traffic": traffic.route,
        "usd_traffic": None if usd is None else float(usd),
        "from": traffic.here,
        "to": traffic.there,
    }


def _traffic_lines(record: Mapping[str, Any]) -> list[str]:
    cost, size = record["usd_traffic"], record["bytes"]
    if not size:
        return []
    match record["traffic"]:
        case "internet" if cost:
            text = f"{usd(cost)} to the internet; free to a VM of the bucket's region"
            return [f"  out of the cloud  {text}"]
        case "regions" if cost is None:
            text = "the price is not known, as this account may not see where a bucket is"
            return [f"  between regions   {text}"]
        case "regions" if cost:
            return [f"  between regions   {record['from']} to {record['to']}: {usd(cost)}"]
        case "aws":
            text = "not priced here: AWS bills what leaves its region"
            return [f"  out of S3         {text}"]
        case _:
            return []


def problem_lines(record: Mapping[str, Any], title: str = "Not copied") -> list[str]:
    """Return a line for each name that was not copied or in conflict; empty: there was none."""
    count = record["left_out"] + record["conflicts"]
    if not count:
        return []
    lines = [f"{title}: {many(count, 'name')}"]
    lines += [f"  {p['name']}: {p['reason']}" for p in record["problems"][:_SHOWN]]
    return lines + ([f"  and {count - _SHOWN:,} more: --json"] if count > _SHOWN else [])


def problem_fields(result: Problems) -> dict[str, Any]:
    """Return the counts and the first names of problems. Names with unprintable characters are quoted with escapes."""
    problems = [
        {"name": p.name if p.name.isprintable() else ascii(p.name), "reason": clean(p.reason)}
        for p in result.problems
    ]
    return {"left_out": result.left_out, "conflicts": result.conflicts, "problems": problems}
