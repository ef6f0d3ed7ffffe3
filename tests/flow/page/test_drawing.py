"""Drawn lines: inside their box, in order, and as wide as they are long."""

from typing import cast

import pytest

from tests.support.scripted import job_view
from tpujob.api import ChartView, JobView, MetricsView
from tpujob.domain.text import rfc3339
from tpujob.web.pages import drawing
from tpujob.web.pages.job import draw_charts

NOW = 1_767_225_600.0


def job(*spans: tuple[str, float, float | None, int | None]) -> JobView:
    stretches = [
        {
            "kind": kind,
            "start": rfc3339(NOW - before),
            "end": None if until is None else rfc3339(NOW - until),
            "seconds": before - (until or 0.0),
            "slice": "",
            "attempt": attempt,
            "cause": None,
            "text": "",
            "requests": 0,
            "usd": 1.0,
        }
        for kind, before, until, attempt in spans
    ]
    return job_view(timeline=stretches)


def test_stretches_fill_the_line_and_the_shortest_can_still_be_seen() -> None:
    line = drawing.timeline(
        job(
            ("waiting", 86400, 43200, None),
            ("preparing", 43200, 43199, 1),
            ("productive", 43199, 1, 1),
            ("condemned", 40000, 30000, 1),
            ("releasing", 1, 0, 1),
        ),
        NOW,
    )
    assert line is not None
    assert [bar.span["kind"] for bar in line.beside] == ["condemned"]
    assert all(bar.x >= 0 and bar.x + bar.width <= 100 for bar in line.bars)
    assert [round(bar.width, 1) for bar in line.bars] == [50.0, 0.2, 50.0, 0.2]
    assert [bar.label for bar in line.bars] == ["", "1", "", ""]
    assert 3 <= len(line.marks) <= drawing.MARKS + 1
    assert line.sums[0].kind in ("waiting", "productive")
    assert sum(part.share for part in line.sums) == pytest.approx(1)


def test_a_line_that_goes_on_does_not_move_at_every_look() -> None:
    young = job(("productive", 3600, None, 1))
    first, second = drawing.timeline(young, NOW), drawing.timeline(young, NOW + 1)
    assert first is not None
    assert second is not None
    assert (first.bars, first.marks) == (second.bars, second.marks)
    assert drawing.timeline(job(), NOW) is None


def test_a_curve_lies_in_its_box_with_its_lost_part_joined_to_it() -> None:
    points = [(step, float(step), 0.0, 9.0, 5.0 - step / 100) for step in range(0, 101, 10)]
    curve = {"attempt": 1, "points": points, "resumed_from": None, "kept": 60}
    again = {"attempt": 2, "points": points[-2:-1], "resumed_from": 60, "kept": None}
    chart = cast("ChartView", {"name": "loss", "title": "Loss", "curves": [curve, again]})
    plot = drawing.plot(chart)
    good, lost, single = plot.lines
    assert (good.lost, lost.lost, single.attempt) == (False, True, 2)
    assert good.points.split()[-1] == lost.points.split()[0], "without a gap"
    assert len(single.points.split()) == 2, "a single point can be seen"
    assert (plot.first, plot.last, plot.least, plot.most) == (0, 100, 4.0, 5.0)
    for line in plot.lines:
        for x, y in (point.split(",") for point in line.points.split()):
            assert 0 <= float(x) <= drawing.WIDTH
            assert 0 <= float(y) <= drawing.HEIGHT


@pytest.mark.parametrize(
    ("low", "high", "texts"),
    [
        (0.0, 1.0, ["0.0", "0.5", "1.0"]),
        (2.332, 2.547, ["2.4", "2.5"]),
        (0.00029, 0.00033, ["0.00029", "0.00030", "0.00031", "0.00032", "0.00033"]),
        (49_383.0, 52_783.0, ["50,000", "51,000", "52,000"]),
        (1.2e9, 3.4e9, ["2e+09", "3e+09"]),
    ],
)
def test_an_axis_has_round_distinct_values(low: float, high: float, texts: list[str]) -> None:
    ticks = drawing.ticks(low, high)
    assert [text for _, text in ticks] == texts
    assert all(low - 1e-9 <= value <= high + 1e-9 for value, _ in ticks)
    assert [text for _, text in drawing.ticks(1, 3, least=1.0)] == ["1", "2", "3"], "whole steps"


@pytest.mark.parametrize(("low", "high"), [(0, 5e-324), (0, 2e-323), (-1e308, 1e308)])
def test_values_that_no_axis_can_show_are_drawn_without_one(low: float, high: float) -> None:
    points = [(step, low, low, high, value) for step, value in enumerate((low, high))]
    curve = {"attempt": 1, "points": points, "resumed_from": None, "kept": None}
    plot = drawing.plot(cast("ChartView", {"name": "x", "title": "x", "curves": [curve]}))
    assert (plot.values, (plot.least, plot.most)) == ([], (low, high))
    assert [tick.text for tick in plot.steps] == ["0", "1"]


@pytest.mark.parametrize("value", [0.0, 7.0, -3.0])
def test_what_does_not_change_is_a_level_line(value: float) -> None:
    points = [(step, 0.0, value, value, value) for step in (1, 2)]
    curve = {"attempt": 1, "points": points, "resumed_from": None, "kept": None}
    (line,) = drawing.plot(cast("ChartView", {"name": "x", "title": "x", "curves": [curve]})).lines
    assert line.points == f"0.0,{drawing.HEIGHT / 2:.2f} 600.0,{drawing.HEIGHT / 2:.2f}"


def test_a_single_value_is_no_curve() -> None:
    points = [(step, 0.0, 1.0, 1.0, 1.0) for step in (1, 2)]

    def chart(name: str, count: int) -> object:
        curve = {"attempt": 1, "points": points[:count], "resumed_from": None, "kept": None}
        return {"name": name, "title": name, "curves": [curve]}

    metrics = cast("MetricsView", {"charts": [chart("loss", 2), chart("test_accuracy", 1)]})
    assert [drawn["name"] for drawn, _ in draw_charts(metrics)] == ["loss"]
