"""Actions that a person may take on a job: offered in each state, to each caller, with their money; and they do what
they say."""

import contextlib
from dataclasses import replace

import pytest

from tests.support.callers import ADA, caller
from tests.support.records import NOW, job_in, with_progress
from tests.support.stage import SPEC, Stage
from tpujob.domain.access import Principal, Role
from tpujob.domain.model import Cause, DesiredState, Job, State
from tpujob.errors import Forbidden, IllegalInState
from tpujob.service import offered_actions

BOB, EVE = caller("bob"), caller("eve")
LIVE = [state for state in State if not state.final]


def offered(job: Job, user: Principal = ADA) -> dict[str, str]:
    offers, refused = offered_actions.offered(job, user, NOW)
    names = sorted(refusal["name"] for refusal in (*offers, *refused))
    assert names == sorted(offered_actions.ACTIONS), "each is offered, or it is said why not"
    assert all(refusal["why"] for refusal in refused)
    assert all(offer["does"] and offer["costs"] for offer in offers)
    return {offer["name"]: f"{offer['does']} | {offer['costs']}" for offer in offers}


@pytest.mark.parametrize(
    ("state", "wish", "names"),
    [
        *((state, DesiredState.RUN, {"cancel", "delete", "clean"}) for state in LIVE),
        *((state, DesiredState.CANCEL, {"resume", "delete", "clean"}) for state in LIVE),
        *((state, DesiredState.RELEASE, {"resume", "clean"}) for state in LIVE),
        *((state, DesiredState.CLEAN, set[str]()) for state in State),
        (State.SUCCEEDED, DesiredState.RUN, {"clean"}),
        (State.FAILED, DesiredState.RUN, {"resume", "clean"}),
        (State.CANCELLED, DesiredState.CANCEL, {"resume", "clean"}),
    ],
)
def test_states_offer_what_has_an_effect(state: State, wish: DesiredState, names: set[str]) -> None:
    assert set(offered(job_in(state, desired=wish))) == names


@pytest.mark.parametrize(
    ("job", "name", "text"),
    [
        (
            job_in(State.RUNNING),
            "cancel",
            "stops the program on all hosts and keeps the slice for 15 min, for a resume; then releases it"
            " | $1.00/h while the slice is kept, $0.25 at most",
        ),
        (
            job_in(State.RUNNING),
            "delete",
            "stops the program on all hosts, releases tj-000001-1, a spot v4-16, and cancels the job; "
            "record and logs are kept | $1.00/h until the slice is gone",
        ),
        (
            job_in(State.QUEUED),
            "cancel",
            "cancels the job; record and logs are kept | nothing; the job holds no slice",
        ),
        (
            job_in(State.PROVISIONING),
            "delete",
            "withdraws the request for tj-000001-1, a spot v4-16, and cancels the job; record and logs are kept"
            " | nothing; the job holds no slice",
        ),
        (
            job_in(State.HOLDING, desired=DesiredState.CANCEL),
            "resume",
            "resumes from checkpoint 480 on the slice that it holds | $1.00/h while it holds the slice",
        ),
        (
            job_in(State.FAILED),
            "resume",
            "requests a spot v4-16 and resumes from checkpoint 480 | $7.37/h while it holds the slice",
        ),
        (
            job_in(State.FAILED),
            "clean",
            "removes its logs and its record for good; its cost stays in the report | "
            "nothing; the job holds no slice",
        ),
    ],
)
def test_an_action_says_what_it_does_and_what_it_costs(job: Job, name: str, text: str) -> None:
    assert offered(with_progress(job, step=500, checkpoint=480))[name] == text


def test_a_price_that_nobody_knows_is_said() -> None:
    job = job_in(State.RUNNING)
    unpriced = replace(job, slices=tuple(replace(s, usd_per_hour=None) for s in job.slices))
    assert all("at an unknown price" in text for text in offered(unpriced).values())


def test_others_are_told_why_they_have_no_button() -> None:
    job = replace(job_in(State.RUNNING), owner=BOB.id)
    assert set(offered(job, BOB)) == set(offered(job, ADA)) == {"cancel", "delete", "clean"}
    for user in (EVE, replace(BOB, role=Role.VIEWER)):
        offers, refused = offered_actions.offered(job, user, NOW)
        assert offers == []
        assert all("needs the role" in refusal["why"] for refusal in refused)


BROKE = replace(job_in(State.FAILED), cause=Cause.BUDGET, spend_limit=10_000)


@pytest.mark.parametrize(("limit", "needed"), [(10_000, True), (10**9, False)])
def test_a_job_without_budget_goes_on_with_a_larger_one_alone(limit: int, needed: bool) -> None:
    offers, _ = offered_actions.offered(replace(BROKE, spend_limit=limit), ADA, NOW)
    (resume,) = [offer for offer in offers if offer["name"] == "resume"]
    assert [(ask["name"], ask["needed"]) for ask in resume["asks"]] == [("budget", needed)]


@pytest.mark.parametrize(
    ("cause", "why"),
    [(Cause.CRASH, "does not pay for a slice"), (Cause.BAD_SPEC, "submit the corrected one")],
)
def test_a_resume_that_would_end_again_is_refused(cause: Cause, why: str) -> None:
    _, refused = offered_actions.offered(replace(BROKE, cause=cause), ADA, NOW)
    assert [(refusal["name"], why in refusal["why"]) for refusal in refused] == [
        ("resume", True),
        ("cancel", False),
        ("delete", False),
    ]


@pytest.mark.parametrize("name", offered_actions.ACTIONS)
@pytest.mark.parametrize("state", [State.QUEUED, State.RUNNING, State.HOLDING, State.CANCELLED])
def test_what_is_offered_changes_the_record(stage: Stage, state: State, name: str) -> None:
    """By whoever may; whoever may not is offered nothing."""
    bob, eve = stage.api.acting_for(BOB), stage.api.acting_for(EVE)
    job = bob.create(SPEC)["id"]
    if state in (State.RUNNING, State.HOLDING):
        stage.running(job)
    if state in (State.HOLDING, State.CANCELLED):
        bob.cancel(job)
    stage.until(job, state)
    before = stage.job(job).version
    view = bob.get(job)
    assert not eve.get(job)["actions"]
    with pytest.raises(Forbidden):
        getattr(eve, name)(job)
    if name in {action["name"] for action in view["actions"]}:
        getattr(bob, name)(job)
        assert stage.job(job).version > before, "it is in the record"
    else:
        assert name in {refusal["name"] for refusal in view["refused"]}
        with contextlib.suppress(IllegalInState):
            getattr(bob, name)(job)
        assert stage.job(job).version == before, "nothing would have changed"
