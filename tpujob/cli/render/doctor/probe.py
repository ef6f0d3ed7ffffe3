"""What `tpujob doctor --probe` prints. Pure."""

from pathlib import Path

from tpujob.cli.render.text import paint, wrap
from tpujob.doctor.probe.run import Report
from tpujob.doctor.probe.spend import Budget, Choice
from tpujob.doctor.probe.verdicts import Result, Verdict
from tpujob.domain.text import clean

#: how a verdict reads, and its colour
_VERDICTS = {
    Verdict.OK: ("ok", "green"),
    Verdict.DIFFERS: ("differs", "red"),
    Verdict.UNTRIED: ("untried", "magenta"),
}
_ROOM = 16  #: columns for a probe's id


def question(context: str, choice: Choice, budget: Budget, folder: Path) -> str:
    """What is about to be spent, before anybody is asked."""
    most = budget.usd(budget.seconds)
    return (
        f"Probes the project of {context} with one spot slice {choice.type} in {choice.zone}: "
        f"${choice.usd_per_hour:.2f}/h by list price, usually for 10 to 15 min, never more than "
        f"{budget.seconds / 60:.0f} min (${most:.2f}; cap ${budget.cap:.2f}).\n"
        f"Waiting for capacity is free. The slice is deleted at the end, also on Ctrl-C. "
        f"Answers, without names and addresses, go to {folder}"
    )


def result_text(result: Result, columns: int, *, color: bool = False) -> str:
    """One line, and of what differs what was expected."""
    word, style = _VERDICTS[result.verdict]
    indent = " " * (8 + _ROOM + 1)
    seen = wrap(clean(result.seen), max(20, columns - len(indent)))
    head = f"{paint(word.ljust(7), style, color)} {result.probe.ljust(_ROOM)} "
    lines = [head + seen[0] if seen else head, *(indent + line for line in seen[1:])]
    if result.verdict is Verdict.DIFFERS:
        expected = wrap(f"expected: {clean(result.expected)}", max(20, columns - len(indent)))
        lines += [indent + line for line in expected]
    return "\n".join(lines)


def end_text(report: Report, columns: int) -> str:
    count = {v: sum(one.verdict is v for one in report.results) for v in Verdict}
    said = (
        f"{len(report.results)} probes: {count[Verdict.OK]} as expected, {count[Verdict.DIFFERS]} "
        f"differ, {count[Verdict.UNTRIED]} could not be tried."
    )
    held = f"The slice was held for {report.held_s / 60:.1f} min, about ${report.usd:.3f} by list price."
    where = f"Attach this folder to a report: {report.folder}"
    cost = [held if report.had_slice else "There was no slice, so nothing was spent.", where]
    return "\n".join(["", *(line for text in (said, *cost) for line in wrap(text, columns))])
