"""Measures the tables and says what came out: to a person and to tpujob."""

from __future__ import annotations

import sys
from typing import NamedTuple

import jax
import numpy as np

from tpujob.contract import DONE, Exit, ProgramContext, Reporter
from workloads.measure import text
from workloads.measure.samples import Interval, in_turn, interval, ratio
from workloads.tables import TablesConfig
from workloads.tables.talks import DERIVATIVES, Table, derivatives, tables


class WrongResult(Exception):
    """Two ways of doing the same thing disagree, or a known number did not come out."""


class Row(NamedTuple):
    """One way, measured."""

    table: str
    way: str
    seconds: Interval  #: for the whole task
    faster: Interval  #: how many times as fast as the table's first way
    part: float  #: of the task that was timed; below 1 the time is multiplied up


def run(config: TablesConfig, context: ProgramContext, reporter: Reporter) -> Exit:
    """Measure everything and say it; host 0 prints, each host tells its own metrics. Raises WrongResult."""

    def say(line: str) -> None:
        if context.host == 0:
            sys.stdout.write(line + "\n")

    reporter.event("phase", name="measure")
    say(f"{_machine()}; medians of {config.rounds} rounds with their 95% intervals")
    for table in tables(config):
        rows = measured(table, config.rounds)
        for row in rows:
            tell(reporter, row)
        say(shown(table, rows))
    values = checked_derivatives()
    say(f"\nx^3 + 2x^2 - 3x + 1 and its derivatives at 1: {' '.join(f'{n:g}' for n in values)}")
    reporter.event("phase", name=DONE)
    return Exit.DONE


def tell(reporter: Reporter, row: Row) -> None:
    """Two metrics of the row: its time, and by what factor that is shorter than the table's first."""
    name = f"{row.table}: {row.way.replace(',', '')}"  # names are listed with commas between them
    reporter.event("metric", name=f"{name} ms", value=row.seconds.median * 1e3)
    reporter.event("metric", name=f"{name} speedup", value=row.faster.median)


def measured(table: Table, rounds: int) -> list[Row]:
    """A row for each way of the table. Raises WrongResult if their results are not the same."""
    agree(table)
    samples = in_turn(table.ways, rounds)
    whole = {way: [s / table.parts.get(way, 1.0) for s in taken] for way, taken in samples.items()}
    first = next(iter(whole.values()))
    return [
        Row(table.name, way, interval(taken), ratio(first, taken), table.parts.get(way, 1.0))
        for way, taken in whole.items()
    ]


def agree(table: Table) -> None:
    """A time means nothing if the result is another one. A way that does a part gives the first of the results."""
    results = {way: np.asarray(call()) for way, call in table.ways.items()}
    # the largest number sets the scale, as a difference of near-equal numbers has few digits
    whole = max(results.values(), key=len)
    scale = float(np.max(np.abs(whole)))
    for way, result in results.items():
        off = float(np.max(np.abs(result - whole[: len(result)]))) / scale
        if not off <= table.tolerance:
            raise WrongResult(f"{table.title}: {way} differs from the other ways by {off:.1e}")


def checked_derivatives() -> tuple[float, ...]:
    """Return the derivatives. Raises WrongResult if they are not the known values."""
    values = derivatives()
    if values != DERIVATIVES:
        raise WrongResult(f"x^3 + 2x^2 - 3x + 1 at 1: {values} in place of {DERIVATIVES}")
    return values


def shown(table: Table, rows: list[Row]) -> str:
    """The table for a person."""
    lines = [("", "median", "95% interval", "times as fast")]
    for row in rows:
        low, high = text.seconds(row.seconds.low), text.seconds(row.seconds.high)
        faster = text.times(row.faster) if row is not rows[0] else "1x"
        mark = " *" if row.part < 1 else ""
        lines.append((row.way + mark, text.seconds(row.seconds.median), f"{low} to {high}", faster))
    note = f"\n{'* ' if table.parts else ''}{table.note}" if table.note else ""
    return f"\n{table.title}\n{text.columns(lines)}{note}"


def _machine() -> str:
    device = jax.devices()[0]
    return f"JAX {jax.__version__} on {device.device_kind} ({device.platform})"
