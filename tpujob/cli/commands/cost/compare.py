"""`tpujob cost estimate --compare`: what its options mean, and types and zones side by side."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from tpujob.cli.commands.cost.estimate_page import EMULATED, NO_WAIT, hours, unmeasured
from tpujob.cli.output import say, screen
from tpujob.cli.render.table import Column, table
from tpujob.cli.render.text import clip_middle, paint, wrap
from tpujob.domain.hardware import accelerators
from tpujob.domain.text import clean, dollars
from tpujob.errors import BadRequest

if TYPE_CHECKING:
    from tpujob.api import CompareAsked, CompareView, ForecastView, RangeView, WayView

_LETTERS = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12}


def asked(
    *, steps: int | None, tokens: str, samples: str, types: str, zones: str, speeds: Sequence[str]
) -> CompareAsked:
    """Raises BadRequest for what cannot be read."""
    work = {"steps": "" if steps is None else str(steps), "tokens": tokens, "samples": samples}
    given = {unit: text for unit, text in work.items() if text}
    if len(given) > 1:
        raise BadRequest(f"give one of {' and '.join(f'--{unit}' for unit in given)}")
    found: CompareAsked = {}
    if "tokens" in given:
        found["unit"] = "tokens"
    elif "samples" in given:
        found["unit"] = "samples"
    for unit, text in given.items():
        found["amount"] = amount(text, f"--{unit}")
    for name, text in (("types", types), ("zones", zones)):
        named = [word.strip() for word in text.split(",") if word.strip()]
        if named:
            found[name] = named
    if speeds:
        found["throughput"] = dict(_speed(text) for text in speeds)
    return found


def amount(text: str, option: str) -> float:
    """`10B`, `1.5M`, `20k`, `300` as a number. Raises BadRequest."""
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)([kKMGBT]?)", text.replace(",", ""))
    if match is None:
        raise BadRequest(
            f"{option}: {text[:40]!r} is no number", hint="such as 300, 20k, 1.5M or 10B"
        )
    return float(match[1]) * _LETTERS[match[2]]


def time(text: str, option: str) -> float:
    """`90s`, `30m`, `1h30m` in seconds. Raises BadRequest."""
    from tpujob.domain.spec.fields import time_span

    try:
        return float(time_span("365d")(text))
    except ValueError as error:
        raise BadRequest(f"{option} {error}") from None


def _speed(text: str) -> tuple[str, float]:
    type, equals, value = text.partition("=")
    if not equals or not type:
        raise BadRequest(
            f"--throughput: {text[:40]!r} is no speed",
            hint="such as v5e-64=120k, in units a second",
        )
    return type, amount(value, "--throughput")


def show(found: CompareView) -> None:

    on = screen()
    say(compare_page(found, on.columns, color=on.color))


LISTED = (
    "Half of all simulated runs stay below these times and amounts, nine of ten within the range. All lines of an "
    "estimate are in it, with a bucket in the region of the zone."
)
_COLUMNS = (
    Column("Type"),
    Column("Zone", floors=(14,), cut=clip_middle),
    Column("Chips", right=True),
    Column("Per s", right=True),
    Column("Takes", right=True),
    Column("List value", right=True),
    Column("You pay", right=True),
    Column("Best", style=lambda cell: "green" if cell else ""),
)
_RANGE = Column("Range", right=True)
_AT = 6  #: the place of the range, where there is room for it
WIDE = 100


def compare_page(found: CompareView, columns: int, *, color: bool = False) -> str:
    """The whole text."""
    title = f"{clean(found['name'])}: {_many(found['amount'])} {found['unit']}"
    out = [paint(title, "bold", color), ""]
    rows = [_cells(way) for way in found["ways"]]
    shown = _COLUMNS
    if columns >= WIDE:
        shown = (*shown[:_AT], _RANGE, *shown[_AT:])
        ranges = [_range(way) for way in found["ways"]]
        rows = [(*r[:_AT], of, *r[_AT:]) for r, of in zip(rows, ranges, strict=True)]
    out += [table(shown, rows, columns, color=color), ""]
    if any(way["forecast"] and way["forecast"]["wall_hours"] is None for way in found["ways"]):
        out += wrap(NO_WAIT, columns)
    guesses = dict.fromkeys(
        t for way in found["ways"] if (f := way["forecast"]) for t in unmeasured(f)
    )
    out += [line for text in guesses for line in wrap(text, columns)]
    unknown = dict.fromkeys(way["note"] for way in found["ways"] if way["note"])
    out += [line for note in unknown for line in wrap(clean(note), columns)]
    for warning in found["warnings"]:
        out += wrap(f"warning: {clean(warning)}", columns)
    return "\n".join([*out, *wrap(EMULATED if found.get("emulated") else LISTED, columns)])


def _cells(way: WayView) -> tuple[str, ...]:
    forecast = way["forecast"]
    listed = forecast["list_micros"] if forecast else None
    pay = forecast["pay_micros"] if forecast else None
    marks = [name for name in ("cheapest", "fastest") if way[name]]
    speed = way["per_second"]
    return (
        accelerators.several(way["type"], way["tpu_slices"]),
        way["zone"],
        str(way["chips"]),
        "unknown" if speed is None else f"{_many(speed)}",
        _takes(forecast) if forecast else "unknown",
        _money(listed),
        _money(pay),
        "both" if len(marks) == 2 else "".join(marks),
    )


def _takes(found: ForecastView) -> str:
    wall = found["wall_hours"]
    return hours(wall["p50"]) if wall else f"{hours(found['billed_hours']['p50'])} + wait"


def _range(way: WayView) -> str:
    listed = way["forecast"]["list_micros"] if way["forecast"] else None
    return "" if listed is None else f"{_money(listed, 'low')} to {_money(listed, 'high')}"


def _money(found: RangeView | None, key: Literal["low", "p50", "high"] = "p50") -> str:
    return "unknown" if found is None else dollars(round(found[key]))


def _many(value: float) -> str:
    """`10B`, `1.5M`, `12,000`, `0.25`."""
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
