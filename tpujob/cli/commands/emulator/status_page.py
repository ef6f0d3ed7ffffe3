"""The page of `tpujob emulator status`, and the lines of a plan of faults. Pure."""

from collections.abc import Mapping
from typing import Any

from tpujob.cli.render.table import Column, numbers, table
from tpujob.domain.text import age, clean, many, span

_SLICES = (
    Column("Slice", (12,)),
    Column("Job"),
    Column("Type"),
    Column("Zone", (8,)),
    Column("Pricing"),
    Column("Node"),
    Column("Queued", (9,)),
    Column("Age", right=True),
)
_HOSTS = (
    Column("Slice", (12,)),
    Column("Host", right=True),
    Column("Address"),
    Column("Physical", (14,)),
    Column("Condition", (9,)),
)
_STOCK = (Column("Zone", (8,)), Column("Type"), *numbers("Hosts", "Used"))


def status_page(status: Mapping[str, Any], columns: int, *, color: bool = False) -> str:
    """Return slices and their hosts, the stock of zones in use, the faults in force, and the plan of faults."""
    slices, faults = status["slices"], status["faults"]
    zones = {s["zone"] for s in slices} | {s["zone"] for s in faults["stockouts"]}
    stock = [
        [zone["zone"], generation, str(count["hosts"]), str(count["used"])]
        for zone in status["zones"]
        if zone["zone"] in zones
        for generation, count in zone["stock"].items()
    ]
    rows = [_slice_row(slice) for slice in slices]
    parts = [table(_SLICES, rows, columns, color=color) if slices else "There are no slices."]
    hosts = [_host_row(s, h) for s in slices for h in s["hosts"]]
    if hosts:
        parts.append(table(_HOSTS, hosts, columns, color=color))
    if stock:
        parts.append(table(_STOCK, stock, columns, color=color))
    parts.append("\n".join(fault_lines(faults)) or "No faults are set.")
    if status.get("cut"):
        parts.append("Hosts are cut off from each other.")
    if status.get("profile", "default") != "default":
        parts.append(f"New hosts are {clean(status['profile'])}.")
    if billed := status.get("billed"):
        a, b = (f"{billed['operations'][letter]:,} of class {letter}" for letter in "AB")
        calls = sum(billed["calls"].values())
        parts.append(f"Operations of Cloud Storage: {a}, {b}. Calls of Cloud TPU: {calls:,}.")
    if status["schedule"]:
        parts.append("\n".join(plan_lines(status["schedule"])))
    return "\n\n".join(parts)


def fault_lines(faults: Mapping[str, Any]) -> list[str]:
    lines: list[str] = []
    for s in faults["stockouts"]:
        lasts = "until --off" if s["for_s"] is None else f"for {span(s['for_s'])}"
        effect = "requests fail" if s["fail"] else "requests wait"
        lines.append(f"stockout    {s['zone']} {s['generation'] or 'all types'}, {lasts}, {effect}")
    for q in faults["quotas"]:
        used = f"{q['used']} of {q['limit']} used"
        lines.append(f"quota       {q['zone']} {q['generation']} {q['pricing']}: {used}")
    for call in faults["calls"]:
        name = f"api-error   {call['method']} {call['code']}"
        lines.append(_request_line(name, call["delay_s"], call))
    for request in faults["storage"]:
        path = f" {clean(request['path'])}" if request["path"] else ""
        name = f"storage     {request['method']}{path} {request['status']}"
        lines.append(_request_line(name, request["hang_s"], request))
    lines += [f"api-bug     {name}" for name in faults["api_bugs"]]
    if faults["max_run_s"]:
        lines.append(f"max run     slices are suspended after {span(faults['max_run_s'])}")
    lines += [f"unreachable {zone}, for lists" for zone in faults["unreachable"]]
    for host in faults["bad_hosts"]:
        lines.append(f"bad host    {host['physical']} {clean(host['fault'])}")
    return lines


def _request_line(name: str, delay_s: float, fault: Mapping[str, Any]) -> str:
    delay = f" after {span(delay_s)}" if delay_s else ""
    effect = "before it takes effect" if fault["when"] == "pre" else "after it took effect"
    return f"{name}{delay} {effect}, {many(fault['count'], 'time')}"


def plan_lines(script: Mapping[str, Any]) -> list[str]:
    """Return the name of a plan of faults, how many steps are done, and the next steps."""
    return [
        f"{script['name']}: {script['done']} done, next:",
        *(f"  in {span(s['in_s'])}  {s['do']} {clean(s['what'])}" for s in script["next"]),
    ]


def _slice_row(slice: Mapping[str, Any]) -> list[str]:
    node = slice["state"] or "-"
    if slice["gone_in_s"] is not None:
        node = f"gone in {span(slice['gone_in_s'])}"
    elif slice["maintenance"]:
        node = f"{node}, maintenance"
    elif slice["unreachable"]:
        node = f"{node}, not reached"
    queued = f"{slice['queued'] or '-'}{' by ' + slice['initiator'] if slice['initiator'] else ''}"
    facts = [slice["name"], slice["job"] or "-", slice["type"], slice["zone"], slice["pricing"]]
    return [*(clean(fact) for fact in facts), node, queued, age(slice["age_s"])]


def _host_row(slice: Mapping[str, Any], host: Mapping[str, Any]) -> list[str]:
    slowed = f"{host['factor']:g} times slower" if host["factor"] != 1 else ""
    bad = [word for word in ("silent", "hung") if host[word]]
    condition = ", ".join(filter(None, (clean(host["fault"]), slowed, *bad))) or "good"
    place = [clean(slice["name"]), str(host["index"]), host["address"] or "-", host["physical"]]
    return [*place, condition]
