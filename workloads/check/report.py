"""Formats the findings of a check: all details for one target, a table for several. Computes only hours."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from textwrap import wrap
from typing import NamedTuple

from workloads.check.finding import Finding, Program, memory
from workloads.check.roofline import Reached, Step, likely, narrowed, step
from workloads.check.topologies import Target, target

#: No line is longer, unless there is nowhere to break it.
_COLUMNS = 80

_MEANING = (
    "Nothing was run: memory is the compiler's own figure, bounds are the peaks of the chip, and the step is what is "
    "published of others, from a plain port to tuned programs."
)


class Work(NamedTuple):
    """The amount of work of a whole training."""

    amount: float
    unit: str  #: `steps`, `rows` or `tokens`
    #: the part of the peak that the programs of a lab reached, by generation; others: what is published
    reached: Mapping[str, Reached] = {}

    def steps(self, of: Finding) -> float:
        each = {"steps": 1, "rows": of.rows, "tokens": of.tokens}[self.unit]
        return self.amount / each

    def part_of_peak(self, on: Target) -> Reached:
        return narrowed(self.reached.get(on.chip.name), on.chip.name)


class Pace(NamedTuple):
    """The ranges of a training's speed and hours, from the best likely value to the worst."""

    step: tuple[float, float]  #: seconds
    per_second: tuple[float, float]  #: tokens, else rows, else steps, by what is known of a step
    hours: tuple[float, float]
    chip_hours: tuple[float, float]


def pace(of: Finding, work: Work) -> Pace | None:
    """None: nothing is known but the memory."""
    if of.program is None or not of.program.analysed:
        return None
    on = target(of.target)
    times = likely(step(of.program, on), work.part_of_peak(on))
    units = of.tokens or of.rows or 1
    hours = [work.steps(of) * seconds / 3600 for seconds in times]
    return Pace(
        times,
        (units / times[0], units / times[1]),
        (hours[0], hours[1]),
        (hours[0] * on.chips, hours[1] * on.chips),
    )


def page(title: str, findings: Sequence[Finding], work: Work) -> str:
    """Return the report of all findings as text."""
    body = _table(findings, work) if len(findings) > 1 else _single(findings[0], work)
    notes = [f"{f.target}: {f.reason}" for f in findings if f.reason and len(findings) > 1]
    warned: dict[str, list[str]] = {}
    for finding in findings:
        for text in finding.warnings:
            warned.setdefault(text, []).append(finding.target)
    notes += [f"{finding.target}: {text}" for finding in findings for text in finding.gains]
    notes += [f"{', '.join(names)}: warning: {text}" for text, names in warned.items()]
    below = [line for text in (*notes, _MEANING) for line in _lines(text)]
    return "\n".join([*_lines(title), "", *body, "", *below])


def as_json(findings: Iterable[Finding], work: Work) -> list[dict[str, object]]:
    """Return the finding of each target as JSON, with the bound in seconds and the pace in hours."""
    out: list[dict[str, object]] = []
    for finding in findings:
        on, going = target(finding.target), pace(finding, work)
        record: dict[str, object] = {**asdict(finding), "chips": on.chips}
        if finding.program is not None and going is not None:
            spent = step(finding.program, on)
            record["step_seconds"] = {
                **spent._asdict(),
                "bound": spent.bound,
                "apart": spent.apart,
                "limited_by": spent.limited_by,
            }
            own = on.chip.name in work.reached
            record["pace"] = {
                **going._asdict(),
                "work": work.amount,
                "unit": work.unit,
                "reached": work.part_of_peak(on),
                "own": own,
            }
        out.append(record)
    return out


# One target ----------------------------------------------------------------------------------------------------------


def _single(of: Finding, work: Work) -> list[str]:
    on = target(of.target)
    unit = "chip" if on.chip.devices == 1 else "core"
    rows: list[tuple[str, str]] = [(of.target, _slices(on))]
    rows.append(("fits", _fits(of, unit)))
    if of.advice:
        rows.append(("try", of.advice))
    if of.rows or of.tokens:
        rows.append(("batch", _batch(of)))
    if of.program is not None:
        spent, going = step(of.program, on), pace(of, work)
        if going is not None:
            rows += _operations(of.program, unit)
            rows += _exchanges(of.program, unit)
            rows += _times(spent, going, on, of, work)
        rows.append(("compiled", _compiled(of, of.program)))
    width = max(len(name) for name, _ in rows) + 2
    return [line for name, text in rows for line in _lines(text, f"{name:<{width}}")]


def _slices(on: Target) -> str:
    sides = f"{on.chips_per_slice} {on.chip.name} chips, {on.chip.topology(on.chips_per_slice)}"
    return sides if on.slices == 1 else f"{on.slices} slices of {sides}"


def _fits(of: Finding, unit: str) -> str:
    limit = f"{memory(of.limit_bytes)} that the compiler allows a {unit}"
    if of.program is None:
        word = {"no": "NO", "refused": "REFUSED"}.get(of.fit, f"unknown ({of.fit})")
        return f"{word}: {of.reason}" + (f" of the {limit}" if of.needed_bytes else "")
    peak, held = memory(of.program.peak_bytes), memory(of.program.argument_bytes)
    return f"yes: {peak} of the {limit}, {held} of it state and batch"


def _batch(of: Finding) -> str:
    parameters = f"; {_si(of.parameters)} parameters" if of.parameters else ""
    if not of.rows:
        return f"{of.tokens:,} tokens a step{parameters}"
    tokens = f" of {of.tokens // of.rows:,} tokens" if of.tokens else ""
    return f"{of.rows:,} rows{tokens} a step{parameters}"


def _operations(of: Program, unit: str) -> list[tuple[str, str]]:
    again = of.flops / of.model_flops - 1 if of.model_flops else 0
    repeated = f"; {again:.0%} of that again" if again > 0.01 else ""
    return [
        (
            "computes",
            f"{_si(of.flops)}FLOP a {unit}; the model {_si(of.model_flops)}FLOP{repeated}",
        ),
        ("moves", f"{_si(of.hbm_bytes)}B to and from memory a {unit}"),
    ]


def _exchanges(of: Program, unit: str) -> list[tuple[str, str]]:
    shown = [e for e in of.exchanges if e.wire_bytes >= 1e-3 * of.exchanges[0].wire_bytes]
    lines = [
        f"{_si(e.wire_bytes)}B a {unit} by {e.times:,} {e.kind} along {'+'.join(e.axes)}"
        for e in shown
    ]
    return [("sends" if not i else "", line) for i, line in enumerate(lines)]


def _times(spent: Step, going: Pace, on: Target, of: Finding, work: Work) -> list[tuple[str, str]]:
    parts = {"MXU": spent.mxu, "HBM": spent.hbm, "ICI": spent.ici, "DCN": spent.dcn}
    named = ", ".join(f"{name} {_ms(value)}" for name, value in parts.items() if value)
    unit = "tokens" if of.tokens else "rows" if of.rows else "steps"
    return [
        ("bound", f"{_ms(spent.bound)} by {spent.limited_by}: {named}; one after another {_ms(spent.apart)}"),
        ("step", f"{_span(going.step, _ms)} {_reached(work, on)}"),
        ("speed", f"{_span(going.per_second[::-1], _si)} {unit}/s"),
        (_work(work), f"{_span(going.hours, _hours)}, {_span(going.chip_hours, _count)} chip-hours"),
    ]  # fmt: skip


def _reached(work: Work, on: Target) -> str:
    least, most = work.part_of_peak(on)
    of_peak = f"where {least:.0%} to {most:.0%} of the peak is reached"
    if on.chip.name in work.reached:
        return f"{of_peak}, as your own jobs did on {on.chip.name}"
    return f"{of_peak}, from a plain port to what tuned programs do on {on.chip.name}"


def _compiled(of: Finding, program: Program) -> str:
    by = ", ".join(f"{name} {of.versions[name]}" for name in ("jax", "libtpu"))
    return f"in {program.trace_seconds + program.compile_seconds:.0f} s by {by}"


# Several targets -----------------------------------------------------------------------------------------------------

_NEEDS = ("Target", "Chips", "Fits", "Memory", "of", "FLOP", "HBM", "ICI", "DCN")
_TAKES = ("Target", "Bound", "by", "Step", "Per s", "Hours")
_LEFT = {"Target", "Fits", "by"}


def _table(findings: Sequence[Finding], work: Work) -> list[str]:
    """Return two tables, as one would be too wide: the needs of a step, and its times."""
    units = {"tokens" if finding.tokens else "rows" for finding in findings if finding.rows}
    note = (
        f"Memory, FLOP and bytes are those of one device in one step; {' or '.join(sorted(units)) or 'steps'} per "
        f"second; hours for {_work(work)}."
    )
    times = [row for finding in findings if (row := _takes(finding, work))]
    timed = [*_aligned([_TAKES, *times]), ""] if times else []
    return [*_aligned([_NEEDS, *map(_needs, findings)]), "", *timed, *_lines(note)]


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = ["<" if name in _LEFT else ">" for name in rows[0]]
    return [
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)).rstrip()
        for row in rows
    ]  # fmt: skip


def _needs(of: Finding) -> tuple[str, ...]:
    chips, limit, program = str(target(of.target).chips), memory(of.limit_bytes), of.program
    if program is None:
        needed = memory(of.needed_bytes) if of.needed_bytes else ""
        return (of.target, chips, of.fit, needed, limit, "", "", "", "")
    start = (of.target, chips, of.fit, memory(program.peak_bytes), limit)
    if not program.analysed:
        return (*start, "", "", "", "")
    between = sum(e.wire_bytes for e in program.exchanges if "dcn" in e.axes)
    within = sum(e.wire_bytes for e in program.exchanges) - between
    moved = [f"{_si(size)}B" if size else "" for size in (program.hbm_bytes, within, between)]
    return (*start, _si(program.flops).strip(), *moved)


def _takes(of: Finding, work: Work) -> tuple[str, ...] | None:
    """None: nothing is known but the memory."""
    going = pace(of, work)
    if going is None or of.program is None:
        return None
    spent = step(of.program, target(of.target))
    return (
        of.target,
        _ms(spent.bound),
        spent.limited_by,
        _span(going.step, _ms),
        _span(going.per_second[::-1], _si),
        _span(going.hours, _count),
    )


def _lines(text: str, start: str = "") -> list[str]:
    """The text behind `start`, below which its further lines begin."""
    broken = wrap(text, _COLUMNS - len(start), break_long_words=False, break_on_hyphens=False)
    return [
        f"{start if not i else ' ' * len(start)}{line}" for i, line in enumerate(broken or [""])
    ]


# Numbers -------------------------------------------------------------------------------------------------------------


def _span(pair: tuple[float, ...], text: Callable[[float], str]) -> str:
    """`1.2 to 1.5 ms`."""
    low, high = (text(value).strip() for value in pair)
    number, _, unit = low.partition(" ")
    return high if low == high else f"{number if high.endswith(' ' + unit) else low} to {high}"


def _si(value: float) -> str:
    """`47.1 T`, `512`."""
    for size, letter in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g} {letter}"
    return f"{value:.3g} "


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def _work(work: Work) -> str:
    """`10B tokens`, `2,000 steps`."""
    amount = work.amount
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if amount >= size:
            return f"{amount / size:g}{letter} {work.unit}"
    return f"{amount:,.0f} {work.unit}"


def _count(value: float) -> str:
    if value >= 1e4:
        return _si(value)
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _hours(value: float) -> str:
    if value < 1.5 / 60:
        return f"{value * 3600:.2g} s"
    return f"{value * 60:.0f} min" if value < 1.5 else f"{_count(value)} h"
