"""The picture of `tpujob cost report --plot`: dollars a day, divided by what came of them, above goodput. Writes no
file.

Drawn by matplotlib, which only the extra `plot` installs. Colours are those of Okabe and Ito, which people with any
kind of colour vision tell apart; hatches do the same on paper. Sizes are such that it can be read at 360 pixels.
"""

from __future__ import annotations

import importlib
import io
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from tpujob.domain.text import dollars
from tpujob.errors import BadRequest, TpujobError

if TYPE_CHECKING:
    from tpujob.api import CostRowView, CostView

MICROS = 1_000_000
FORMATS = ("svg", "png")
MOST_DAYS = 92  #: with more, a bar is a week
FEW_DAYS = 5  #: with fewer, bars grow no wider
MOST_TICKS = 6
WIDE, HIGH, DPI = 7.2, 5.8, 200


class Band(NamedTuple):
    """Parts that share a colour. Of time without a ready slice nothing is billed, so it has none."""

    title: str
    parts: tuple[str, ...]
    color: str
    hatch: str = ""


BANDS = (
    Band("productive", ("productive",), "#009E73"),
    Band("set-up, compiling", ("preparing", "compiling"), "#56B4E9"),
    Band("redone", ("redone",), "#D55E00", "////"),
    Band("idle, hung, held", ("hung", "held", "condemned", "releasing"), "#E69F00", "...."),
    Band("unknown", ("unknown",), "#BBBBBB"),
)


class CostBar(NamedTuple):
    """A day, or the week that begins with it."""

    day: date
    dollars: tuple[float, ...]  #: for each band
    goodput: float | None  #: None: there was no time


def bars(found: CostView) -> list[CostBar]:
    """Every day from the first to the last, those without jobs too; weeks where there are too many days."""
    rows = {date.fromisoformat(row["key"]): row for row in found["rows"]}
    if not rows:
        return []
    first, last = min(rows), max(rows)
    step = 1 if (last - first).days < MOST_DAYS else 7
    starts = range(0, (last - first).days + 1, step)
    days = [first + timedelta(days=n) for n in starts]
    return [_bar(day, [rows.get(day + timedelta(days=n)) for n in range(step)]) for day in days]


def _bar(day: date, found: list[CostRowView | None]) -> CostBar:
    parts = [part for row in found if row is not None for part in row["parts"]]
    whole = sum(part["chip_hours"] for part in parts)
    good = sum(part["chip_hours"] for part in parts if part["part"] == "productive")
    amounts = tuple(
        sum(part["list_micros"] for part in parts if part["part"] in band.parts) / MICROS
        for band in BANDS
    )
    return CostBar(day, amounts, good / whole if whole else None)


def draw(found: CostView, format: str) -> bytes:
    """The picture of a report by day, as SVG or PNG. Raises BadRequest when there is nothing to draw, TpujobError when
    matplotlib is not installed."""
    shown = bars(found)
    if not shown:
        raise BadRequest("there are no jobs, so there is nothing to draw")
    matplotlib, figure, dates = (
        _package(name) for name in ("matplotlib", "matplotlib.figure", "matplotlib.dates")
    )
    style = {
        "font.size": 13,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": "#555555",
        "hatch.linewidth": 0.7,
        "text.parse_math": False,  # a dollar sign is a dollar sign
        "svg.hashsalt": "tpujob",
    }
    out = io.BytesIO()
    with matplotlib.rc_context(style):
        picture = figure.Figure(figsize=(WIDE, HIGH), layout="constrained")
        above, below = picture.subplots(2, 1, sharex=True, height_ratios=(2.3, 1))
        _money(above, shown)
        _goodput(below, shown, found["total"]["goodput"])
        _dates(below, dates, shown)
        picture.suptitle(_title(found), x=0.02, ha="left", fontsize=14, fontweight="bold")
        handles, titles = above.get_legend_handles_labels()
        picture.legend(
            handles, titles, loc="outside lower center", ncols=3, frameon=False, fontsize=12,
            handlelength=1.3, columnspacing=1.2,
        )  # fmt: skip
        when = {"Date": None} if format == "svg" else None  # the same report makes the same file
        picture.savefig(out, format=format, dpi=DPI, metadata=when)
    return out.getvalue()


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise TpujobError(
            "--plot needs the package matplotlib, which is not installed",
            hint="pip install 'tpujob[plot]', or use --csv and draw it yourself",
        ) from None


def _title(found: CostView) -> str:
    total = found["total"]
    sign = "more than " if total["unpriced_chip_hours"] else ""
    spent = f"{sign}{dollars(total['list_micros'])} list value"
    if total["pay_micros"] == total["list_micros"]:
        return spent
    return f"{spent}, you pay {dollars(total['pay_micros'])}"


def _money(axes: Any, shown: list[CostBar]) -> None:
    days = [bar.day for bar in shown]
    weekly = len(days) > 1 and (days[1] - days[0]).days == 7
    width, align = (6.4, "edge") if weekly else (0.86, "center")
    floor = [0.0] * len(shown)
    for number, band in enumerate(BANDS):
        heights = [bar.dollars[number] for bar in shown]
        if any(heights):
            axes.bar(
                days, heights, width, bottom=floor, align=align, color=band.color, hatch=band.hatch,
                edgecolor="white", linewidth=0.4, label=band.title,
            )  # fmt: skip
            floor = [low + high for low, high in zip(floor, heights, strict=True)]
    axes.set_ylabel(f"US dollars a {'week' if weekly else 'day'}")

    def amount(value: float, _place: int) -> str:
        decimals = 0 if max(floor) >= 5 else 2 if max(floor) >= 0.05 else 4
        return f"${value:,.{decimals}f}"

    axes.yaxis.set_major_formatter(amount)
    axes.set_ylim(0, max(floor) * 1.06 or 1.0)
    axes.locator_params(axis="y", nbins=5)
    _grid(axes)


def _goodput(axes: Any, shown: list[CostBar], whole: float | None) -> None:
    days = [bar.day for bar in shown]
    shares = [float("nan") if bar.goodput is None else 100 * bar.goodput for bar in shown]
    few = len(shown) <= 31
    axes.plot(
        days, shares, color="#0072B2", linewidth=2, marker="o" if few else "", markersize=5,
        clip_on=False, zorder=3,
    )  # fmt: skip
    if whole is not None:
        axes.axhline(100 * whole, color="#555555", linewidth=1, linestyle=(0, (4, 3)))
        axes.annotate(
            f"{whole:.0%}", (1.0, 100 * whole), xycoords=("axes fraction", "data"), xytext=(5, 0),
            textcoords="offset points", va="center", color="#333333",
        )  # fmt: skip
    axes.set_ylim(0, 104)
    axes.set_yticks([0, 50, 100], ["0%", "50%", "100%"])
    axes.set_ylabel("Goodput")
    _grid(axes)


def _dates(axes: Any, dates: Any, shown: list[CostBar]) -> None:
    first, last = shown[0].day, shown[-1].day
    weekly = len(shown) > 1 and (shown[1].day - first).days == 7
    pad = timedelta(days=max(0.7, (FEW_DAYS - len(shown)) / 2))
    at = [datetime.combine(day, time.min, UTC) for day in (first, last)]
    axes.set_xlim(at[0] - pad, at[1] + pad + timedelta(days=6 if weekly else 0))
    every = -(-len(shown) // MOST_TICKS)
    axes.set_xticks([bar.day for bar in shown[::every]])
    axes.xaxis.set_major_formatter(dates.DateFormatter("%d %b"))
    year = f"{first.year}" if first.year == last.year else f"{first.year} to {last.year}"
    axes.set_xlabel(f"{'Week from' if weekly else 'Day'}, UTC, {year}")


def _grid(axes: Any) -> None:
    axes.grid(axis="y", color="#DDDDDD", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=3, color="#555555")
