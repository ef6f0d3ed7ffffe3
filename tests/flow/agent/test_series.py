"""Curves: of bounded size for any program, and readable by the backend."""

import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.agent_host import KEY, Host, until
from tpujob.agent.upload.progress import ProgressReader, Series
from tpujob.domain.host.reports import read_evidence
from tpujob.domain.host.series import Point, read_curves, read_series
from tpujob.protocol.report import MAX_NAMES, MAX_ROWS, MAX_SERIES


def of_steps(count: int, names: int = 1) -> Series:
    series, chance = Series(), random.Random(7)
    for step in range(1, count + 1):
        metrics = {
            f"n{i}": chance.gauss(0, 1) * 10.0 ** chance.randint(-9, 9) for i in range(names)
        }
        series.step(step, 1.8e9 + step / 7, {"step": step, "loss": 1000 / step, **metrics})
    return series


@pytest.mark.parametrize("count", [1, MAX_ROWS, MAX_ROWS + 1, 12_500])
def test_many_steps_take_no_more_room_than_some_hundred(count: int) -> None:
    line = of_steps(count, names=MAX_NAMES + 4).line()
    assert len(line) <= MAX_SERIES
    loss = read_series(line)["loss"]
    assert 1 <= len(loss) <= MAX_ROWS
    assert len(loss) == count or len(loss) > MAX_ROWS / 5, "and there is enough to see"
    assert loss[-1].step == count, "up to the newest"
    assert loss[-1].last == pytest.approx(1000 / count, rel=1e-4)
    assert max(point.most for point in loss) == 1000, "no peak is lost"
    assert all(point.least <= point.last <= point.most for point in loss)


def test_a_spike_between_two_points_is_seen() -> None:
    series = Series()
    for step in range(1, 5001):
        series.step(step, float(step), {"loss": 99.0 if step == 2345 else 1.0})
    (spike,) = [p for p in read_series(series.line())["loss"] if p.most > 1]
    assert (spike.most, spike.least, spike.last) == (99.0, 1.0, 1.0)
    assert abs(spike.step - 2345) < 50


def test_metrics_belong_to_the_newest_step_and_what_is_no_number_is_left_out() -> None:
    series = Series()
    series.metric("early", 1)
    series.step(1, 1.0, {"loss": None, "host": 0, "note": "x", "flag": True, "ms": 12})
    series.metric("mfu", 0.41)
    series.metric("bad", float("nan"))
    assert read_series(series.line()) == {
        "": [Point(1, 1.0, 0.0, 0.0, 0.0)],
        "ms": [Point(1, 1.0, 12.0, 12.0, 12.0)],
        "mfu": [Point(1, 1.0, 0.41, 0.41, 0.41)],
    }
    assert Series().line() == b"", "there are no steps"


def test_long_names_of_metrics_are_shortened() -> None:
    series = Series()
    series.step(1, 1.0, {str(n) + "\N{DESERT ISLAND}" * MAX_SERIES: n for n in range(MAX_NAMES)})
    names = read_series(series.line()).keys() - {""}
    assert {len(name) for name in names} == {60}
    assert len(names) == MAX_NAMES


def test_checkpoints_count_in_order_once_the_bucket_has_them(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    reader = ProgressReader(str(path))
    reader.held = True

    def tell(*steps: int) -> None:
        with path.open("a") as file:
            file.writelines(f'{{"kind": "checkpoint", "step": {step}}}\n' for step in steps)
        reader.look()

    tell(10, 20, 30)
    assert "checkpoint" not in reader.facts
    reader.confirm(20, lambda step: step == 10)
    assert (reader.facts["checkpoint"], reader.facts["checkpoints"]) == (20, [20])
    tell(*range(40, 900, 10))
    reader.confirm(880, lambda _: False)
    assert reader.facts["checkpoint"] == 880
    assert reader.facts["checkpoints"] == [*range(570, 890, 10)], "30 is among those before"
    assert reader.facts_before(700)["checkpoints"] == [*range(380, 700, 10)]


def test_a_report_has_curves_and_evidence(host: Host) -> None:
    steps = """for n in 1 2 3; do
        echo '{"kind": "step", "step": '$n', "loss": 0.'$n'}' >> $TPUJOB_OUT/events.jsonl
    done; echo "TypeError: no" >&2; exit 1"""
    host.start(steps, host=1)
    until(lambda: host.bucket.report(host=1).get("phase") == "exited", "the end of host 1")
    body = host.bucket.read(host.bucket.report_name(by=1))
    curves = read_curves(body, KEY)
    assert curves is not None
    loss = read_series(curves.line)["loss"]
    assert [(point.step, point.last) for point in loss] == [(1, 0.1), (2, 0.2), (3, 0.3)]
    assert [line.text for line in read_evidence(body)] == ["TypeError: no"]


HOSTILE = [
    {"names": "loss", "rows": [[1, 2, 3]]},
    {"names": [1, None, "x" * 10_000], "rows": [[1, 2, 3, 4, 5]]},
    {"names": ["loss"], "rows": [[], [1], ["a", "b", 3], [True, 1, 2], [1, 1, [1]], [1e300, 2, 3]]},
    {"names": ["loss"], "rows": [[1, 2, [3, "x", 4]], [1, 2, {"a": 1}], 7, None]},
    {"rows": 3},
    [],
    "text",
]


@pytest.mark.parametrize("document", HOSTILE)
def test_malformed_curves_are_ignored(document: object) -> None:
    series = read_series(json.dumps(document).encode())
    assert all(point.step < 2**53 for points in series.values() for point in points)
    assert "loss" not in series


@given(st.binary(max_size=300))
def test_no_bytes_make_the_reader_fail(body: bytes) -> None:
    read_series(body)
