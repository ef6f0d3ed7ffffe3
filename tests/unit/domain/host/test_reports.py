"""The parts of a host's report that are believed."""

import json
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tests.support.records import ENDPOINTS, NOW, job_in
from tpujob.domain.decide import decide
from tpujob.domain.host import reports
from tpujob.domain.model import Cause, Progress, State, Unreached
from tpujob.domain.observations import (
    HostOutputs,
    Maintenance,
    Observation,
    Present,
    SliceState,
)
from tpujob.protocol import AgentCause, Phase


def said(host: int = 0, **fields: Any) -> str:
    return json.dumps(
        {"v": 1, "job": "000042", "attempt": 2, "host": host, "phase": "running", **fields}
    )


def test_a_report_is_read_back() -> None:
    fields: dict[str, Any] = {"loss": 0.5, "first_step": 4, "metrics": {"a": 0.9, "bad": "x"}}
    text = said(error="x\x1b[31m\ny", cause="BAD_HOST", late=True, signalled=False, **fields)
    report = reports.read_report(0, text)[1]
    assert (report.error, report.error_cause) == ("x y", Cause.BAD_HOST)
    assert (report.late, report.signalled) == (True, False)
    assert report.progress == Progress(loss=0.5, first_step=4, metrics={"a": 0.9})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "[" * 100_000,
        said(1),
        said(True),
        said(phase="flying"),
        said(phase=None),
        said(phase=[]),
        said(attempt="2"),
        said(pad="x" * 100_000),
    ],
)
def test_a_report_of_another_host_or_attempt_is_ignored(text: str) -> None:
    assert reports.read_report(0, text)[1] is None


def test_values_of_a_wrong_type_count_as_missing() -> None:
    text = said(
        step="7", loss=float("nan"), exit_code=True, notice=["x"], cause="WHIM", metrics=[1]
    )
    report = reports.read_report(0, text)[1]
    assert report == reports.read_report(0, said())[1]
    huge = said(step=10**30, loss=10**400, checkpoint=1.5, error="e" * 9000)
    read = reports.read_report(0, huge)[1]
    assert len(read.error) == 500
    assert replace(read, error="") == report


def test_checkpoints_and_outputs_are_read_within_bounds() -> None:
    empty = ["ckpt", "a\nb", 7, "", "c", "d"]
    outputs = {"restored": 3, "left_out": -1, "empty": empty}
    report = reports.read_report(0, said(checkpoints=[*range(40), "x", 2.5], outputs=outputs))[1]
    assert report.checkpoints == tuple(range(10, 40))
    assert report.outputs == HostOutputs(3, 0, ("ckpt", "a b"))
    for wrong in ({}, [], "x", None):
        read = reports.read_report(0, said(checkpoints=wrong, outputs=wrong))[1]
        assert (read.checkpoints, read.outputs) == ((), None)


def test_announced_maintenance_is_read_and_changes_no_decision() -> None:
    window = {
        "starts": "2026-11-29T04:00:00Z",
        "ends": "2026-11-29T08:00:00Z",
        "latest": "",
        "kind": "SCHEDULED",
        "status": "PENDING",
    }
    report = reports.read_report(0, said(maintenance=window))[1]
    assert report is not None
    starts = 1795924800.0
    assert report.maintenance == Maintenance(starts, starts + 14400, None, "SCHEDULED", "PENDING")
    assert not report.notice
    job = job_in(State.RUNNING)
    announced = (replace(report, attempt=1), replace(report, attempt=1, host=1))
    plain = tuple(replace(report_, maintenance=None) for report_ in announced)
    slices = {job.slices[0].name: Present(SliceState.READY, ENDPOINTS)}
    for now in (NOW, starts + 1):
        assert decide(job, Observation(slices, announced), now) == decide(
            job, Observation(slices, plain), now
        )


@pytest.mark.parametrize(
    "starts", ["", "soon", 7, None, "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"]
)
def test_maintenance_that_names_no_time_is_passed_over(starts: object) -> None:
    report = reports.read_report(0, said(maintenance={"starts": starts}))[1]
    assert report.maintenance is None


_JSON = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats() | some.text(),
    lambda inner: some.lists(inner) | some.dictionaries(some.text(), inner),
    max_leaves=8,
)
_KEYS = some.sampled_from(
    [
        "host",
        "attempt",
        "phase",
        "exit_code",
        "error",
        "cause",
        "notice",
        "step",
        "loss",
        "metrics",
        "program_phase",
        "maintenance",
    ]
)


@given(some.dictionaries(_KEYS, _JSON))
def test_no_report_raises_an_error(fields: dict[str, Any]) -> None:
    report = reports.read_report(0, said(**fields))[1]
    assert report is None or report.phase in Phase


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ({"source": 3, "target": 0, "port": 8476}, Unreached(3, 0, 8476)),
        (None, None),
        ({"source": 3, "port": 8476}, None),
        ({"source": "3", "target": 0, "port": 8476}, None),
        ([3, 0, 8476], None),
    ],
)
def test_a_host_that_another_cannot_reach_is_read(value: object, read: Unreached | None) -> None:
    report = reports.read_report(0, said(unreached=value, late="yes"))[1]
    assert (report.unreached, report.late) == (read, False)


def test_every_cause_that_an_agent_gives_is_one_of_the_domain() -> None:
    assert set(get_args(AgentCause)) < set(Cause.__members__)
