"""The queue as people see and steer it: order, reasons, holds, dependencies, limits, shares."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NoReturn

import pytest

from tests.support.callers import ADA, caller
from tests.support.stage import SPEC, Stage
from tpujob.api import JobsApi
from tpujob.domain import invariants
from tpujob.domain.capacity.settings import OwnerLimits, QueueSettings
from tpujob.domain.events import Event, EventKind, Finished
from tpujob.domain.lifecycle import apply, event
from tpujob.domain.model import Cause, DesiredState, Job, State
from tpujob.domain.text import seconds
from tpujob.engine.queue import REFRESH
from tpujob.errors import BadSpec, Conflict, Forbidden, IllegalInState, Transient

BOB, EVE = caller("bob"), caller("eve")
V4 = "us-central2-b/v4/spot"


def limited(stage: Stage, chips: int = 8, **settings: object) -> None:
    """The project has that many chips of v4, enough for one job by default."""
    stage.reconciler.queue.settings = QueueSettings(quota={V4: chips}, **settings)  # type: ignore[arg-type]


def submit(api: JobsApi, name: str = "digits", **changes: object) -> str:
    return api.create({**SPEC, "name": name, **changes})["id"]


def turn(stage: Stage, jobs: Iterable[str], rounds: int = 1) -> None:
    for _ in range(rounds):
        stage.clock.sleep(1)
        for job in jobs:
            stage.reconciler.tick(job)


def elements_of(stage: Stage, group: str) -> list[str]:
    """Let the backend make the elements of a group; return their ids."""
    turn(stage, [group], 3)
    return sorted(job.id for job in stage.store.list() if job.group == group)


def ids_by_name(stage: Stage) -> dict[str, str]:
    return {job.name: job.id for job in stage.store.list()}


def order(stage: Stage) -> list[str]:
    stage.clock.sleep(1)
    return [row["id"] for row in stage.api.queue()["rows"]]


@pytest.fixture
def bob(stage: Stage) -> JobsApi:
    return stage.api.acting_for(BOB)


@pytest.fixture
def eve(stage: Stage) -> JobsApi:
    return stage.api.acting_for(EVE)


# Order ----------------------------------------------------------------------------------------------------------------


def test_the_first_job_of_another_owner_is_next(stage: Stage, bob: JobsApi, eve: JobsApi) -> None:
    limited(stage)
    sweep = [submit(bob, f"sweep-{n}") for n in range(20)]
    turn(stage, sweep[:1], 2)
    first = submit(eve)
    assert order(stage)[0] == first
    queue = stage.api.queue(jobs=[first, sweep[1]], limit=1)
    assert [row["position"] for row in queue["rows"]] == [1]
    assert queue["waiting"] == 2
    terms = queue["rows"][0]["order"]
    assert (terms["owner_usd"], terms["share_usd"] > 0, terms["priority"]) == (0, True, "normal")


def test_top_moves_a_job_among_its_owners_jobs(stage: Stage, bob: JobsApi, eve: JobsApi) -> None:
    limited(stage)
    a, b, c = (submit(bob, name) for name in "abc")
    other = submit(eve)
    before = order(stage)
    assert bob.top(c)["state"] == "queued"
    after = order(stage)
    assert [job for job in after if job != other] == [c, a, b]
    assert after.index(other) == before.index(other)
    version = stage.job(c).version
    bob.top(c)
    assert stage.job(c).version == version, "it is the first already"
    bob.top(b)
    assert [job for job in order(stage) if job != other] == [b, c, a]


def test_requests_that_came_to_nothing_are_part_of_the_wait(stage: Stage, bob: JobsApi) -> None:
    stage.cloud.full.add("us-central2-b")
    job = submit(bob, priority="low")
    began = stage.job(job).created_at
    for _ in range(25):
        stage.step(job)
        stage.clock.sleep(3600)
    assert stage.kinds(job).count("requeued") > 20
    (row,) = stage.api.queue()["rows"]
    assert seconds(row["since"]) == began
    assert row["order"]["raised"], "after a day of waiting"
    stage.cloud.full.clear()
    name = stage.running(job).slices[-1].name
    stage.cloud.vanish(name)
    stage.cloud.full.add("us-central2-b")
    stage.until(job, State.QUEUED)
    (row,) = stage.api.queue()["rows"]
    assert not row["order"]["raised"], "it has had a slice meanwhile"


# Holds ----------------------------------------------------------------------------------------------------------------


def test_a_held_job_requests_nothing_until_it_is_released(stage: Stage, bob: JobsApi) -> None:
    job = submit(bob, start="held")
    turn(stage, [job], 3)
    shown = bob.get(job)
    assert (shown["state"], shown["why"]) == ("queued", "held by bob")
    assert [reason["kind"] for reason in shown["place"]["reasons"]] == ["held"]
    assert f"tpujob queue release {job}" in shown["place"]["helps"][0]
    assert shown["next"]["commands"][0]["command"] == f"tpujob queue release {job}"
    stage.clock.sleep(600)
    bob.release(job)
    assert stage.job(job).queued_at == stage.clock.now()
    turn(stage, [job], 3)
    assert stage.job(job).slices


def test_a_running_job_is_held_when_it_is_queued_again(stage: Stage, bob: JobsApi) -> None:
    job = submit(bob)
    stage.running(job)
    message = stage.job(job).message
    bob.hold(job)
    assert stage.job(job).state is State.RUNNING
    assert stage.job(job).message == message
    stage.cloud.preempt(stage.job(job).slices[-1].name)
    stage.until(job, State.QUEUED)
    stage.clock.sleep(600)
    turn(stage, [job], 3)
    assert stage.job(job).state is State.QUEUED
    assert bob.get(job).get("why") == "held by bob"


def test_what_an_admin_holds_only_an_admin_releases(stage: Stage, bob: JobsApi) -> None:
    job, admin = submit(bob), stage.api.acting_for(ADA)
    bob.hold(job)
    admin.hold(job)
    assert stage.job(job).held_by == "ada"
    bob.hold(job)
    assert stage.job(job).held_by == "ada"
    with pytest.raises(Forbidden, match="held by ada, so only an admin may release it"):
        bob.release(job)
    admin.release(job)
    assert not stage.job(job).held_by
    bob.hold(job)
    admin.release(job)
    assert not stage.job(job).held_by


def test_a_job_that_has_ended_is_not_in_the_queue(stage: Stage, bob: JobsApi) -> None:
    job = submit(bob)
    bob.delete(job)
    for act in (bob.hold, bob.release, bob.top):
        with pytest.raises(IllegalInState, match="is asked to release: it is not in the queue"):
            act(job)
    stage.until(job, State.CANCELLED)
    with pytest.raises(IllegalInState, match="has ended") as refused:
        bob.hold(job)
    assert f"tpujob resume {job}" in refused.value.hint
    done = submit(bob)
    stage.running(done)
    stage.succeed(done)
    with pytest.raises(IllegalInState) as refused:
        bob.top(done)
    assert refused.value.hint == "", "there is nothing to resume"


def test_an_act_on_a_group_is_one_write_for_its_elements(stage: Stage, bob: JobsApi) -> None:
    limited(stage)
    other, group = submit(bob, "x"), submit(bob, "g", array=3, start="held")
    parts = elements_of(stage, group)
    versions = [stage.job(part).version for part in parts]
    turn(stage, parts, 3)
    assert [bob.get(part).get("why") for part in parts] == ["held by bob"] * 3
    assert f"tpujob queue release {group}" in bob.get(parts[0])["place"]["helps"][0]
    with pytest.raises(IllegalInState, match="is held with its group g") as refused:
        bob.release(parts[0])
    assert f"tpujob queue release {group}" in refused.value.hint
    bob.hold(parts[2])
    bob.release(group)
    assert order(stage) == [other, *parts]
    row = stage.api.queue(jobs=[parts[2]])["rows"][0]
    assert row["reasons"][0]["kind"] == "held", "by itself, not with its group"
    bob.top(group)
    assert order(stage) == [*parts[:2], other, parts[2]]
    bob.release(parts[2])
    assert order(stage) == [*parts, other]
    changed = [stage.job(part).version - was for part, was in zip(parts, versions, strict=True)]
    assert changed == [0, 0, 2]
    stage.running(parts[0])
    bob.hold(group)
    turn(stage, parts, 3)
    assert stage.job(parts[0]).state is State.RUNNING
    assert stage.job(parts[1]).state is State.QUEUED


def test_elements_that_wait_for_the_same_may_be_one_row(stage: Stage, bob: JobsApi) -> None:
    limited(stage)
    first, group = submit(bob, "x"), submit(bob, "g", array=50)
    parts = elements_of(stage, group)
    bob.hold(parts[20])
    queue = stage.api.queue(limit=2)
    rows = [(row["id"], row["position"], row["alike"]) for row in queue["rows"]]
    assert rows == [(first, 1, 0), (parts[0], 2, 48)]
    assert queue["waiting"] == 51
    held = stage.api.queue(jobs=[group], limit=2)["rows"][1]
    assert (held["id"], held["position"], held["alike"]) == (parts[20], 0, 0)
    assert [row["alike"] for row in stage.api.queue()["rows"]] == [0] * 51


def test_an_element_whose_group_is_held_just_now_requests_nothing(
    stage: Stage, bob: JobsApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = submit(bob, "g", array=1)
    (part,) = elements_of(stage, group)
    check = stage.reconciler.groups.check

    def held_first(*arguments: Any) -> None:
        bob.hold(group)
        check(*arguments)

    monkeypatch.setattr(stage.reconciler.groups, "check", held_first)
    turn(stage, [part], 3)
    assert stage.job(part).state is State.QUEUED
    assert not stage.cloud.created


# Back into the queue --------------------------------------------------------------------------------------------------


def test_a_running_job_goes_back_behind_others_of_its_owner(stage: Stage, bob: JobsApi) -> None:
    first = submit(bob, "first")
    stage.running(first)
    stage.cloud.full.add("us-central2-b")
    second = submit(bob, "second")
    stage.until(second, lambda job: bool(job.slices) and job.state is State.QUEUED)
    stage.clock.sleep(600)
    before = stage.job(first)
    view = bob.requeue(first)
    assert view["state"] == "running"
    assert view.get("next", {}).get("action") == "release_slice"
    assert stage.job(first).version == before.version + 1
    bob.requeue(first)
    assert stage.job(first).version == before.version + 1, "it is asked for already"
    back = stage.until(first, lambda job: job.slice is None)
    next_job = stage.job(second)
    assert next_job.slices[-1].name == back.slices[-1].name, "its slice serves the next job"
    assert back.slices[-1].handed_to == second
    assert (back.retries_used, back.attempts[-1].cause, back.cause) == ({}, Cause.CANCELLED, None)
    assert back.attempts[-1].message == "put back into the queue"
    assert back.desired is DesiredState.RUN
    assert back.queued_at > before.state_since
    sound(stage, first)
    stage.cloud.full.clear()
    assert len(stage.running(first).attempts) == 2


def test_a_job_from_the_top_goes_back_behind_others(stage: Stage, bob: JobsApi) -> None:
    limited(stage)
    first, second, third = (submit(bob, name) for name in ("first", "second", "third"))
    bob.top(second)
    stage.running(second)
    bob.requeue(second)
    stage.until(second, State.QUEUED)
    assert stage.job(first).slice, "its slice serves the next job"
    assert order(stage) == [third, second]


@pytest.mark.parametrize("then", ["nothing", "cancel", "lost", "succeeded"])
def test_whatever_comes_between_ends_well(stage: Stage, bob: JobsApi, then: str) -> None:
    job = submit(bob, hand_on=False)
    name = stage.running(job).slices[-1].name
    bob.requeue(job)
    if then == "succeeded":
        stage.finish(job, 0, 0)
    stage.step(job)
    if then == "cancel":
        bob.cancel(job)
    if then == "lost":
        stage.cloud.vanish(name)
    ends = {"cancel": State.CANCELLED, "succeeded": State.SUCCEEDED}.get(then)
    ended = stage.until(job, ends) if ends else stage.running(job, 2)
    assert ended.retries_used == {}
    assert name not in stage.cloud.machines
    sound(stage, job)


def test_a_held_job_that_is_put_back_announces_no_request(stage: Stage, bob: JobsApi) -> None:
    job = submit(bob, hand_on=False)
    stage.running(job)
    bob.hold(job)
    bob.requeue(job)
    stage.until(job, State.QUEUED)
    assert stage.store.events(job)[-1].text == "queued again"


def test_only_a_job_whose_program_runs_is_put_back(stage: Stage, bob: JobsApi) -> None:
    job = submit(bob)
    with pytest.raises(IllegalInState, match="is queued: only a job whose program runs"):
        bob.requeue(job)
    stage.running(job)
    bob.cancel(job)
    with pytest.raises(IllegalInState, match="is asked to cancel: it is not in the queue"):
        bob.requeue(job)


def sound(stage: Stage, job: str) -> None:
    record, events = stage.job(job), stage.store.events(job)
    first = invariants.first_record(record)
    assert invariants.of_job(record) + invariants.of_history(first, events, record) == []


def test_each_element_may_wait_for_that_of_another_group(stage: Stage, bob: JobsApi) -> None:
    first = submit(bob, "one", array=2)
    with pytest.raises(BadSpec, match=f"job {first} has 2 elements, this one 3"):
        submit(bob, "three", array=3, after=[{"job": "one", "each": True}])
    two = submit(bob, "two", array=2, after=[{"job": "one", "each": True}])
    turn(stage, [first, two], 3)
    ids = ids_by_name(stage)
    rows = stage.api.queue(jobs=[two], limit=9)["rows"]
    reasons = [(row["reasons"][0]["jobs"], row["alike"]) for row in rows]
    assert reasons == [([ids[f"one-{n}"]], 0) for n in range(2)], "each has a reason of its own"
    stage.running(ids["one-0"])
    stage.succeed(ids["one-0"])
    stage.running(ids["two-0"])
    assert bob.get(ids["two-1"]).get("why") == f"waits for the success of {ids['one-1']}"


def test_an_element_does_not_wait_for_one_that_was_removed(stage: Stage, bob: JobsApi) -> None:
    first = submit(bob, "one", array=2)
    turn(stage, [first], 3)
    ids = ids_by_name(stage)
    bob.clean(ids["one-1"])
    turn(stage, [ids["one-1"]], 3)
    stage.reconciler = stage.new_backend()
    two = submit(bob, "two", array=2, after=[{"job": "one", "each": True}])
    turn(stage, [two], 3)
    ids = ids_by_name(stage)
    assert "one-1" not in ids
    turn(stage, [ids["two-0"], ids["two-1"]], 2)
    assert stage.job(ids["two-1"]).cause is Cause.DEPENDENCY
    assert stage.job(ids["two-0"]).state is State.QUEUED


def test_a_group_has_started_for_a_backend_that_did_not_see_it(stage: Stage, bob: JobsApi) -> None:
    group = submit(bob, "one", array=2)
    after = submit(bob, "after", after=[{"job": "one", "on": "start"}])
    turn(stage, [group], 3)
    (first,) = (job.id for job in stage.store.list() if job.name == "one-0")
    stage.running(first)
    stage.succeed(first)
    stage.reconciler = stage.new_backend()
    stage.running(after)


# Dependencies ---------------------------------------------------------------------------------------------------------


def chain(api: JobsApi) -> tuple[str, str, str]:
    a = submit(api, "a", recovery={"failures": 0})
    return a, submit(api, "b", after=["a"]), submit(api, "c", after=[{"job": "b", "on": "success"}])


def test_a_chain_ends_with_its_first_and_goes_on_with_it(stage: Stage, bob: JobsApi) -> None:
    a, b, c = chain(bob)
    turn(stage, [b, c], 2)
    assert bob.get(b).get("why") == f"waits for the success of {a}"
    stage.running(a)
    stage.finish(a, 1, 1)
    stage.until(a, State.FAILED)
    for job in (b, c):
        assert stage.until(job, State.CANCELLED).cause is Cause.DEPENDENCY
    ended = bob.get(b)
    assert "resume" not in [action["name"] for action in ended.get("actions", ())]
    assert ended.get("next", {}).get("commands") == [], "it would end again at once"
    with pytest.raises(IllegalInState, match=f"needed the success of {a}, which failed"):
        bob.resume(b)
    unrelated = submit(bob, "d", after=[{"job": a, "on": "failure"}])
    bob.resume(a)
    assert [stage.job(job).state for job in (b, c)] == [State.QUEUED, State.QUEUED]
    request = stage.store.events(c)[-1]
    assert (request.by, request.text) == ("bob", f"resumed with job {b}, which it waits for")
    version = stage.job(c).version
    bob.resume(a)
    assert stage.job(c).version == version
    stage.running(a)
    stage.succeed(a)
    stage.running(b)
    assert stage.until(unrelated, State.CANCELLED).cause is Cause.DEPENDENCY


def test_dependents_of_others_can_go_on_too(stage: Stage, bob: JobsApi, eve: JobsApi) -> None:
    a, other = submit(bob, "a"), submit(bob, "other")
    b = submit(eve, "b", after=[a])
    both = submit(eve, "both", after=[a, other])
    for job in (a, other):
        bob.delete(job)
        stage.until(job, State.CANCELLED)
    for job in (b, both):
        stage.until(job, State.CANCELLED)
    bob.resume(a)
    assert stage.job(b).state is State.QUEUED
    assert stage.job(both).state is State.CANCELLED
    bob.resume(other)
    assert stage.job(both).state is State.QUEUED


def test_a_group_goes_on_with_an_element(stage: Stage, bob: JobsApi) -> None:
    first = submit(bob, "one", array=1, recovery={"failures": 0})
    second = submit(bob, "two", array=1, after=[{"job": "one", "each": True}])
    last = submit(bob, "last", after=["two"])
    turn(stage, [first, second], 3)
    ids = ids_by_name(stage)
    stage.running(ids["one-0"])
    stage.finish(ids["one-0"], 1, 1)
    stage.until(ids["one-0"], State.FAILED)
    for job in (ids["two-0"], second, last):
        assert stage.until(job, State.CANCELLED).cause is Cause.DEPENDENCY
    bob.resume(ids["one-0"])
    assert [stage.job(job).state for job in (ids["two-0"], second, last)] == [State.QUEUED] * 3
    turn(stage, [first, ids["two-0"], second, last], 3)
    assert [stage.job(job).state for job in (ids["two-0"], second, last)] == [State.QUEUED] * 3


def test_an_element_names_the_resume_of_its_group(stage: Stage, bob: JobsApi) -> None:
    group = submit(bob, "g", array=1)
    (part,) = elements_of(stage, group)
    bob.cancel(group)
    stage.until(part, State.CANCELLED)
    view = bob.get(part)
    assert [way["command"] for way in view["next"]["commands"]] == [f"tpujob resume {group}"]
    assert "resume" not in [action["name"] for action in view["actions"]]
    refused = {refusal["name"]: refusal["why"] for refusal in view["refused"]}
    assert refused["resume"] == "its group g was cancelled"
    bob.resume(group)
    turn(stage, [group, part], 3)
    bob.delete(part)
    stage.until(part, State.CANCELLED)
    assert bob.get(part)["next"]["commands"][0]["command"] == f"tpujob resume {part}"


def test_a_group_with_nothing_to_resume_says_so(stage: Stage, bob: JobsApi) -> None:
    group = submit(bob, "g", array=1)
    view = bob.get(group)
    assert [action["name"] for action in view["actions"]] == ["cancel", "delete", "clean"]
    assert view["refused"] == [
        {
            "name": "resume",
            "why": "none of its elements failed or was cancelled",
            "forbidden": False,
        }
    ]


def test_a_refused_resume_of_an_element_leaves_its_budget(stage: Stage, bob: JobsApi) -> None:
    group = submit(bob, "g", array=1, budget={"usd": 50})
    (element,) = elements_of(stage, group)
    bob.cancel(group)
    stage.until(element, State.CANCELLED)
    before = stage.job(element)
    with pytest.raises(IllegalInState, match="its group g was cancelled"):
        bob.resume(element, budget=100)
    assert stage.job(element) == before


def test_an_element_waits_for_one_that_its_group_resumes(stage: Stage, bob: JobsApi) -> None:
    first = submit(bob, "one", array=1, recovery={"failures": 0})
    second = submit(bob, "two", array=1, after=[{"job": "one", "each": True}])
    turn(stage, [first, second], 3)
    ids = ids_by_name(stage)
    stage.running(ids["one-0"])
    stage.finish(ids["one-0"], 1, 1)
    for job in (ids["one-0"], ids["two-0"], first, second):
        stage.until(job, lambda j: j.state.final)
    bob.resume(first)
    turn(stage, [ids["two-0"]], 3)
    assert stage.job(ids["one-0"]).state is State.FAILED, "its group has not come to it yet"
    assert stage.job(ids["two-0"]).state is State.QUEUED
    turn(stage, [first, ids["two-0"]], 3)
    assert stage.job(ids["one-0"]).state is State.QUEUED
    stage.running(ids["one-0"])
    stage.finish(ids["one-0"], 1, 1)
    stage.until(ids["one-0"], State.FAILED)
    assert stage.until(ids["two-0"], State.CANCELLED).cause is Cause.DEPENDENCY


def test_a_group_with_a_cancelled_element_can_go_on(stage: Stage, bob: JobsApi) -> None:
    first, group = submit(bob, "a"), submit(bob, "g", array=1, after=["a"])
    stage.running(first)
    stage.succeed(first)
    (part,) = elements_of(stage, group)
    bob.cancel(part)
    stage.until(part, State.CANCELLED)
    stage.until(group, State.CANCELLED)
    bob.resume(group)
    turn(stage, [group, part], 3)
    stage.running(part)


def test_a_job_is_not_removed_while_others_wait_for_it(stage: Stage, bob: JobsApi) -> None:
    a, b, _ = chain(bob)
    with pytest.raises(IllegalInState, match=f"{b} would never start") as refused:
        bob.clean(a)
    assert f"tpujob delete {b}" in refused.value.hint
    bob.delete(b)
    bob.clean(a)


def test_a_job_of_another_user_stops_no_removal(stage: Stage, bob: JobsApi, eve: JobsApi) -> None:
    a = submit(bob, "a")
    waits = submit(eve, "b", after=[a])
    with pytest.raises(IllegalInState, match=f"{waits} would never start"):
        stage.api.acting_for(ADA).clean(a)
    bob.clean(a)
    turn(stage, [a], 3)
    assert stage.until(waits, State.CANCELLED).cause is Cause.DEPENDENCY


def test_a_group_is_not_removed_while_others_wait_for_it(stage: Stage, bob: JobsApi) -> None:
    group = submit(bob, "g", array=2)
    turn(stage, [group], 3)
    after = submit(bob, "after", after=["g-1"])
    with pytest.raises(IllegalInState, match=f"{after} would never start"):
        bob.clean(group)
    bob.delete(after)
    bob.clean(group)


@pytest.mark.parametrize(
    ("after", "error"),
    [
        (["b"], r"after\[0\].job: no job of yours is called 'b'"),
        (["a", "000999"], r"after\[1\].job: .*000999"),
        ([{"job": "a", "each": True}], r"after\[0\].each: needs two groups of equal size"),
        (["a", "000001"], r"after\[1\].job: 000001 is job 000001, which is named before"),
    ],
)
def test_a_dependency_that_is_not_there_is_refused(
    stage: Stage, bob: JobsApi, after: list[object], error: str
) -> None:
    submit(bob, "a")
    for ask in (bob.plan, bob.create):
        with pytest.raises(BadSpec, match=error):
            ask({**SPEC, "after": after})
    eve = stage.api.acting_for(EVE)
    with pytest.raises(BadSpec, match="no job of yours is called 'a'"):
        submit(eve, after=["a"])
    assert stage.job(submit(eve, after=["1"])).edges[0].job == "000001"


def test_a_start_follows_from_the_job_before(stage: Stage, bob: JobsApi) -> None:
    a = submit(bob, "a", time="2h")
    b = submit(bob, "b", after=["a"])
    assert _starts(stage, b) is None
    running = stage.running(a).attempts[-1].running_at
    assert _starts(stage, b) == pytest.approx(running + 7200, abs=1)


def _starts(stage: Stage, job: str) -> float | None:
    stage.clock.sleep(1)
    return seconds(stage.api.queue(jobs=[job])["rows"][0]["starts_about"])


# Submission and shares ------------------------------------------------------------------------------------------------


def test_limits_are_checked_at_a_submission(stage: Stage, bob: JobsApi, eve: JobsApi) -> None:
    stage.reconciler.queue.settings = QueueSettings(
        {"vision": 1.0},
        OwnerLimits(queued=2),
        {"v4-16": OwnerLimits(queued=1)},
        high=frozenset({"eve"}),
    )
    with pytest.raises(BadSpec, match="priority: bob may not submit jobs of high priority"):
        submit(bob, priority="high")
    submit(eve, priority="high")
    with pytest.raises(BadSpec, match="share: there is no share visoin"):
        submit(bob, share="visoin")
    submit(bob, share="vision")
    queue = stage.reconciler.queue
    queue.settings = replace(queue.settings, members={"vision": {"eve", "ada"}})
    with pytest.raises(BadSpec, match="share: bob is no member of the share vision") as refused:
        submit(bob, share="vision")
    assert "Its members: ada, eve." in refused.value.hint
    with pytest.raises(
        IllegalInState,
        match=r"bob has 1 unfinished job for v4-16 and cannot submit another: the limit is 1",
    ):
        bob.plan(SPEC)
    other = {"type": "v4-8", "zones": ["us-central2-b"]}
    done = submit(bob, tpu=other)
    with pytest.raises(IllegalInState, match="bob has 2 unfinished jobs"):
        submit(bob, tpu=other)
    bob.delete(done)
    stage.until(done, State.CANCELLED)
    with pytest.raises(IllegalInState, match=r"bob has 1 unfinished job and cannot submit 5 more"):
        submit(bob, tpu=other, array=5)
    submit(bob, tpu=other)


def test_a_submission_may_be_repeated_at_the_limit(stage: Stage, bob: JobsApi) -> None:
    stage.reconciler.queue.settings = QueueSettings(limits=OwnerLimits(queued=1))
    job = bob.create(SPEC, idempotency_key="k")["id"]
    assert bob.create(SPEC, idempotency_key="k")["id"] == job
    with pytest.raises(Conflict, match="another spec or other code"):
        bob.create(SPEC, bundles=["gs://b/1"], idempotency_key="k")
    with pytest.raises(IllegalInState, match="the limit is 1"):
        bob.create(SPEC, idempotency_key="other")


def test_the_limit_counts_jobs_that_a_group_has_yet_to_make(stage: Stage, bob: JobsApi) -> None:
    stage.reconciler.queue.settings = QueueSettings(limits=OwnerLimits(queued=5))
    group = submit(bob, "g", array=4)
    for _ in range(2):
        with pytest.raises(
            IllegalInState, match=r"bob has 4 unfinished jobs and cannot submit 2 more"
        ):
            submit(bob, array=2)
        turn(stage, [group], 3)
    bob.delete(group)
    turn(stage, [job.id for job in stage.store.list()], 3)
    submit(bob, array=5)


def test_shares_show_what_was_used_and_is_due(stage: Stage, bob: JobsApi, eve: JobsApi) -> None:
    stage.reconciler.queue.settings = QueueSettings({"vision": 3.0, "speech": 1.0})
    first, second = submit(bob, share="vision"), submit(eve, share="speech")
    submit(eve, share="speech", start="held")
    turn(stage, [first, second], 3)
    speech, vision = stage.api.shares()
    assert (speech["name"], speech["due"], speech["part"]) == ("speech", 0.25, 0.5)
    assert (vision["name"], vision["due"], vision["waiting"]) == ("vision", 0.75, 0)
    assert [(owner["user"], owner["part"]) for owner in vision["owners"]] == [("bob", 1.0)]
    assert speech["waiting"] == 1


def test_the_metrics_count_jobs_by_band_and_by_reason(stage: Stage, bob: JobsApi) -> None:
    limited(stage)
    first, *rest = [submit(bob, name) for name in "abc"]
    submit(bob, start="held")
    turn(stage, [first, *rest], 3)
    lines = stage.api.acting_for(ADA).backend_metrics().splitlines()
    assert 'tpujob_queue_jobs{band="normal"} 2.0' in lines
    assert 'tpujob_queue_waiting_jobs{reason="quota"} 2.0' in lines
    assert 'tpujob_queue_waiting_jobs{reason="held"} 1.0' in lines
    assert 'tpujob_queue_wait_seconds_count{band="normal"} 1.0' in lines
    assert "tpujob_queue_overtakes_max 0.0" in lines


def test_a_request_that_was_refused_counts_for_nothing(stage: Stage, bob: JobsApi) -> None:
    stage.faults.refuse_create = [("STOCKOUT", "full")] * 3
    job = submit(bob)
    turn(stage, [job], 10)
    assert stage.job(job).slices[0].refused is Cause.STOCKOUT
    bob.hold(job)
    stage.clock.sleep(7 * 86_400)
    assert [slice for slice in stage.job(job).slices if slice.gone_at is None] == []
    assert set(stage.reconciler.queue.usage().owners.values()) == {0.0}


def test_usage_of_ended_jobs_goes_with_them_to_another_owner(stage: Stage, bob: JobsApi) -> None:
    queue = stage.reconciler.queue
    queue.usage()
    ended = submit(bob)
    stage.running(ended)
    stage.clock.sleep(3600)
    bob.cancel(ended, release=True)
    job = stage.until(ended, State.CANCELLED)
    before = queue.usage().owners["", BOB.id]
    queue.learn(replace(job, owner=EVE.id, user="eve", version=job.version + 1))
    assert queue.usage().owners == {("", BOB.id): 0.0, ("", EVE.id): pytest.approx(before)}
    assert before > 1e6


def test_usage_is_what_a_new_backend_computes(stage: Stage, bob: JobsApi) -> None:
    queue = stage.reconciler.queue
    queue.usage()
    for job in (submit(bob), submit(bob, "other")):
        for _ in range(2):
            stage.until(job, State.RUNNING)
            stage.clock.sleep(3600)
            bob.cancel(job, release=True)
            stage.until(job, State.CANCELLED)
            assert queue.usage().owners == pytest.approx(stage.new_backend().queue.usage().owners)
            bob.resume(job)
            assert queue.usage().owners == pytest.approx(stage.new_backend().queue.usage().owners)
    assert min(queue.usage().owners.values()) > 1e6


# What a backend knows of others ---------------------------------------------------------------------------------------


def test_what_another_backend_changed_is_read_again_after_a_read_that_failed(
    stage: Stage, bob: JobsApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, queue = submit(bob), stage.reconciler.queue
    order(stage)
    other = stage.new_backend()
    other.tick(job)
    assert stage.job(job).slices
    with monkeypatch.context() as broken:
        broken.setattr(stage.store, "peek", lambda job: _away())
        stage.clock.sleep(REFRESH + 1)
        queue.plan()
    stage.clock.sleep(REFRESH + 1)
    assert queue.plan().places == {}


def test_a_record_that_is_repaired_while_a_backend_starts_is_planned(
    stage: Stage, bob: JobsApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing changes when it is repaired, so that a backend which read no job there would never look again."""
    job, backend, damaged = submit(bob), stage.new_backend(), {"now"}

    def list_without_it(**_: object) -> list[Job]:
        damaged.clear()  # repaired as soon as the list is made
        return []

    unreadable = [(job, "the record is damaged")]
    monkeypatch.setattr(stage.store, "list", list_without_it)
    monkeypatch.setattr(stage.store, "damaged", lambda: unreadable if damaged else [])
    backend.queue.plan()
    stage.clock.sleep(REFRESH + 1)
    assert list(backend.queue.plan().places) == [job]


def test_what_was_about_to_be_written_and_was_not_is_read_again(
    stage: Stage, bob: JobsApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = submit(bob)
    order(stage)
    with monkeypatch.context() as broken:
        broken.setattr(stage.store, "commit", lambda *_, **__: _away())
        with pytest.raises(Transient):
            stage.reconciler.tick(job)
    assert order(stage) == []
    stage.clock.sleep(REFRESH + 1)
    assert order(stage) == [job]


def test_a_job_does_not_start_after_an_end_that_was_not_written(
    stage: Stage, bob: JobsApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = submit(bob)
    then = submit(bob, "then", after=[first], hand_on=False)
    stage.running(first)
    stage.finish(first, 0, 0)
    order(stage)
    with monkeypatch.context() as broken:
        broken.setattr(stage.store, "commit", lambda *_, **__: _away())
        with pytest.raises(Transient):
            stage.reconciler.tick(first)
    assert stage.job(first).state is State.RUNNING
    stage.clock.sleep(0.5)
    assert not stage.reconciler.queue.of(stage.job(then)).ask


def test_a_group_does_not_end_before_its_elements_are_read(stage: Stage, bob: JobsApi) -> None:
    other = stage.new_backend()
    other.tick(submit(bob, "earlier", array=1, start="held"))
    group = submit(bob, array=3, start="held")
    stage.reconciler.tick(group)
    assert stage.job(group).submitted == 3
    other.tick(group)
    assert stage.job(group).state is State.QUEUED


def test_a_slice_falls_free_when_that_is_written(stage: Stage, bob: JobsApi) -> None:
    limited(stage)
    first, second = submit(bob), submit(bob, "second")
    stage.running(first)
    assert not stage.reconciler.queue.of(stage.job(second)).ask
    job, now = stage.job(first), stage.clock.now()
    queue = stage.reconciler.queue
    freed = Event(EventKind.SLICE_GONE, now, State.QUEUED, "")
    queue.note(job, replace(job, state=State.QUEUED, slices=()), freed)
    stage.clock.sleep(1)
    assert not queue.of(stage.job(second)).ask


def test_an_older_record_is_not_put_in_the_place_of_a_newer_one(stage: Stage, bob: JobsApi) -> None:
    job, queue = stage.job(submit(bob)), stage.reconciler.queue
    bob.hold(job.id)
    order(stage)
    ended = event(job, EventKind.CANCELLED, stage.clock.now(), "", Finished(Cause.CANCELLED))
    with pytest.raises(Conflict, match="was changed"):
        queue.note(job, apply(job, ended), ended)


def test_an_old_record_does_not_bring_a_job_back(stage: Stage, bob: JobsApi) -> None:
    old, queue = stage.job(submit(bob)), stage.reconciler.queue
    bob.delete(old.id)
    stage.until(old.id, State.CANCELLED)
    assert not queue.of(old).ask
    queue.learn(old)
    assert order(stage) == []


def _away() -> NoReturn:
    raise Transient("503 the store is away")


def test_the_metrics_count_overtakes_of_a_job(stage: Stage, bob: JobsApi, eve: JobsApi) -> None:
    jobs = [submit(bob, name) for name in "abc"]
    stage.running(jobs[0])
    stage.cloud.full.add("us-central2-b")
    passed = submit(eve)
    stage.until(passed, lambda job: bool(job.slices) and job.state is State.QUEUED)
    turn(stage, jobs, 2)

    def overtakes() -> str:
        lines = stage.api.acting_for(ADA).backend_metrics().splitlines()
        return next(line for line in lines if line.startswith("tpujob_queue_overtakes_max"))

    for n, job in enumerate(jobs[:2], 1):
        stage.running(job)
        stage.succeed(job)
        assert stage.job(jobs[n]).slices[-1].epoch == n
        assert overtakes() == f"tpujob_queue_overtakes_max {n}.0"
    stage.cloud.full.clear()
    stage.running(passed)
    assert overtakes() == "tpujob_queue_overtakes_max 0.0"
