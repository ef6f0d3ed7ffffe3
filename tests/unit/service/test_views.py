"""The figures that people see of a job, a leak and a machine, and when each of them is shown."""

from dataclasses import asdict, replace
from typing import Any

import pytest

from tests.support.records import NOW, accusation, job_in, respec
from tpujob.api import AttemptView, JobView, SliceView, VerdictView
from tpujob.domain.failures.host_reputation import HALF_LIFE
from tpujob.domain.hardware.generations import CLOUD_TPU
from tpujob.domain.model import (
    Attempt,
    Cause,
    Endpoint,
    FoundProgress,
    Job,
    Outcome,
    Progress,
    Proof,
    Slice,
    SliceRole,
    Standing,
    State,
    Suspect,
    Verdict,
)
from tpujob.domain.observations import Maintenance
from tpujob.domain.text import rfc3339
from tpujob.ports import Owned
from tpujob.service.runtime_info import RuntimeInfo
from tpujob.service.views import attempt_view, job_view, leak_view, slice_view, suspect_view

AT = "1970-01-01T02:46:40.000Z"  #: NOW


def some(view: Any, *names: str) -> tuple[Any, ...]:
    return tuple(view[name] for name in names)


def with_slices(job: Job, *changes: dict[str, Any]) -> Job:
    plain = Slice(
        "tj-000001-1", 1, "v4-16", "us-central2-b", "spot", CLOUD_TPU, "rt", 2.5, NOW - 900
    )
    slices = (replace(plain, name=f"tj-000001-{k}", k=k, **c) for k, c in enumerate(changes, 1))
    return replace(job, slices=tuple(slices))


READY = {"ready_at": NOW - 720}
GONE = {"ready_at": NOW - 7200, "gone_at": NOW - 3600}

# Money ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slices", "per_hour", "spent"),
    [
        ([], 0.0, 0.0),
        ([{}], 0.0, 0.0),
        ([READY], 2.5, 0.5),
        ([GONE, READY], 2.5, 3.0),
        ([{**READY, "role": SliceRole.CONDEMNED}, READY], 5.0, 1.0),
        ([GONE], 0.0, 2.5),
        ([{**READY, "usd_per_hour": None}], None, None),
        ([{**GONE, "usd_per_hour": None}, READY], 2.5, None),
        ([{"usd_per_hour": None}, READY], 2.5, 0.5),
    ],
    ids=["none", "asked", "held", "second", "swapped", "gone", "no price", "had none", "free yet"],
)
def test_a_view_has_what_is_billed_now_and_what_was_spent(
    slices: list[dict[str, Any]], per_hour: float | None, spent: float | None
) -> None:
    view = job_view(with_slices(job_in(State.RUNNING), *slices), now=NOW)
    assert view["usd_per_hour"] == per_hour
    assert view["usd_spent"] == (None if spent is None else pytest.approx(spent))
    assert [s["usd"] is None for s in view["slices"]] == [
        s.get("usd_per_hour", 0) is None and "ready_at" in s for s in slices
    ]


# What it has and where -----------------------------------------------------------------------------------------------


def test_before_a_slice_is_asked_for_the_first_choice_is_shown() -> None:
    tpu = {"type": ["v6e-8", "v5p-8"], "slices": 2}
    spec = respec(job_in(State.QUEUED).spec, tpu=tpu)
    named = respec(spec, tpu={"zones": ["us-east5-b", "us-east5-a"]})
    view = job_view(replace(job_in(State.QUEUED), spec=named), now=NOW)
    assert some(view, "type", "zone", "topology") == ("v6e-8", "us-east5-b", "2x4")
    assert some(view, "tpu_slices", "chips", "hosts") == (2, 16, 2)
    assert some(view, "host0_ip", "attempt", "slices") == ("", 0, [])
    assert job_view(replace(job_in(State.QUEUED), spec=spec), now=NOW)["zone"] == ""


def test_a_view_shows_the_current_slice_or_else_the_last_one() -> None:
    other = {"type": "v4-8", "zone": "us-central2-x", "system_image": "rt2", "tpu_slices": 3}
    ended = with_slices(job_in(State.QUEUED), GONE, {**GONE, **other})
    view = job_view(ended, now=NOW)
    assert some(view, "type", "zone", "system_image") == ("v4-8", "us-central2-x", "rt2")
    assert some(view, "tpu_slices", "chips", "hosts") == (3, 12, 3)
    swapping = with_slices(
        job_in(State.QUEUED), {**READY, "role": SliceRole.CONDEMNED, **other}, {}
    )
    view = job_view(swapping, now=NOW)
    assert (view["type"], view["condemned"]) == ("v4-16", ["tj-000001-1"])


# How far it is -------------------------------------------------------------------------------------------------------

STORED = Progress(step=5, phase="train", loss=0.5, checkpoint=4)
LIVE = Progress(step=9, steps=100, phase="save", loss=0.25, checkpoint=8, metrics={"mfu": 0.4})


def running(**changes: Any) -> Job:
    job = job_in(State.RUNNING)
    newest = replace(job.attempts[0], progress=STORED, running_at=NOW - 200, **changes)
    return replace(job, attempts=(newest,))


def test_fresh_observations_come_before_stored_ones() -> None:
    stored = job_view(running(), now=NOW)
    live = job_view(running(), now=NOW, runtime=RuntimeInfo(progress=LIVE))
    names = ("step", "steps", "loss", "phase", "checkpoint", "metrics", "host0_ip")
    assert some(stored, *names) == (5, None, 0.5, "train", 4, {}, "10.0.0.1")
    assert some(live, *names) == (9, 100, 0.25, "save", 8, {"mfu": 0.4}, "10.0.0.1")
    assert [a["step"] for a in (*stored["attempts"], *live["attempts"])] == [5, 9]


def test_an_attempt_that_has_ended_is_as_far_as_its_record_says() -> None:
    job = running(ended_at=NOW - 5)
    fresh = Attempt(2, "tj-000001-1", NOW - 3)
    view = job_view(
        replace(job, attempts=(*job.attempts, fresh)), now=NOW, runtime=RuntimeInfo(progress=LIVE)
    )
    assert [a["step"] for a in view["attempts"]] == [5, 9]
    assert job_view(job, now=NOW, runtime=RuntimeInfo(progress=LIVE))["attempts"][0]["step"] == 5


def test_a_running_job_says_since_when_it_makes_no_progress() -> None:
    def at(job: Job, moved: float | None = None) -> str | None:
        return job_view(job, now=NOW, runtime=RuntimeInfo(moved_at=moved))["progress_at"]

    assert at(running()) == "1970-01-01T02:43:20.000Z", "since it runs"
    assert at(running(progress_at=NOW)) == AT, "since it was stored"
    assert at(running(progress_at=NOW - 60), NOW) == AT, "since the step was seen to change"
    found = Progress(found=FoundProgress(step=19, steps=200, loss=None))
    job = running(progress_at=NOW - 60)
    job = replace(job, attempts=(replace(job.attempts[0], progress=found),))
    assert at(job) is None, "nobody knows when a found step changed, so none is called stuck"
    assert at(job_in(State.PREPARING), NOW) is None
    assert at(replace(running(), state=State.HOLDING), NOW) is None


def test_a_running_job_says_after_how_long_it_counts_as_hung() -> None:
    def after(job: Job, **fields: Any) -> float | None:
        return job_view(job, now=NOW, runtime=RuntimeInfo(**fields))["stall_s"]

    assert after(running()) == 900
    assert after(running(), progress=Progress(phase="compile")) == 1800, "to the first step"
    assert after(replace(running(), state=State.PREPARING)) is None
    spec = respec(running().spec, recovery={"stall": "0s"})
    assert after(replace(running(), spec=spec)) is None, "it is not watched"


# When and why --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "wake", "shown"),
    [
        (State.QUEUED, NOW, None),
        (State.QUEUED, NOW + 20, "1970-01-01T02:47:00.000Z"),
        (State.PREPARING, NOW + 20, "1970-01-01T02:47:00.000Z"),
        (State.RUNNING, NOW + 20, None),
    ],
)
def test_a_waiting_job_says_when_it_goes_on(state: State, wake: float, shown: str | None) -> None:
    assert job_view(replace(job_in(state), wake=wake), now=NOW)["wake_at"] == shown


def test_trouble_is_shown_until_the_job_has_ended() -> None:
    options: dict[str, Any] = {"now": NOW, "runtime": RuntimeInfo(trouble="503", trouble_since=NOW)}
    job = replace(job_in(State.RUNNING), message="step 5")
    view = job_view(job, **options)
    assert some(view, "message", "trouble", "trouble_since") == ("step 5", "503", AT)
    ended = job_view(replace(job, state=State.FAILED, finished_at=NOW), **options)
    assert some(ended, "trouble", "trouble_since", "finished_at") == ("", None, AT)
    over = job_view(job, now=NOW, runtime=RuntimeInfo(trouble_since=NOW))
    assert over["trouble_since"] is None


@pytest.mark.parametrize(
    ("starts", "ends", "shown"),
    [
        (NOW + 60, NOW + 120, True),
        (NOW - 60, NOW + 60, True),
        (NOW - 60, None, True),
        (NOW - 60, NOW - 1, False),
    ],
)
def test_maintenance_is_shown_until_it_ends(starts: float, ends: float | None, shown: bool) -> None:
    coming = Maintenance(starts, ends, None, "SCHEDULED", "PENDING")
    runtime = RuntimeInfo(maintenance=coming)
    view = job_view(job_in(State.RUNNING), now=NOW, runtime=runtime)["maintenance"]
    assert bool(view) is shown
    assert view is None or some(view, "starts", "kind") == (rfc3339(starts), "SCHEDULED")


# All that is promised ------------------------------------------------------------------------------------------------

VERDICT = Verdict(step=7, host=1, device="TPU_0", blame="device", text="computed otherwise")
ENDED = Attempt(
    2, "tj-000001-1", NOW - 60, running_at=NOW - 50, ended_at=NOW - 10, outcome=Outcome.FAILED,
    first_step=4, cause=Cause.BAD_HOST, host=1, message="m", evidence=(Proof(1, "e"),), physical=("p", "q"),
    progress=Progress(step=9, checkpoint=8, resumed_from=3), versions={"jax": "0.10"},
    verdict=VERDICT,
)  # fmt: skip
HAD = Slice(
    "tj-000001-3", 3, "v5p-8", "us-east5-a", "on-demand", CLOUD_TPU, "rt", 2.5, NOW - 90, ready_at=NOW - 80,
    endpoints=(Endpoint(0, "10.0.0.9", "34.1.2.3"), Endpoint(1, "10.0.0.8")), role=SliceRole.CONDEMNED,
    delete_reason="r", gone_at=NOW - 5, tpu_slices=2, ends_at=NOW,
)  # fmt: skip


@pytest.mark.parametrize(
    ("view", "shape", "record", "options"),
    [
        (
            attempt_view(ENDED, {}),
            AttemptView,
            ENDED,
            {"step": 9, "checkpoint": 8, "resumed_from": 3, "ended_at": "1970-01-01T02:46:30.000Z"},
        ),
        (
            slice_view(HAD, now=NOW),
            SliceView,
            HAD,
            {
                "reason": "r",
                "hosts": ["34.1.2.3", "10.0.0.8"],
                "gone_at": "1970-01-01T02:46:35.000Z",
                "ends_at": "1970-01-01T02:46:40.000Z",
            },
        ),
        (attempt_view(ENDED, {})["verdict"], VerdictView, VERDICT, {}),
        (
            job_view(running(), now=NOW),
            JobView,
            running(),
            {"created_at": "1970-01-01T02:36:40.000Z"},
        ),
    ],
    ids=["attempt", "slice", "verdict", "job"],
)
def test_a_view_has_every_field_and_says_what_the_record_says(
    view: Any, shape: Any, record: Any, options: dict[str, Any]
) -> None:
    assert set(view) == set(shape.__annotations__) - {"emulated"}  # which the service adds
    assert view | options == view
    as_they_are = (str, int, float, bool, type(None))
    copied = {
        name: getattr(record, name)
        for name in view
        if isinstance(getattr(record, name, ...), as_they_are)
        and not name.endswith(("_at", "_since"))
    }
    assert len(copied) >= 5
    assert {name: view[name] for name in copied} == copied
    if isinstance(record, Attempt):
        assert (view["evidence"], view["physical"]) == ([{"host": 1, "text": "e"}], ["p", "q"])
        assert (view["versions"], view["verdict"]) == ({"jax": "0.10"}, asdict(VERDICT))


# Leaks and machines --------------------------------------------------------------------------------------------------


def test_a_leak_is_never_older_than_it_can_be() -> None:
    leak = Owned(
        "tj-000009-1", "us-central2-b", "000009", NOW - 90.1234, CLOUD_TPU, detail="suspended"
    )
    shown = leak_view(leak, now=NOW)
    assert [*shown.values()] == [
        "tj-000009-1",
        "us-central2-b",
        "000009",
        90.123,
        None,
        "suspended",
    ]
    assert leak_view(leak, now=NOW - 3600)["age_s"] == 0.0, "a clock that was set back"


def test_a_machines_score_is_that_of_now() -> None:
    made = [accusation(n, owner=n, weight=0.8, text="bad") for n in ("000001", "000002")]
    shown = suspect_view(Suspect("rack-01", "z", NOW, "", tuple(made)), now=NOW + HALF_LIFE)
    assert some(shown, "physical", "zone", "score", "refused") == ("rack-01", "z", 0.8, True)
    assert some(shown, "pinned", "open", "updated_at") == ("", [], AT)
    assert shown["reasons"] == ["job 000001 attempt 1: bad", "job 000002 attempt 1: bad"]
    later = suspect_view(Suspect("rack-01", "z", NOW, "", tuple(made)), now=NOW + 2 * HALF_LIFE)
    assert not later["refused"]


def test_what_nothing_proves_is_shown_as_open_and_does_not_count() -> None:
    guess = accusation(standing=Standing.OPEN, text="the TPU does not come up")
    shown = suspect_view(Suspect("rack-01", "z", NOW, "", (guess,)), now=NOW)
    assert some(shown, "score", "refused", "reasons") == (0.0, False, [])
    assert shown["open"] == ["job 000001 attempt 1: the TPU does not come up"]
