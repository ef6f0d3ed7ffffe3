"""The agreement of backend and agent: paths, phases, and the plan as it has been since 0.1.0."""

import json
from typing import Any

import pytest

from tests.support.records import a_job
from tpujob.domain.host import plan, reports
from tpujob.protocol import Phase, Plan, check_plan, paths

WORKDIR = "gs://shed/jobs/000042"

#: What an agent of 0.1.0 needs.
OF_0_1: dict[str, Any] = {
    "v": 1,
    "job": "000042",
    "attempt": 1,
    "host": 0,
    "hosts": 1,
    "workdir": WORKDIR,
    "bundles": [],
    "setup": None,
    "argv": ["true"],
    "env": {},
    "context": {"job": "000042", "attempt": 1, "host": 0, "hosts": 1, "workdir": WORKDIR},
    "grace": 5,
    "report_every": 1,
    "log_bytes": 1024,
}


def test_paths_in_the_bucket_are_as_documented() -> None:
    report = "gs://shed/reports/000042/2/host-11"
    assert paths.report_path(WORKDIR, 2, 11) == report
    assert paths.read_report_path(paths.reports_root(WORKDIR), report) == ("000042", 2, 11)
    assert paths.read_report_path("gs://shed/u/ada/reports/", report) is None
    assert paths.kept_report_path(WORKDIR, 2, 0) == f"{WORKDIR}/attempts/2/reports/host-0"
    assert report.startswith(reports.reports_prefix(a_job()))
    assert paths.log_prefix(WORKDIR, 2, 1) == f"{WORKDIR}/attempts/2/host-1/log-"
    assert paths.log_path(WORKDIR, 2, 1, 7) == f"{WORKDIR}/attempts/2/host-1/log-00007.tpujob-log"


@pytest.mark.parametrize(
    ("path", "place"),
    [
        (paths.log_path(WORKDIR, 2, 11, 123456), (2, 11, 123456)),
        (f"{WORKDIR}/attempts/2/host-1/log-7.tpujob-log", None),
        (f"{WORKDIR}/attempts/2/host-1/log-00007.tpujob-log.tmp", None),
        (f"{WORKDIR}/attempts/2/host-1/events.jsonl", None),
        (paths.log_path("gs://shed/jobs/000043", 2, 1, 7), None),
    ],
)
def test_a_log_segment_is_known_by_its_path(path: str, place: tuple[int, int, int] | None) -> None:
    assert paths.read_log_path(WORKDIR, path) == place


def test_a_phase_is_its_word_in_json_and_in_text() -> None:
    assert json.loads(json.dumps({"phase": Phase.RUNNING})) == {"phase": "running"}
    assert f"{Phase.RUNNING} {Phase.RUNNING!s} {Phase.RUNNING:>8}" == "running running  running"
    assert Phase.RUNNING in {"running"}


def test_a_plan_of_0_1_is_carried_out() -> None:
    assert check_plan(OF_0_1) == OF_0_1


def test_an_agent_of_0_1_finds_all_that_it_needs_in_a_plan_of_today() -> None:
    document = plan.plans(a_job())[0].document
    assert OF_0_1.keys() <= document.keys()
    assert check_plan(document) is document
    assert document.keys() == Plan.__annotations__.keys()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"v": 2}, "does not understand the plan: v"),
        ({"attempt": "1", "argv": None}, "does not understand the plan: attempt, argv"),
        ({"job": "../x"}, "names no job"),
        ({"argv": []}, "names no job or no program"),
        ({"workdir": "/tmp/x"}, "no workdir in a bucket"),
    ],
)
def test_a_plan_that_could_do_harm_is_refused(change: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        check_plan({**OF_0_1, **change})
