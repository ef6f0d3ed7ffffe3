"""`tpujob doctor` and `tpujob quota`: whether jobs can run in the context, and how much hardware they may have."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

from tpujob.api import AllowanceView
from tpujob.cli.backend import current_settings, local_stack
from tpujob.cli.errors import FOUND
from tpujob.cli.options import Json, flag
from tpujob.cli.output import current_screen, say, say_json
from tpujob.cli.render.table import Column, table
from tpujob.cli.render.text import clip_middle, paint, wrap
from tpujob.doctor.findings import Finding, Severity, worst
from tpujob.doctor.quota import QuotaOverview
from tpujob.domain.hardware.generations import GENERATIONS
from tpujob.domain.text import clean
from tpujob.errors import Transient


def doctor(as_json: Json = False) -> int:
    """Check that jobs can run, and say what to do where they cannot."""
    from tpujob.wiring import doctor

    now = current_settings()
    found = doctor.findings(now)
    screen = current_screen()
    page = doctor_page(now.context, found, screen.columns, color=screen.color)
    say_json([asdict(one) for one in found]) if as_json else say(page)
    return {Severity.FAIL: FOUND, Severity.UNKNOWN: Transient.exit_code}.get(worst(found), 0)


def quota(
    everywhere: Annotated[bool, flag("All zones, not only those of the context.", "--all")] = False,
    as_json: Json = False,
) -> None:
    """Show limits, use and grants of each type of TPU, by zone."""
    from tpujob.wiring import doctor

    now = current_settings()
    if now.local:
        local_stack()
    found = doctor.quotas(now, everywhere=everywhere)
    screen = current_screen()
    page = quota_page(found, screen.columns, color=screen.color, everywhere=everywhere)
    say_json(_as_json(found)) if as_json else say(page)


def _as_json(found: Any) -> dict[str, Any]:
    """A limit that does not exist is null, and so is an unknown use."""
    return {
        "of": found.of,
        "rows": found.rows,
        "others": [
            {"metric": one.metric, "scope": one.scope, "place": one.place, "limit": one.limit}
            for one in found.others
        ],
        "notes": list(found.notes),
    }


# The pages -----------------------------------------------------------------------------------------------------------


#: how a verdict reads, and its colour
_VERDICTS = {
    Severity.OK: ("ok", "green"),
    Severity.WARN: ("warn", "yellow"),
    Severity.FAIL: ("FAIL", "red"),
    Severity.UNKNOWN: ("?", "magenta"),
}
_QUOTA = (
    Column("Type"),
    Column("Pricing"),
    Column("Zone", floors=(16, 14, 8), cut=clip_middle),
    Column("In zone", right=True),
    Column("In region", right=True),
    Column("Limit", right=True),
    Column("Used", right=True),
    Column("Unit"),
    Column("Granted", right=True),
)
_OTHERS = (
    Column("Quota", floors=(40, 24), cut=clip_middle),
    Column("Where", floors=(16, 8), cut=clip_middle),
    Column("Limit", right=True),
)


def doctor_page(
    context: str, found: Sequence[Finding], columns: int, *, color: bool = False
) -> str:
    """One line for each check, and below a failed one the command that helps."""
    room = max((len(one.name) for one in found), default=0)
    indent = " " * (4 + 1 + room + 2)
    lines: list[str] = []
    for one in found:
        word, style = _VERDICTS[one.verdict]
        head = f"{paint(word.ljust(4), style, color)} {one.name.ljust(room)}  "
        first, *rest = wrap(clean(one.what), max(20, columns - len(indent)))
        lines += [head + first, *(indent + line for line in rest)]
        if one.cure:
            lines.append(f"     {paint('->', 'dim', color)} {clean(one.cure)}")
    return "\n".join([*lines, "", *wrap(_sum(context, found), columns)])


def quota_page(
    found: QuotaOverview, columns: int, *, color: bool = False, everywhere: bool = False
) -> str:
    """A row for each kind of TPU in each zone, then remarks on the figures."""
    parts: list[str] = []
    if found.rows:
        parts.append(table(_QUOTA, [_row(row) for row in found.rows], columns, color=color))
    else:
        parts.append(
            f"No TPU quota of {found.of} {'anywhere' if everywhere else 'in these zones'}."
        )
    if found.others and everywhere:
        rest = {"project": "the project"}
        others = [
            (
                clean(one.metric),
                clean(one.place or rest.get(one.scope, "everywhere else")),
                _limit(one.limit),
            )
            for one in found.others
        ]
        parts.append(table(_OTHERS, others, columns, color=color))
    parts += ["\n".join(wrap(clean(text), columns)) for text in _remarks(found)]
    return "\n\n".join(parts)


def _sum(context: str, found: Sequence[Finding]) -> str:
    count = {verdict: sum(one.verdict is verdict for one in found) for verdict in Severity}
    results = [
        f"{count[verdict]} {word}"
        for verdict, word in (
            (Severity.FAIL, "failed"),
            (Severity.UNKNOWN, "could not be checked"),
            (Severity.WARN, "with a warning"),
        )
        if count[verdict]
    ]
    of = f"Context {context}: {len(found)} checks"
    return f"{of}, {', '.join(results)}." if results else f"{of}, all passed."


def _row(row: AllowanceView) -> tuple[str, ...]:
    limits = [row["zone_limit"], row["region_limit"], row["limit"]]
    return (
        f"{row['type']} {row['part']}".strip(),
        row["pricing"],
        row["zone"],
        *(_limit(limit) if row["known"] else "?" for limit in limits),
        "?" if row["used"] is None else str(row["used"]),
        row["unit"],
        f"{row['granted_chips']} chips" if row["granted_chips"] else "-",
    )


def _limit(limit: int | None) -> str:
    return "no limit" if limit is None else str(limit)


def _remarks(found: QuotaOverview) -> list[str]:
    remarks: list[str] = []
    if any(row["used"] is not None for row in found.rows):
        remarks.append("Used: counted from the nodes and queued resources that the API lists.")
    doubtful = [
        g.name
        for g in GENERATIONS.values()
        if not g.quota_unit_known
        and any(r["type"] == g.name and r["granted_chips"] for r in found.rows)
    ]
    if doubtful:
        remarks.append(
            f"{' and '.join(doubtful)}: grants are in chips of two cores each; Google does not say whether "
            "the quota counts chips or cores."
        )
    return [*remarks, *(f"Could not be read: {note}" for note in found.notes)]
