"""Warnings of an attempt that continues: hosts that began differently, and outputs that are not kept."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.records import NOW, SPEC, job_in, report
from tpujob.domain.actions import Decision
from tpujob.domain.decide import attempt_end, decide
from tpujob.domain.events import EventKind
from tpujob.domain.failures.warnings import sentences, warnings_of
from tpujob.domain.lifecycle import apply
from tpujob.domain.model import End, Job, Outcome, Progress, State
from tpujob.domain.observations import HostOutputs, HostReport, Observation, Present, SliceState
from tpujob.domain.spec import JobSpec, dump, parse

EACH, SHARED = {"folder": "out", "from": None}, {"folder": "out", "from": 0}
NONE, SOME = HostOutputs(0, 0, ()), HostOutputs(3, 0, ())


def spec(*outputs: dict[str, Any]) -> JobSpec:
    return parse({**dump(SPEC), "outputs": list(outputs)})


def texts(*reports: HostReport, outputs: Any = (EACH,)) -> list[str]:
    return list(sentences(warnings_of(reports, spec(*outputs).outputs)))


def at(host: int, outputs: HostOutputs | None = None, **progress: Any) -> HostReport:
    """The report of a host that makes steps."""
    progress.setdefault("step", 130)
    return report(host, progress=Progress(**progress), outputs=outputs)


APART = "the hosts train different steps: host {} resumed from step {}, host {} "
LONE = (
    "host 0 got files of `outputs` back and host 1 got none: if host 0 saves for all hosts, add `from: 0` to the "
    "folder"
)


@pytest.mark.parametrize(
    ("reports", "text"),
    [
        (
            (at(0, resumed_from=253), at(1, resumed_from=254)),
            APART.format(1, 254, 0) + "from step 253",
        ),
        (
            (at(0, resumed_from=120), at(1, first_step=1)),
            APART.format(0, 120, 1) + "from the beginning",
        ),
        ((at(0, resumed_from=120), at(1, resumed_from=120)), ""),
        (
            (at(0, resumed_from=120), at(1, first_step=121)),
            "",
        ),  # host 1 does not report where it resumed
        ((at(0, resumed_from=120), at(1)), ""),
        ((at(0), at(1)), ""),
        ((at(0, SOME), at(1, NONE)), LONE),
        ((at(0, SOME, resumed_from=120), at(1, NONE, step=None)), LONE),
        ((at(0, SOME, first_step=121), at(1, NONE, first_step=121)), ""),  # the files do not matter
        ((at(0, SOME, resumed_from=120), at(1, NONE, resumed_from=120)), ""),
        ((at(0, SOME), at(1)), ""),  # not restored yet
        ((at(0, SOME, step=None), at(1, NONE, step=None)), ""),  # no step yet
        ((at(0, NONE), at(1, NONE)), ""),
        ((at(0, SOME), at(1, SOME)), ""),
    ],
)
def test_hosts_that_began_differently_are_named_at_the_first_step(
    reports: tuple[HostReport, ...], text: str
) -> None:
    assert texts(*reports) == ([text] if text else [])


EMPTY = HostOutputs(0, 0, ("out",))


@pytest.mark.parametrize(
    ("reports", "outputs", "said"),
    [
        ((at(0, EMPTY), at(1, EMPTY)), EACH, "is empty: nothing in it is kept"),
        ((at(0, NONE), at(1, EMPTY)), EACH, "is empty on some hosts after a checkpoint: if host 0"),
        ((at(0, EMPTY), at(1, NONE)), SHARED, "is empty: nothing in it is kept"),
        ((at(0, EMPTY), at(1)), EACH, "is empty: nothing in it is kept"),
        ((at(0), at(1)), EACH, ""),
    ],
)
def test_an_empty_folder_of_outputs_is_named(
    reports: tuple[HostReport, ...], outputs: Any, said: str
) -> None:
    (text,) = texts(*reports, outputs=(outputs,)) or ("",)
    assert (f"outputs: out {said}" in text) if said else not text


def test_results_that_host_0_writes_at_the_end_are_no_warning() -> None:
    done = replace(at(1, EMPTY), phase="exited")
    assert texts(at(0, NONE), done) == []


# Events --------------------------------------------------------------------------------------------------------------


def decided(job: Job, *reports: HostReport) -> Decision:
    slices = {s.name: Present(SliceState.READY) for s in job.slices}
    return decide(job, Observation(slices, reports), NOW)


def test_a_warning_is_one_event_until_it_changes() -> None:
    job = replace(job_in(State.RUNNING), spec=spec(EACH))
    starts = [
        (at(0, replace(SOME, left_out=n), resumed_from=253), at(1, SOME, resumed_from=254))
        for n in (0, 0, 1, 1, 2, 3, 4)
    ]
    stored = list[str]()
    for reports in starts:
        event = decided(job, *reports).event
        if event and event.kind is EventKind.WARNED:
            stored.append(event.text)
            job = apply(job, event)
    assert stored == [
        APART.format(1, 254, 0) + "from step 253",
        "outputs: 1 file is not kept; the log names them",
        "outputs: 2 files are not kept; the log names them",
        "outputs: 4 files are not kept; the log names them",
    ]
    over = decided(job, at(0, SOME), at(1, SOME)).event
    assert over
    assert over.text == "an earlier warning is over"


def test_the_end_names_what_was_not_kept() -> None:
    job = replace(job_in(State.RUNNING), spec=spec(EACH))
    success = End(Outcome.SUCCEEDED, None, None, "exit code 0 on all 2 hosts")
    reports = (at(0, HostOutputs(0, 2, ())), at(1, HostOutputs(0, 1, ())))
    happened = attempt_end.end_attempt(job, success, reports, NOW)
    assert happened.text == (
        "attempt 1 succeeded: exit code 0 on all 2 hosts; outputs: 3 files are not kept; the log names them"
    )
    (attempt,) = apply(job, happened).attempts
    assert (attempt.outcome, attempt.warnings.left_out) == (Outcome.SUCCEEDED, 3)
