"""`tpujob show --plot`."""

from __future__ import annotations

import math

from tpujob.api import ChartView, CurveView, MetricsView
from tpujob.cli.render.plot import plot_page


def curve(attempt: int, values: list[float], first: int = 0, kept: int | None = None) -> CurveView:
    points = [(first + 10 * i, float(i), v, v, v) for i, v in enumerate(values)]
    return CurveView(attempt=attempt, points=points, resumed_from=first or None, kept=kept)


def metrics(*curves: CurveView) -> MetricsView:
    chart = ChartView(name="loss", title="Loss", curves=list(curves))
    return MetricsView(charts=[chart], attempts=[1, 2], left_out=0, unread=[], why="")


def test_a_curve_falls_from_left_to_right_on_the_scale_of_all_attempts() -> None:
    found = plot_page(metrics(curve(1, [8, 6, 4]), curve(2, [4, 2, 1], first=30)), 32)
    title, first, second = found.splitlines()
    assert title == "Loss  1 to 8, 1 at step 50"
    assert first.split()[0] == "1"
    assert first.split()[1][0] == "█"
    assert second.index("▄") >= len(first) - 4, "it goes on where the first one ended"
    assert second[-1] == "▁"


def test_steps_that_were_lost_are_dim_and_what_is_not_finite_stands_out() -> None:
    found = plot_page(metrics(curve(1, [3, 2, math.nan, 1], kept=10)), 40, color=True)
    assert "\x1b[2m" in found
    assert "!" in found


def test_a_job_without_curves_says_why() -> None:
    none = MetricsView(charts=[], attempts=[], left_out=0, unread=[], why="no program has run yet")
    assert plot_page(none, 80) == "no program has run yet"
