"""`tpujob doctor` and `tpujob quota`: checks whether jobs can run in the context, and the limits of its hardware."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

from tpujob.api import AllowanceView
from tpujob.cli.backend import current_settings, local_stack
from tpujob.cli.errors import PROBLEM_FOUND
from tpujob.cli.options import Json, flag
from tpujob.cli.output import get_screen, say, say_json
from tpujob.cli.render.table import Column, numbers, table
from tpujob.cli.render.text import clip_middle, paint, wrap
from tpujob.doctor.findings import Finding, Severity, worst
from tpujob.doctor.quota import QuotaOverview
from tpujob.domain.hardware.generations import GENERATIONS
from tpujob.domain.text import clean
from tpujob.errors import Transient


def doctor(as_json: Json = False) -> int:
    """Check that jobs can run, and say what to do where they cannot."""
    from tpujob.wiring import doctor

    settings = current_settings()
    findings = doctor.findings(settings)
    screen = get_screen()
    page = doctor_page(settings.context, findings, screen.columns, color=screen.color)
    say_json([asdict(finding) for finding in findings]) if as_json else say(page)
    return {Severity.FAIL: PROBLEM_FOUND, Severity.UNKNOWN: Transient.exit_code}.get(
        worst(findings), 0
    )


def quota(
    everywhere: Annotated[bool, flag("All zones, not only those of the context.", "--all")] = False,
    as_json: Json = False,
) -> None:
    """Show limits, use and grants of each type of TPU, by zone."""
    from tpujob.wiring import doctor

    settings = current_settings()
    if settings.local:
        local_stack()
    overview = doctor.quotas(settings, everywhere=everywhere)
    screen = get_screen()
    page = quota_page(overview, screen.columns, color=screen.color, everywhere=everywhere)
    say_json(_as_json(overview)) if as_json else say(page)


def _as_json(overview: QuotaOverview) -> dict[str, Any]:
    """Return the overview as JSON. A limit that does not exist is null, and so is an unknown use."""
    keys = ("metric", "scope", "place", "limit")
    return {
        "of": overview.of,
        "rows": overview.rows,
        "others": [{key: getattr(limit, key) for key in keys} for limit in overview.others],
        "notes": list(overview.notes),
    }


# The pages -----------------------------------------------------------------------------------------------------------


#: word and colour of each verdict
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
    *numbers("In zone", "In region", "Limit", "Used"),
    Column("Unit"),
    Column("Granted", right=True),
)
_OTHERS = (
    Column("Quota", floors=(40, 24), cut=clip_middle),
    Column("Where", floors=(16, 8), cut=clip_middle),
    Column("Limit", right=True),
)


def doctor_page(
    context: str, findings: Sequence[Finding], columns: int, *, color: bool = False
) -> str:
    """Return a line for each check, and below a failed one the command that helps."""
    name_width = max((len(finding.name) for finding in findings), default=0)
    indent = " " * (4 + 1 + name_width + 2)
    lines: list[str] = []
    for finding in findings:
        word, style = _VERDICTS[finding.verdict]
        head = f"{paint(word.ljust(4), style, color)} {finding.name.ljust(name_width)}  "
        first, *rest = wrap(clean(finding.what), max(20, columns - len(indent)))
        lines += [head + first, *(indent + line for line in rest)]
        if finding.cure:
            lines.append(f"     {paint('->', 'dim', color)} {clean(finding.cure)}")
    return "\n".join([*lines, "", *wrap(_totals(context, findings), columns)])


def quota_page(
    overview: QuotaOverview, columns: int, *, color: bool = False, everywhere: bool = False
) -> str:
    """Return a row for each type of TPU in each zone, then remarks on the figures."""
    parts: list[str] = []
    if overview.rows:
        parts.append(
            table(_QUOTA, [_quota_cells(row) for row in overview.rows], columns, color=color)
        )
    else:
        parts.append(
            f"No TPU quota of {overview.of} {'anywhere' if everywhere else 'in these zones'}."
        )
    if overview.others and everywhere:
        others = [
            (
                clean(limit.metric),
                clean(limit.place)
                or ("the project" if limit.scope == "project" else "everywhere else"),
                _limit(limit.limit),
            )
            for limit in overview.others
        ]
        parts.append(table(_OTHERS, others, columns, color=color))
    parts += ["\n".join(wrap(clean(text), columns)) for text in _remarks(overview)]
    return "\n\n".join(parts)


def _totals(context: str, findings: Sequence[Finding]) -> str:
    count = Counter(finding.verdict for finding in findings)
    results = [
        f"{count[verdict]} {word}"
        for verdict, word in (
            (Severity.FAIL, "failed"),
            (Severity.UNKNOWN, "could not be checked"),
            (Severity.WARN, "with a warning"),
        )
        if count[verdict]
    ]
    checks = f"Context {context}: {len(findings)} checks"
    return f"{checks}, {', '.join(results)}." if results else f"{checks}, all passed."


def _quota_cells(row: AllowanceView) -> tuple[str, ...]:
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


def _remarks(overview: QuotaOverview) -> list[str]:
    remarks: list[str] = []
    if any(row["used"] is not None for row in overview.rows):
        remarks.append("Used: counted from the nodes and queued resources that the API lists.")
    doubtful = [
        generation.name
        for generation in GENERATIONS.values()
        if not generation.quota_unit_known
        and any(row["type"] == generation.name and row["granted_chips"] for row in overview.rows)
    ]
    if doubtful:
        remarks.append(
            f"{' and '.join(doubtful)}: grants are in chips of two cores each; Google does not say whether "
            "the quota counts chips or cores."
        )
    return [*remarks, *(f"Could not be read: {note}" for note in overview.notes)]
