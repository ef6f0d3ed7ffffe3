"""The future in a view: what comes next and when, the retries that are left, and the reason for a wait."""

from dataclasses import replace

import pytest

from tests.support.records import NOW, V6E, B, job_in, request, with_progress
from tpujob.api import NextView
from tpujob.domain.capacity import circuits
from tpujob.domain.capacity.waiting_reasons import describe
from tpujob.domain.model import Cause, DesiredState, Job, State, Warnings
from tpujob.domain.observations import Circuit, Place, Reason, ReasonKind
from tpujob.domain.progress import job_progress
from tpujob.domain.spec import dump, parse
from tpujob.service import next_step

_S = State


def next_of(job: Job) -> NextView:
    return next_step.what_next(job, job_progress(job), None, NOW)


ACTIONS = {
    (_S.QUEUED, "run"): "request_slice",
    (_S.PROVISIONING, "run"): "get_slice",
    (_S.PREPARING, "run"): "start_program",
    (_S.RUNNING, "run"): "finish",
    (_S.HOLDING, "run"): "start_program",
    (_S.RELEASING, "run"): "request_slice",
    (_S.QUEUED, "cancel"): "end",
    (_S.PROVISIONING, "cancel"): "withdraw_request",
    (_S.PREPARING, "cancel"): "stop_program",
    (_S.RUNNING, "cancel"): "stop_program",
    (_S.HOLDING, "cancel"): "release_slice",
    (_S.RELEASING, "cancel"): "end",
    (_S.QUEUED, "release"): "end",
    (_S.QUEUED, "clean"): "end",
    **{(s, "clean"): "remove_record" for s in State if s.final},
}


@pytest.mark.parametrize("wish", list(DesiredState))
@pytest.mark.parametrize("state", list(State))
def test_every_state_says_what_happens_next(state: State, wish: DesiredState) -> None:
    coming = next_of(job_in(state, desired=wish))
    usual = "nothing" if state.final else "release_slice"
    assert coming["action"] == ACTIONS.get((state, wish), usual)
    assert coming["text"]
    if coming["action"] == "nothing":
        assert coming["commands"], "then a person may want to do something"
    if state is State.QUEUED and wish is not DesiredState.RUN:
        assert "slice" not in coming["text"], "it has none to give back"


@pytest.mark.parametrize(
    ("then", "action", "text"),
    [
        (_S.QUEUED, "request_slice", "requests another slice"),
        (_S.SUCCEEDED, "end", "the job has succeeded"),
        (_S.FAILED, "end", "the job has failed"),
    ],
)
def test_after_a_release_comes_what_the_record_says(then: State, action: str, text: str) -> None:
    coming = next_of(job_in(_S.RELEASING, next_state=then))
    assert (coming["action"], text in coming["text"]) == (action, True)
    if then is not _S.QUEUED:
        assert (
            text
            in next_of(job_in(_S.RELEASING, next_state=then, desired=DesiredState.RELEASE))["text"]
        )


@pytest.mark.parametrize(
    ("job", "at"),
    [
        (replace(job_in(_S.QUEUED), wake=NOW + 20), "1970-01-01T02:47:00.000Z"),
        (replace(job_in(_S.QUEUED), wake=NOW), None),
        (replace(job_in(_S.PREPARING), wake=NOW + 20), "1970-01-01T02:47:00.000Z"),
        (job_in(_S.HOLDING, desired=DesiredState.CANCEL), "1970-01-01T02:47:40.000Z"),
        (replace(job_in(_S.RUNNING), wake=NOW + 20), None),
        (replace(job_in(_S.QUEUED, desired=DesiredState.CANCEL), wake=NOW + 20), None),
    ],
    ids=["waits", "now", "starts again", "held", "runs", "cancelled"],
)
def test_the_time_of_the_next_step_is_given_where_it_is_known(job: Job, at: str | None) -> None:
    assert next_of(job)["at"] == at


@pytest.mark.parametrize("kind", list(ReasonKind))
def test_a_job_in_the_queue_says_the_reason_that_binds_it(kind: ReasonKind) -> None:
    job = replace(job_in(_S.QUEUED), message="requested again in 20 s")
    place = Place(
        2, reasons=(Reason(kind, ("000007",), 1, until=NOW + 60), Reason(ReasonKind.HELD))
    )
    coming = next_step.what_next(job, job_progress(job), None, NOW, place)
    text = next_step.why(job, None, "", NOW, place)
    own = kind is ReasonKind.RETRY  # which its own wait says better
    assert (text == job.message) == own
    assert own or text == describe(place.reasons[0])
    assert (coming["text"] == "it requests a slice") == (
        own or kind in (ReasonKind.NOT_BEFORE, ReasonKind.REFUSED)
    )
    assert bool(coming["commands"]) == (kind is ReasonKind.HELD)


def test_a_job_goes_on_from_the_checkpoint_that_is_known() -> None:
    had = replace(job_in(_S.QUEUED), attempts=job_in(_S.RUNNING).attempts)
    assert next_of(with_progress(had, checkpoint=400))["text"] == (
        "it requests another slice and resumes from checkpoint 400"
    )
    assert next_of(had)["text"] == (
        "it requests another slice and starts again: no checkpoint is known"
    )
    assert next_of(with_progress(had, step=30))["text"] == (
        "it requests another slice and starts again from step 1: no checkpoint is known"
    )
    spec = parse({**dump(had.spec), "outputs": ["out"]})
    assert next_of(replace(had, spec=spec))["text"] == (
        "it requests another slice and starts again with the files that `outputs` has kept; it has reported no "
        "checkpoint"
    )
    lost = replace(had.attempts[0], warnings=Warnings(empty=("out",)))
    assert next_of(replace(had, spec=spec, attempts=(lost,)))["text"].endswith(
        "starts again: no checkpoint is known"
    )
    ended = replace(had.attempts[0], ended_at=NOW)
    apart = with_progress(replace(had, attempts=(ended,)), checkpoint=475, partial_checkpoint=478)
    assert next_of(apart)["text"] == (
        "it requests another slice and resumes from checkpoint 475, the newest that all hosts have reported; some "
        "have reported 478"
    )
    none = with_progress(replace(had, attempts=(ended,)), partial_checkpoint=478)
    assert next_of(none)["text"] == (
        "it requests another slice and resumes from different checkpoints on its hosts, up to 478: none is on all of "
        "them"
    )
    assert next_of(job_in(_S.QUEUED))["text"] == "it requests a slice"


def test_only_commands_that_help_are_suggested() -> None:
    def commands(job: Job) -> list[str]:
        return [command["command"] for command in next_of(job)["commands"]]

    held = job_in(_S.HOLDING, desired=DesiredState.CANCEL)
    assert commands(held) == ["tpujob resume 000001", "tpujob delete 000001"]
    failed = replace(job_in(_S.FAILED), cause=Cause.CRASH)
    assert commands(failed) == ["tpujob resume 000001"]
    assert commands(replace(failed, cause=Cause.BAD_SPEC)) == ["tpujob create FILE"]
    assert [c["does"] for c in next_of(failed)["commands"]] == ["starts it again"]
    (resume,) = next_of(with_progress(failed, checkpoint=400))["commands"]
    assert resume["does"] == "resumes from checkpoint 400"
    assert commands(job_in(_S.SUCCEEDED)) == ["tpujob logs 000001"]
    assert commands(job_in(_S.RUNNING)) == []


def test_budgets_are_those_of_the_spec_and_others_that_were_used() -> None:
    job = job_in(_S.RUNNING)
    assert {b["name"]: (b["used"], b["left"], b["limit"]) for b in next_step.budgets(job)} == {
        "preemptions": (0, 100, 100),
        "failures": (0, 3, 3),
        "hangs": (0, 3, 3),
        "nonfinite": (0, 3, 3),
    }
    used = replace(job, retries_used={"failures": 5, "stockouts": 4, "memory": 1})
    budgets = {b["name"]: (b["used"], b["left"], b["limit"]) for b in next_step.budgets(used)}
    assert budgets["failures"] == (5, 0, 3)
    assert budgets["stockouts"] == (4, None, None)
    assert budgets["memory"] == (1, 0, 1)


def test_a_wait_for_capacity_says_what_was_refused_and_what_is_asked_next() -> None:
    slices = [request(B, Cause.STOCKOUT, NOW - 60 * (5 - k), k) for k in range(1, 5)]
    refused_slices = [replace(s, delete_reason=f"no capacity, {s.k}") for s in slices]
    pool = "us-east5-b/v6e-8/spot"
    closed = {pool: Circuit(pool, Cause.STOCKOUT, 4, NOW - 240, NOW + 360, NOW)}
    job = replace(job_in(_S.QUEUED), spec=V6E, slices=tuple(refused_slices), wake=NOW)
    wait = circuits.wait(job, closed, NOW)
    assert next_step.capacity(wait) == {
        "cause": "STOCKOUT",
        "type": "v6e-8",
        "zone": "us-east5-b",
        "refusals": 4,
        "since": "1970-01-01T02:42:40.000Z",
        "answer": "no capacity, 4",
        "asking": "",
        "again_at": "1970-01-01T02:52:40.000Z",
        "first_type": "v6e-8",
        "first_zone": "us-east5-a",
        "first_at": "1970-01-01T02:46:40.000Z",
    }
    later = replace(wait, first_at=NOW + 120)
    coming = next_step.what_next(job, job_progress(job), later, NOW)
    assert (coming["action"], coming["at"]) == ("request_slice", "1970-01-01T02:48:40.000Z")
