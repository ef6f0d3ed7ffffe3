"""Charts: curves inside their box, of one job or of several over each other, over steps or time, smoothed, on a
logarithmic axis, with what happened marked."""

from typing import Any, cast

import pytest

from tpujob.api import ChartView, CurveView
from tpujob.web.pages import charts
from tpujob.web.pages.charts import ChartOptions, Plot
from tpujob.web.pages.query import PageQuery

AT = "2026-01-01T00:00:00.000Z"
PLAIN = ChartOptions()


def curve(
    *values: float, job: str = "1", attempt: int = 1, first: int = 0, **more: Any
) -> CurveView:
    """Return a curve with a value at each tenth step, one a second."""
    points = [(first + 10 * n, float(n), v, v, v) for n, v in enumerate(values)]
    view = {"job": job, "attempt": attempt, "began_at": AT, "points": points, "resumed_from": None}
    ends = {"kept": None, "cause": None, "nonfinite": None, "checkpoint": None}
    return cast(CurveView, {**view, **ends, **more})


def chart(*curves: CurveView, name: str = "loss") -> ChartView:
    return ChartView(name=name, title=name, curves=list(curves))


def drawn(*curves: CurveView, options: ChartOptions = PLAIN) -> Plot:
    ((_, plot),) = charts.draw(
        [chart(*curves)], list(dict.fromkeys(c["job"] for c in curves)), options
    )
    return plot


def places(points: str) -> list[tuple[float, ...]]:
    return [tuple(map(float, point.split(","))) for point in points.split()]


def test_a_curve_lies_in_its_box_with_its_lost_part_joined_to_it() -> None:
    plot = drawn(
        curve(*(5.0 - step / 100 for step in range(0, 101, 10)), kept=60),
        curve(4.1, attempt=2, first=90, resumed_from=60),
    )
    good, lost, single = plot.lines
    assert (good.lost, lost.lost, single.attempt) == (False, True, 2)
    assert good.points.split()[-1] == lost.points.split()[0], "without a gap"
    assert len(single.points.split()) == 2, "a single point can be seen"
    assert (plot.first, plot.last, plot.least, plot.most) == (0, 100, 4.0, 5.0)
    for line in plot.lines:
        for x, y in places(line.points):
            assert 0 <= x <= charts.WIDTH
            assert 0 <= y <= charts.HEIGHT


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
    ticks = charts.ticks(low, high)
    assert [text for _, text in ticks] == texts
    assert all(low - 1e-9 <= value <= high + 1e-9 for value, _ in ticks)
    assert [text for _, text in charts.ticks(1, 3, least=1.0)] == ["1", "2", "3"], "whole steps"
    assert [text for _, text in charts.ticks(1, 900, most=8)] == ["200", "400", "600", "800"]


@pytest.mark.parametrize(("low", "high"), [(0, 5e-324), (0, 2e-323), (-1e308, 1e308)])
@pytest.mark.parametrize("log", [False, True])
def test_values_that_no_axis_can_show_are_drawn_without_one(
    low: float, high: float, log: bool
) -> None:
    plot = drawn(curve(low, high), options=ChartOptions(log=log))
    assert (plot.values, (plot.least, plot.most)) == ([], (low, high))
    assert [tick.text for tick in plot.across] == ["0", "2", "4", "6", "8", "10"]


@pytest.mark.parametrize("value", [0.0, 7.0, -3.0])
def test_what_does_not_change_is_a_level_line(value: float) -> None:
    (line,) = drawn(curve(value, value)).lines
    assert line.points == f"0.0,{charts.HEIGHT / 2:.2f} 600.0,{charts.HEIGHT / 2:.2f}"


def test_a_single_value_is_no_curve_and_all_charts_have_one_range() -> None:
    every = [
        chart(curve(1, 2, 3)),
        chart(curve(5, first=20), name="test_accuracy"),
        chart(curve(7, 8), name="ms"),
    ]
    plots = charts.draw(every, ["1"], PLAIN)
    assert [view["name"] for view, _ in plots] == ["loss", "ms"]
    assert [(plot.first, plot.last) for _, plot in plots] == [(0, 20), (0, 20)]
    assert charts.draw([], ["1"], PLAIN) == []


def test_the_curves_of_several_jobs_share_an_axis_and_keep_their_place_and_look() -> None:
    plot = drawn(curve(1, 2, job="000007"), curve(5, 9, 4, job="000003"))
    assert [line.run for line in plot.lines] == [0, 1]
    assert (plot.least, plot.most, plot.newest) == (1, 9, {0: 2, 1: 4})
    few, more = charts.styles(["000007", "000003"]), charts.styles(["000003", "000004", "000007"])
    assert (few[1], few[0]) == (more[0], more[2]), "a job looks the same beside others"
    many = charts.styles([f"{n:06d}" for n in range(5, 29)])
    assert len({*many}) == 24, "24 jobs can be told apart"
    assert len({style.colour for style in many[:8]}) == charts.COLOURS


def test_over_time_the_first_step_of_each_job_is_at_the_left_and_a_pause_is_a_gap() -> None:
    later = "2026-01-01T00:01:00.000Z"
    plot = drawn(
        curve(3, 2, cause="PREEMPTED"),
        curve(2, 1, attempt=2, first=10, began_at=later),
        curve(9, 8, job="2", began_at="2026-01-02T00:00:00.000Z"),
        options=ChartOptions(by_time=True),
    )
    first, second, other = (places(line.points) for line in plot.lines)
    assert (first[0][0], other[0][0]) == (0, 0)
    assert second[0][0] > first[-1][0] + 500, "59 of 61 seconds"
    assert [tick.text for tick in plot.across] == ["0s", "30s", "1m00s"]


def test_a_logarithmic_axis_has_decades_and_leaves_out_what_has_no_logarithm() -> None:
    plot = drawn(curve(-1, 0, 1000, 100, 10, 1), options=ChartOptions(log=True))
    assert plot.log
    assert [tick.text for tick in plot.values] == ["1", "10", "100", "1,000"]
    heights = [y for _, y in places(plot.lines[0].points)]
    assert heights == pytest.approx([0, 40, 80, 120])
    assert not drawn(curve(-1, -2), options=ChartOptions(log=True)).log, "none is positive"


def test_smoothing_is_the_same_for_runs_with_points_of_other_distances() -> None:
    options = ChartOptions(smooth=0.97)
    noisy = [5 + (-1) ** n for n in range(100)]
    plot = drawn(curve(*noisy), options=options)
    assert plot.most - plot.least < 2, "less than the noise"
    assert places(plot.lines[0].points)[0][1] == 0, "it starts at the first value"
    dense = curve(*(1000 - n for n in range(1001)))
    thin = {**dense, "points": dense["points"][::100]}
    ends = [
        drawn(view, options=ChartOptions(smooth=0.6)).newest[0]
        for view in (dense, cast(CurveView, thin))
    ]
    assert ends[0] == pytest.approx(ends[1], abs=2)


def test_what_happened_to_a_run_is_marked_where_it_happened() -> None:
    plot = drawn(
        curve(5, 4, 3, 2, kept=20, cause="PREEMPTED", checkpoint=20),
        curve(3, 2, attempt=2, first=20, cause="CRASH", nonfinite=30, checkpoint=7),
    )
    marks = [(mark.kind, round(mark.x), mark.text) for mark in plot.marks]
    assert marks == [
        ("checkpoint", 67, "attempt 1, step 20: newest checkpoint"),
        ("preempted", 100, "attempt 1, step 30: PREEMPTED"),
        ("nonfinite", 100, "attempt 2, step 30: the loss is not finite"),
        ("ended", 100, "attempt 2, step 30: CRASH"),
    ]
    times = [curve(1, 2, attempt=n, cause="CRASH") for n in range(1, 100)]
    assert len(drawn(*times).marks) == charts.MAX_MARKS


def test_the_address_says_how_charts_are_drawn() -> None:
    query = PageQuery.read("x=time&log=1&smooth=0.9", charts.FILTERS)
    assert ChartOptions.read(query) == ChartOptions(by_time=True, log=True, smooth=0.9)
    assert ChartOptions.read(PageQuery.read("smooth=NaN", charts.FILTERS)) == PLAIN
