"""Plans go out and reports come back: what each host is to run, and what is believed of what it says."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tests.support.launched import a_job
from tests.support.records import respec
from tpujob.domain.host import plan as launch
from tpujob.domain.model import Cause, Endpoint
from workloads.contract import Context


@dataclass
class Object:
    path: str
    updated: float = 100.0
    metadata: dict[str, str] = field(default_factory=dict)


def said(host: int = 0, **fields: Any) -> str:
    return json.dumps(
        {"v": 1, "job": "000042", "attempt": 2, "host": host, "phase": "running", **fields}
    )


def test_each_host_gets_its_own_plan_of_the_newest_attempt() -> None:
    first, second = launch.plans(a_job(), report_every=3, avoid={"rack-7"})
    assert (first.host, second.host) == (0, 1)
    assert first.document == {
        "v": 1,
        "job": "000042",
        "attempt": 2,
        "host": 0,
        "hosts": 2,
        "workdir": "gs://shed/jobs/000042",
        "bundles": ["gs://shed/bundles/a.tar.gz", "gs://shed/bundles/b.tar.gz"],
        "setup": None,
        "argv": ["bash", "-c", "python train.py"],
        "env": {},
        "context": first.document["context"],
        "grace": 30,
        "report_every": 3,
        "log_bytes": 256 * 1024 * 1024,
        "watch": {"nonfinite": None, "progress": None},
        "stall": {"seconds": 900, "first": 1800, "looks": 5},
        "avoid": ["rack-7"],
        "preflight": {
            "slice": "tj-000042-1",
            "chips": 8,
            "hosts": 2,
            "coordinator": "10.0.1.0:8477",
            "required": False,
            "seconds": 60,
        },
        "environment": None,
        "mounts": [],
        "type": "v4-16",
        "shared": "gs://shed/cache",
    }
    assert json.loads(json.dumps(second.document)) == second.document
    context = second.document["context"]
    env = {f"TPUJOB_{key.upper()}": str(value) for key, value in context.items()}
    assert Context.from_env(env) == Context(
        job="000042",
        attempt=2,
        host=1,
        hosts=2,
        coordinator="10.0.1.0:8476",
        workdir="gs://shed/jobs/000042",
        cache="~/.tpujob/cache",
    )


def test_every_host_is_told_before_which_step_it_must_resume() -> None:
    job = a_job()
    newest = replace(job.attempts[-1], resume_before=41)
    told = launch.plans(replace(job, attempts=(job.attempts[0], newest)))
    assert [plan.document["context"]["resume_before"] for plan in told] == [41, 41]
    assert [plan.document["context"]["resume_before"] for plan in launch.plans(job)] == [0, 0]


def test_hosts_of_several_slices_are_told_how_to_find_each_other() -> None:
    """What each gets beyond the plan of a single slice: libtpu's words and ours."""
    job = a_job(command="python train.py")
    job = replace(
        job,
        spec=respec(job.spec, run={"command": "x", "env": {"MEGASCALE_SLICE_ID": "9"}}),
        slices=(
            replace(
                job.slices[0],
                tpu_slices=2,
                endpoints=tuple(Endpoint(host, f"10.0.1.{host}") for host in range(4)),
            ),
        ),
    )
    plans = [plan.document for plan in launch.plans(job)]
    assert [plan["env"] for plan in plans] == [
        {
            "MEGASCALE_COORDINATOR_ADDRESS": "10.0.1.0:8080",
            "MEGASCALE_NUM_SLICES": "2",
            "MEGASCALE_PORT": "8080",
            "MEGASCALE_SLICE_ID": of,  # no common value of a user's could be right
        }
        for of in ("0", "0", "1", "1")
    ]
    told = [(p["context"]["host"], p["context"]["slice"], p["context"]["slices"]) for p in plans]
    assert told == [(0, 0, 2), (1, 0, 2), (2, 1, 2), (3, 1, 2)]
    assert {p["context"]["coordinator"] for p in plans} == {"10.0.1.0:8476"}, "one program"
    check = plans[3]["preflight"]
    assert (check["hosts"], check["chips"]) == (4, 16)


def test_a_workloads_arguments_are_one_word_each() -> None:
    args = {"steps": 20, "learning_rate": 1e-5, "resume": True, "shuffle": False, "note": "a; $(b)"}
    job = a_job(workload="mlp", args=args)
    assert launch.plans(job)[0].document["argv"] == [
        "python3",
        "-m",
        "workloads.mlp",
        "--steps=20",
        "--learning-rate=1e-05",
        "--resume",
        "--no-shuffle",
        "--note=a; $(b)",
    ]
    assert launch.command_line(job.spec) == (
        "python3 -m workloads.mlp --steps=20 --learning-rate=1e-05 --resume --no-shuffle '--note=a; $(b)'"
    )


def test_a_command_is_shown_as_it_was_written() -> None:
    assert launch.command_line(a_job(command="a | b").spec) == "a | b"


def test_a_report_is_read_back() -> None:
    text = said(
        1,
        phase="exited",
        exit_code=71,
        error="x\x1b[31m\ny",
        cause="BAD_HOST",
        notice="preempted",
        program_phase="train",
        step=7,
        steps=9,
        loss=0.5,
        checkpoint=6,
        resumed_from=3,
        metrics={"accuracy": 0.9, "bad": "x"},
    )
    report = launch.read_report(1, text, age=4.0)
    assert report is not None
    assert (report.host, report.attempt, report.phase, report.age) == (1, 2, "exited", 4.0)
    assert (report.exit_code, report.error, report.error_cause) == (71, "x y", Cause.BAD_HOST)
    assert report.notice == "preempted"
    progress = report.progress
    assert (progress.step, progress.steps, progress.loss, progress.phase) == (7, 9, 0.5, "train")
    assert (progress.checkpoint, progress.resumed_from) == (6, 3)
    assert progress.metrics == {"accuracy": 0.9}


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
def test_what_is_no_report_of_this_host_is_none(text: str) -> None:
    assert launch.read_report(0, text, age=0) is None


def test_values_of_a_wrong_kind_count_as_not_said() -> None:
    text = said(
        step="7", loss=float("nan"), exit_code=True, notice=["x"], cause="WHIM", metrics=[1]
    )
    report = launch.read_report(0, text, age=0)
    assert report == launch.read_report(0, said(), age=0)
    huge = said(step=10**30, loss=10**400, checkpoint=1.5, error="e" * 9000)
    read = launch.read_report(0, huge, age=0)
    assert read is not None
    assert len(read.error) == 500
    assert replace(read, error="") == report


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
    ]
)


@given(some.dictionaries(_KEYS, _JSON))
def test_no_report_makes_trouble(fields: dict[str, Any]) -> None:
    report = launch.read_report(0, said(**fields), age=1.0)
    assert report is None or report.phase in launch.PHASES


def test_reports_are_those_of_the_newest_attempt_by_host() -> None:
    job = a_job()
    prefix = launch.reports_prefix(job)
    assert prefix == "gs://shed/jobs/000042/attempts/2/reports/host-"
    objects = [
        Object(prefix + "10", metadata={"report": said(10)}),
        Object(prefix + "2", 103.0, {"report": said(2)}),
        Object(prefix + "3", metadata={"report": said(3, attempt=1)}),
        Object(prefix + "4", metadata={"report": said(4, job="000041")}),
        Object(prefix + "5", metadata={"report": said(6)}),
        Object(prefix + "6"),
        Object(prefix + "07", metadata={"report": said(7)}),
        Object(prefix + "8/x", metadata={"report": said(8)}),
        Object("gs://shed/other/host-9", metadata={"report": said(9)}),
    ]
    found = launch.read_reports(job, objects, now=102.0)
    assert [(r.host, r.age) for r in found] == [(2, 0.0), (10, 2.0)]


def test_places() -> None:
    workdir = "gs://shed/jobs/000042"
    assert launch.report_path(workdir, 2, 0) == f"{workdir}/attempts/2/reports/host-0"
    assert launch.report_path(workdir, 2, 0).startswith(launch.reports_prefix(a_job()))
    assert launch.log_prefix(workdir, 2, 1) == f"{workdir}/attempts/2/host-1/log-"
    assert launch.log_path(workdir, 2, 1, 7) == f"{workdir}/attempts/2/host-1/log-00007.tpujob-log"
