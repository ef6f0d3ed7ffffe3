"""What `tpujob emulator status` prints, and the lines of a plan of faults. Pure."""

from collections.abc import Mapping
from typing import Any

from tpujob.cli.render.table import Column, table
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
_STOCK = (
    Column("Zone", (8,)),
    Column("Type"),
    Column("Hosts", right=True),
    Column("Used", right=True),
)


def status_page(found: Mapping[str, Any], columns: int, *, color: bool = False) -> str:
    """Slices and their hosts, the stock of zones in use, the faults in force and the plan of faults."""
    slices, faults = found["slices"], found["faults"]
    touched = {s["zone"] for s in slices} | {s["zone"] for s in faults["stockouts"]}
    stock = [
        [zone["zone"], generation, str(held["hosts"]), str(held["used"])]
        for zone in found["zones"]
        if zone["zone"] in touched
        for generation, held in zone["stock"].items()
    ]
    parts = [
        table(_SLICES, [_slice_row(s) for s in slices], columns, color=color)
        if slices
        else "There are no slices."
    ]
    hosts = [_host_row(s, h) for s in slices for h in s["hosts"]]
    if hosts:
        parts.append(table(_HOSTS, hosts, columns, color=color))
    if stock:
        parts.append(table(_STOCK, stock, columns, color=color))
    parts.append("\n".join(fault_lines(faults)) or "No faults are set.")
    if found.get("cut"):
        parts.append("Hosts are cut off from each other.")
    if found.get("profile", "default") != "default":
        parts.append(f"New hosts are {clean(found['profile'])}.")
    if billed := found.get("billed"):
        a, b = (f"{billed['operations'][letter]:,} of class {letter}" for letter in "AB")
        calls = sum(billed["calls"].values())
        parts.append(f"Operations of Cloud Storage: {a}, {b}. Calls of Cloud TPU: {calls:,}.")
    if found["schedule"]:
        parts.append("\n".join(plan_lines(found["schedule"])))
    return "\n\n".join(parts)


def fault_lines(faults: Mapping[str, Any]) -> list[str]:
    lines: list[str] = []
    for s in faults["stockouts"]:
        lasts = "until --off" if s["for_s"] is None else f"for {span(s['for_s'])}"
        how = "requests fail" if s["fail"] else "requests wait"
        lines.append(f"stockout    {s['zone']} {s['generation'] or 'all types'}, {lasts}, {how}")
    for q in faults["quotas"]:
        used = f"{q['used']} of {q['limit']} used"
        lines.append(f"quota       {q['zone']} {q['generation']} {q['pricing']}: {used}")
    calls = [(f"api-error   {c['method']} {c['code']}", c["delay_s"], c) for c in faults["calls"]]
    for f in faults["storage"]:
        where = f" {clean(f['path'])}" if f["path"] else ""
        calls.append((f"storage     {f['method']}{where} {f['status']}", f["hang_s"], f))
    for text, delay, c in calls:
        hang = f" after {span(delay)}" if delay else ""
        effect = "before it takes effect" if c["when"] == "pre" else "after it took effect"
        lines.append(f"{text}{hang} {effect}, {many(c['count'], 'time')}")
    lines += [f"api-bug     {name}" for name in faults["api_bugs"]]
    if faults["max_run_s"]:
        lines.append(f"max run     slices are suspended after {span(faults['max_run_s'])}")
    lines += [f"unreachable {zone}, for lists" for zone in faults["unreachable"]]
    for b in faults["bad_hosts"]:
        lines.append(f"bad host    {b['physical']} {clean(b['fault'])}")
    return lines


def plan_lines(script: Mapping[str, Any]) -> list[str]:
    """A plan of faults: its name, how many steps are done, and the next ones."""
    return [
        f"{script['name']}: {script['done']} done, next:",
        *(f"  in {span(max(0, s['in_s']))}  {s['do']} {clean(s['what'])}" for s in script["next"]),
    ]


def _slice_row(s: Mapping[str, Any]) -> list[str]:
    node = s["state"] or "-"
    if s["gone_in_s"] is not None:
        node = f"gone in {span(s['gone_in_s'])}"
    elif s["maintenance"]:
        node = f"{node}, maintenance"
    elif s["unreachable"]:
        node = f"{node}, not reached"
    queued = f"{s['queued'] or '-'}{' by ' + s['initiator'] if s['initiator'] else ''}"
    facts = [s["name"], s["job"] or "-", s["type"], s["zone"], s["pricing"]]
    return [*(clean(f) for f in facts), node, queued, age(s["age_s"])]


def _host_row(s: Mapping[str, Any], h: Mapping[str, Any]) -> list[str]:
    slowed = f"{h['factor']:g} times slower" if h["factor"] != 1 else ""
    bad = [word for word in ("silent", "hung") if h[word]]
    condition = ", ".join(filter(None, (clean(h["fault"]), slowed, *bad))) or "good"
    return [clean(s["name"]), str(h["index"]), h["address"] or "-", h["physical"], condition]
