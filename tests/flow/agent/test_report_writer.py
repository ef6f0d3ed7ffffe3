"""Times at which a host writes its report, with faults of bucket, clock and disk."""

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.agent_host import JOB, KEY, Bucket, until
from tests.support.costed_hour import Case
from tpujob.agent import storage
from tpujob.agent.metadata import MetadataClient
from tpujob.agent.storage import Storage
from tpujob.agent.upload import Redactor, ReportWriter
from tpujob.agent.upload.report_writer import GAP, HURRY, SLOWEST, ReportSchedule
from tpujob.protocol import Plan, ReportDocument, StallRule
from tpujob.protocol.limits import SAVING

STALL: StallRule = {"seconds": 300, "first": 900, "looks": 3}


def report(**facts: Any) -> ReportDocument:
    return cast(ReportDocument, {"phase": "running", **facts})


class Schedule:
    """A host that wrote at 0."""

    def __init__(self, before: ReportDocument, every: float = 60.0) -> None:
        self.schedule = ReportSchedule(every, STALL)
        assert self.schedule.seconds_left(before, b"", 0.0) == 0, "the first one"
        self.schedule.note_written(before, b"", 0.0)

    def due(self, after: ReportDocument, evidence: bytes = b"") -> float:
        """Return the time of the next write."""
        return self.schedule.seconds_left(after, evidence, 0.0)


@pytest.mark.parametrize(
    ("change", "due"),
    [
        pytest.param({"step": 9, "checkpoint": 8, "idle": 40.0, "looks": 9}, 60, id="nothing"),
        pytest.param({"phase": "stopping"}, GAP, id="a phase"),
        pytest.param({"notice": "maintenance"}, GAP, id="a notice"),
        pytest.param({"phase": "exited", "exit_code": 1}, GAP, id="the end"),
        pytest.param({"notice": "preempted", "phase": "exited"}, HURRY, id="a doomed host"),
        pytest.param({"error": "alone"}, GAP, id="an error"),
        pytest.param({"verdict": {"text": "nan"}}, GAP, id="a verdict"),
        pytest.param({"saved_in": 3.0}, GAP, id="a checkpoint after a notice"),
        pytest.param({"idle": 300.0, "looks": 3}, GAP, id="a hang"),
        pytest.param({"idle": 300.0, "looks": 2}, 60, id="a hang that was hardly looked at"),
        pytest.param({"idle": 300.0, "looks": 9, "program_phase": "compile"}, 60, id="compiles"),
        pytest.param({"idle": 900.0, "looks": 9, "program_phase": "compile"}, GAP, id="too long"),
    ],
)
def test_what_matters_is_written_before_the_minute(change: dict[str, Any], due: float) -> None:
    assert Schedule(report()).due(report(**change)) == due


def test_evidence_matters_too_and_a_host_that_is_saving_reports_more_often() -> None:
    assert Schedule(report()).due(report(), b"lines") == GAP
    doomed = report(notice="preempted")
    assert Schedule(doomed).due(report(notice="preempted", step=9)) == SAVING
    assert Schedule(doomed, every=3.0).due(report(notice="preempted", step=9)) == 3.0


def test_the_last_report_waits_for_nothing() -> None:
    schedule = Schedule(report()).schedule
    assert schedule.seconds_left(report(), b"", 0.25, last=True) == GAP - 0.25


def test_what_the_storage_refuses_is_tried_again_ever_later() -> None:
    schedule, now, waited = Schedule(report()).schedule, 60.0, list[float]()
    for _ in range(7):
        schedule.note_failed(now)
        waited.append(schedule.seconds_left(report(), b"", now))
        now += waited[-1]
    assert waited == [1, 2, 4, 8, SLOWEST, SLOWEST, SLOWEST]
    schedule.note_written(report(), b"", now)
    schedule.note_failed(now + 60)
    assert schedule.seconds_left(report(), b"", now + 60) == GAP


def test_a_host_writes_at_most_80_times_an_hour() -> None:
    """Reports and log of a program that prints are operations of class A."""
    written = Case(4, followed=False).played().hosts["A"]
    assert 60 * 4 < written <= 80 * 4


# A real thread and a real storage ------------------------------------------------------------------------------------


class Rig:
    def __init__(self, bucket: Bucket) -> None:
        self.late = 0.0  #: seconds that the host's clock is behind
        self.bucket, about = bucket, {"job": JOB, "attempt": 1, "host": 0}
        plan = {**about, "workdir": f"gs://shed/jobs/{JOB}", "report_every": 600}
        self.writer = ReportWriter(
            cast(Plan, plan),
            Storage(MetadataClient()),
            KEY,
            first=cast(ReportDocument, {"v": 1, **about, "phase": "running"}),
            vitals=dict,
            redactor=Redactor({"METRIC_KEY": "checkpoint", "SEED_KEY": "12345678"}),
            gap=0.05,
            clock=lambda: time.time() - self.late,
        )

    def update(self, **facts: Any) -> None:
        self.writer.update(cast(ReportDocument, facts))

    def has(self, name: str, value: object) -> bool:
        return bool(self.bucket.report().get(name) == value)


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    bucket = Bucket(tmp_path / "storage")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", bucket.url)
    made = Rig(bucket)
    until(lambda: made.has("phase", "running"), "the first report")
    yield made
    made.writer.finish({}, b"", 20)
    bucket.close()


def test_secrets_are_replaced_in_texts_and_not_in_names_of_fields_or_numbers(rig: Rig) -> None:
    rig.update(checkpoint=12345678, metrics={"x12345678": 12345678}, error="no checkpoint")
    error = "no [secret METRIC_KEY]"
    until(lambda: rig.has("error", error), "the next report")
    assert rig.has("checkpoint", 12345678)
    assert rig.has("metrics", {"x[secret SEED_KEY]": 12345678})


def test_a_report_has_the_time_of_the_storage(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    for off in (3600.0, -3600.0):
        wrong = SimpleNamespace(time=lambda off=off: time.time() + off, monotonic=time.monotonic)
        monkeypatch.setattr(storage, "time", wrong)
        began = time.time()
        rig.update(error=str(off))
        until(lambda off=off: rig.has("error", str(off)), "the next report")
        assert began - 5 < rig.bucket.report()["at"] < time.time() + 5


def test_numbers_grow_when_the_clock_is_put_back(rig: Rig) -> None:
    numbers = [rig.bucket.report()["seq"]]
    assert abs(numbers[0] / 1000 - time.time()) < 60, "by the clock"
    for rig.late in (4000.0, 4000.0, -4000.0):
        error = str(len(numbers))
        rig.update(error=error)
        until(lambda error=error: rig.has("error", error), "the next report")
        numbers.append(rig.bucket.report()["seq"])
    assert numbers == sorted(set(numbers))
