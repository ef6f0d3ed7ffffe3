"""`tpujob cost estimate`: estimates the cost of a job file; with `--compare`, on several types and in several zones."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tpujob.cli.backend import connect, current_settings
from tpujob.cli.commands.cost.estimate_page import (
    EMULATED,
    NO_WAIT,
    estimate_page,
    hours,
    unmeasured,
)
from tpujob.cli.errors import PROBLEM_FOUND
from tpujob.cli.options import Json, argument, duration, flag, option
from tpujob.cli.output import say_page
from tpujob.cli.render.table import Column, numbers, table
from tpujob.cli.render.text import amount_text, clip_middle, paint, wrap
from tpujob.domain.hardware import accelerators
from tpujob.domain.text import clean, dollars
from tpujob.errors import BadRequest

if TYPE_CHECKING:
    from tpujob.api import CompareOptions, CompareView, ForecastView, RangeView, WayView


_time = partial(option, "TIME", parser=duration)


def estimate(
    file: Annotated[Path, argument("FILE", "A job file in YAML.")],
    hours: Annotated[
        float | None, option("H", "Run time. Default: from earlier jobs.", min=0)
    ] = None,
    steps: Annotated[int | None, option("N", "Steps, if the file does not say.", min=0)] = None,
    step_seconds: Annotated[float | None, option("S", "Seconds per step.", min=0)] = None,
    stored_gib: Annotated[
        float | None, option("GIB", "GiB kept in the bucket, with checkpoints.", min=0)
    ] = None,
    stored_days: Annotated[float | None, option("D", "Days they are kept.", min=0)] = None,
    objects_written: Annotated[int | None, option("N", "Objects written (class A).", min=0)] = None,
    objects_read: Annotated[int | None, option("N", "Objects read (class B).", min=0)] = None,
    read_gib: Annotated[float | None, option("GIB", "GiB read from another region.", min=0)] = None,
    written_gib: Annotated[
        float | None, option("GIB", "GiB written to another region.", min=0)
    ] = None,
    wait: Annotated[float | None, _time("Mean wait for a slice, such as 30m.")] = None,
    preempt_every: Annotated[
        float | None, _time("Mean time until a slice is lost, such as 6h.")
    ] = None,
    checkpoint_every: Annotated[
        float | None, _time("Time between two checkpoints. Default: 10m.")
    ] = None,
    quiet: Annotated[bool, flag("Assume almost no log output.", "--quiet-program")] = False,
    compare: Annotated[bool, flag("Compare types and zones.", "--compare")] = False,
    types: Annotated[str, option("TYPE,...", "Types to compare. Default: the file's.")] = "",
    zones: Annotated[
        str, option("ZONE,...", "Zones to compare. Default: the file's, or all.")
    ] = "",
    tokens: Annotated[str, option("N", "Work to compare by, such as 10B.")] = "",
    samples: Annotated[str, option("N", "The same, in samples.")] = "",
    throughput: Annotated[
        list[str] | None, option("TYPE=N", "Throughput of a type; repeatable.")
    ] = None,
    explain: Annotated[bool, flag("Show where each figure comes from.", "--explain")] = False,
    strict: Annotated[
        bool, flag("Exit with 6 if a price or quantity is unknown.", "--strict")
    ] = False,
    as_json: Json = False,
) -> int:
    """Show what a job would cost: list value, and what you pay."""
    from tpujob.api import EstimateInputs
    from tpujob.domain.spec import dump
    from tpujob.submit import job_file

    if compare and (explain or strict):
        raise BadRequest("--explain and --strict go without --compare")
    spec = job_file.read(file, "", cross_region=False)
    spec_fields = dump(spec)
    options: EstimateInputs = {"quiet": quiet}
    for name, value in {
        "hours": hours,
        "steps": steps,
        "step_seconds": step_seconds,
        "stored_gib": stored_gib,
        "stored_days": stored_days,
        "objects_written": objects_written,
        "objects_read": objects_read,
        "read_gib": read_gib,
        "written_gib": written_gib,
        "wait": wait,
        "preempt_every": preempt_every,
        "checkpoint_every": checkpoint_every,
    }.items():
        if value is not None:
            options[name] = value
    request = compare_request(
        steps=steps, tokens=tokens, samples=samples, types=types, zones=zones,
        speeds=throughput or (),
    )  # fmt: skip
    if compare:
        from tpujob.submit.compile_check import rooflines

        types_to_compare = request.get("types", [*spec.tpu.types])
        unit = request.get("unit", "steps")
        bounds = rooflines(spec, types_to_compare, unit, current_settings().cache)
        if bounds:
            request["rooflines"] = bounds
        comparison = job_file.naming_file(
            file, lambda: connect().compare(spec_fields, options, request)
        )
        say_page(comparison, compare_page, as_json)
        return 0
    if set(request) - {"amount"}:
        raise BadRequest("--types, --zones, --tokens, --samples and --throughput go with --compare")
    estimate = job_file.naming_file(file, lambda: connect().estimate(spec_fields, options))
    say_page(estimate, estimate_page, as_json, explained=explain)
    return PROBLEM_FOUND if strict and estimate["unknown"] else 0


# Types and zones side by side ----------------------------------------------------------------------------------------


_LETTERS = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12}


def compare_request(
    *, steps: int | None, tokens: str, samples: str, types: str, zones: str, speeds: Sequence[str]
) -> CompareOptions:
    """Return the request with the options that are set. Raises BadRequest for a value that cannot be parsed."""
    amounts = {"steps": "" if steps is None else str(steps), "tokens": tokens, "samples": samples}
    units = [unit for unit, text in amounts.items() if text]
    if len(units) > 1:
        raise BadRequest(f"give one of {' and '.join(f'--{unit}' for unit in units)}")
    request: CompareOptions = {}
    if tokens:
        request["unit"] = "tokens"
    elif samples:
        request["unit"] = "samples"
    for unit in units:
        request["amount"] = amount(amounts[unit], f"--{unit}")
    for name, text in (("types", types), ("zones", zones)):
        if words := [word.strip() for word in text.split(",") if word.strip()]:
            request[name] = words
    if speeds:
        request["throughput"] = dict(_speed(text) for text in speeds)
    return request


def amount(text: str, option: str) -> float:
    """Return `10B`, `1.5M`, `20k` or `300` as a number. Raises BadRequest."""
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)([kKMGBT]?)", text.replace(",", ""))
    if match is None:
        raise BadRequest(
            f"{option}: {text[:40]!r} is not a number", hint="such as 300, 20k, 1.5M or 10B"
        )
    return float(match[1]) * _LETTERS[match[2]]


def _speed(text: str) -> tuple[str, float]:
    type, equals, value = text.partition("=")
    if not equals or not type:
        raise BadRequest(
            f"--throughput: {text[:40]!r} is not a throughput",
            hint="such as v5e-64=120k, in units a second",
        )
    return type, amount(value, "--throughput")


LISTED = (
    "Half of such jobs stay below these times and amounts, nine of ten within the range. All lines of an estimate "
    "are in it, with a bucket in the region of the zone."
)
_COLUMNS = (
    Column("Type"),
    Column("Zone", floors=(14,), cut=clip_middle),
    *numbers("Chips", "Per s", "Takes", "List value", "You pay"),
    Column("Best", style=lambda cell: "green" if cell else ""),
)
_RANGE = Column("Range", right=True)
_RANGE_INDEX = 6  #: position of the range in a row of a wide table
WIDE = 100  #: columns of the terminal from which on the range is shown


def compare_page(view: CompareView, columns: int, *, color: bool = False) -> str:
    title = f"{clean(view['name'])}: {amount_text(view['amount'])} {view['unit']}"
    out = [paint(title, "bold", color), ""]
    rows = [_cells(way) for way in view["ways"]]
    shown = [*_COLUMNS]
    if columns >= WIDE:
        shown.insert(_RANGE_INDEX, _RANGE)
        for row, way in zip(rows, view["ways"], strict=True):
            row.insert(_RANGE_INDEX, _range(way))
    out += [table(shown, rows, columns, color=color), ""]
    forecasts = [way["forecast"] for way in view["ways"] if way["forecast"]]
    if any(forecast["wall_hours"] is None for forecast in forecasts):
        out += wrap(NO_WAIT, columns)
    guesses = [text for forecast in forecasts for text in unmeasured(forecast)]
    notes = [clean(way["note"]) for way in view["ways"] if way["note"]]
    for text in dict.fromkeys([*guesses, *notes]):
        out += wrap(text, columns)
    for warning in view["warnings"]:
        out += wrap(f"warning: {clean(warning)}", columns)
    return "\n".join([*out, *wrap(EMULATED if view.get("emulated") else LISTED, columns)])


def _cells(way: WayView) -> list[str]:
    forecast = way["forecast"]
    best = [name for name in ("cheapest", "fastest") if way[name]]
    speed = way["per_second"]
    return [
        accelerators.several(way["type"], way["tpu_slices"]),
        way["zone"],
        str(way["chips"]),
        "unknown" if speed is None else amount_text(speed),
        _time_taken(forecast) if forecast else "unknown",
        _money(forecast["list_micros"] if forecast else None),
        _money(forecast["pay_micros"] if forecast else None),
        "both" if len(best) == 2 else "".join(best),
    ]


def _time_taken(forecast: ForecastView) -> str:
    wall = forecast["wall_hours"]
    return hours(wall["p50"]) if wall else f"{hours(forecast['billed_hours']['p50'])} + wait"


def _range(way: WayView) -> str:
    listed = way["forecast"]["list_micros"] if way["forecast"] else None
    return "" if listed is None else f"{_money(listed, 'low')} to {_money(listed, 'high')}"


def _money(range: RangeView | None, key: Literal["low", "p50", "high"] = "p50") -> str:
    return "unknown" if range is None else dollars(round(range[key]))
