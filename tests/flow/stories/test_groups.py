"""Arrays and sweeps: one job file, many jobs, one wish for all of them."""

import re
import sqlite3
from collections import Counter
from typing import Any

import pytest

from tests.support.callers import caller
from tests.support.stage import Stage
from tests.support.world import Killed
from tpujob.domain import invariants
from tpujob.domain.access import Role
from tpujob.domain.host.plan import group_variables
from tpujob.domain.model import Cause, DesiredState, Job, State
from tpujob.errors import BadRequest, BadSpec, IllegalInState

SWEEP: dict[str, Any] = {
    "name": "sweep",
    "matrix": {"lr": [1e-3, 3e-4], "seed": [0, 1, 2]},
    "run": {"command": "python3 train.py --lr {lr} --seed {seed}"},
}
ENDED = (State.SUCCEEDED, State.FAILED, State.CANCELLED)


def elements(stage: Stage, group: str) -> list[Job]:
    jobs = [job for job in stage.store.list() if job.group == group]
    return sorted(jobs, key=lambda job: job.index or 0)


def states(stage: Stage, group: str) -> Counter[State]:
    return Counter(job.state for job in elements(stage, group))


def made(stage: Stage, **changes: Any) -> str:
    """Return a group whose elements have all been created."""
    group = stage.create(**{**SWEEP, **changes})
    stage.until(group, lambda job: job.submitted == job.group_size)
    return group


def round_of(stage: Stage, group: str, rounds: int = 1) -> None:
    """Tick each job once a round."""
    for _ in range(rounds):
        for job in elements(stage, group):
            stage.reconciler.tick(job.id)
        stage.reconciler.tick(group)
        stage.clock.sleep(10.0)


def sound(stage: Stage) -> None:
    """Assert that no invariant is broken."""
    jobs = stage.store.list()
    errors = [broken for job in jobs for broken in invariants.of_job(job)]
    for job in jobs:
        first = invariants.first_record(job)
        errors += invariants.of_history(first, stage.store.events(job.id), job)
    assert errors + invariants.of_groups(jobs) == []


def end(stage: Stage, job: Job, code: int = 0) -> None:
    """Let the program run and end, and tick until its job has ended."""
    stage.running(job.id)
    stage.finish(job.id, code, code)
    stage.until(job.id, lambda j: j.state in ENDED)


def actions(stage: Stage) -> list[str]:
    return [action["name"] for action in stage.api.get("sweep").get("actions", [])]


def test_a_sweep_makes_its_jobs_and_succeeds_when_all_have(stage: Stage) -> None:
    group = made(stage)
    jobs = elements(stage, group)
    assert [job.name for job in jobs] == [f"sweep-{n}" for n in range(6)]
    assert jobs[4].spec.run.command == "python3 train.py --lr 0.0003 --seed 1"
    assert group_variables(jobs[4]) == {
        "TPUJOB_INDEX": "4",
        "TPUJOB_COUNT": "6",
        "TPUJOB_PARAM_LR": "0.0003",
        "TPUJOB_PARAM_SEED": "1",
    }
    assert actions(stage) == ["cancel", "delete", "clean"], "nothing is there to be resumed"
    for job in jobs:
        end(stage, job)
    done = stage.until(group, State.SUCCEEDED)
    assert done.message == "all 6 elements succeeded"
    assert done.slices == ()
    assert stage.kinds(group) == ["created", "group_extended", "succeeded"]
    assert len({job.workdir for job in jobs}) == 6
    sound(stage)


def test_a_group_whose_dependency_was_met_ends_for_no_lack_of_it(stage: Stage) -> None:
    stage.succeed(stage.started(name="prepare"))
    group = made(stage, matrix=None, array=2, run={"command": "true"}, after="prepare")
    first, second = elements(stage, group)
    stage.api.delete(first.id)
    stage.until(first.id, State.CANCELLED)
    end(stage, second)
    assert stage.until(group, State.CANCELLED).cause is Cause.CANCELLED


def test_an_element_is_supervised_while_the_record_of_its_group_is_damaged(stage: Stage) -> None:
    changes = {"matrix": None, "run": {"command": "true"}, "recovery": {"failures": 0}}
    group = made(stage, **changes, array=1)
    (element,) = elements(stage, group)
    stage.running(element.id)
    with sqlite3.connect(stage.folder / "tpujob.db") as db:
        db.execute("UPDATE jobs SET document = '{', version = version + 1 WHERE id = ?", (group,))
    stage.finish(element.id, 1, 1)
    stage.until(element.id, State.FAILED)
    assert stage.api.get(element.id)["state"] == "failed"


def test_only_one_of_two_elements_gets_the_last_place(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = made(stage, at_once=1)
    first, second = elements(stage, group)[:2]
    commit, nested = stage.store.commit, list[bool]()

    def other_first(*arguments: Any, **options: Any) -> Job:
        if not nested and arguments[1].kind == "slice_requested":
            nested.append(True)
            stage.reconciler.tick(second.id)
        return commit(*arguments, **options)

    monkeypatch.setattr(stage.store, "commit", other_first)
    stage.until(first.id, State.PROVISIONING)
    assert nested
    assert stage.job(second.id).state is State.QUEUED


def test_a_cancel_while_half_is_made_lets_none_start(stage: Stage) -> None:
    group = stage.create(name="a", array=1000, run={"command": "true"})
    stage.faults.kill_at = None
    make, batches = stage.reconciler.groups.make, list[int]()

    def cancelled_after_two(*arguments: Any) -> int:
        batches.append(make(*arguments))
        if len(batches) == 2:
            stage.api.cancel(group)
        return batches[-1]

    stage.reconciler.groups.make = cancelled_after_two  # pyright: ignore[reportAttributeAccessIssue]
    stage.step(group)
    assert len(elements(stage, group)) == 400
    round_of(stage, group, 2)
    assert states(stage, group) == {State.CANCELLED: 400}
    assert not stage.cloud.created
    done = stage.job(group)
    assert (done.state, done.cause) == (State.CANCELLED, Cause.CANCELLED)
    assert done.message == "cancelled; 0 of 1,000 succeeded"
    job = elements(stage, group)[7]
    assert job.message == "cancelled with its group a"
    sound(stage)


def test_an_element_of_a_cancelled_group_requests_no_slice(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cancel comes between the look and the commit."""
    group = made(stage)
    job = elements(stage, group)[0]
    lease = stage.store.lease

    def cancelled_first(*arguments: Any, **options: Any) -> Any:
        stage.api.cancel(group)
        return lease(*arguments, **options)

    monkeypatch.setattr(stage.store, "lease", cancelled_first)
    stage.reconciler.tick(job.id)
    monkeypatch.undo()
    assert stage.job(job.id).state is State.QUEUED
    assert not stage.cloud.created
    stage.until(job.id, State.CANCELLED)


def test_what_is_asked_of_a_group_is_asked_of_its_running_elements(stage: Stage) -> None:
    group = made(stage, at_once=2)
    running = [stage.running(job.id) for job in elements(stage, group)[:2]]
    stage.api.cancel(group)
    round_of(stage, group, 6)
    assert states(stage, group) == {State.HOLDING: 2, State.CANCELLED: 4}
    assert stage.job(group).state is State.QUEUED
    stage.api.delete(group)
    for job in running:
        stage.until(job.id, State.CANCELLED)
    stage.until(group, State.CANCELLED)
    assert not stage.cloud.machines


@pytest.mark.parametrize("kill", range(1, 13))
def test_a_backend_that_dies_between_batches_loses_and_doubles_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, kill: int
) -> None:
    """Before or after each write of the store."""
    writes = 0

    def dying(name: str) -> Any:
        real = getattr(stage.store, name)

        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal writes
            writes += 1
            if writes == kill:
                raise Killed
            result = real(*arguments, **options)
            writes += 1
            if writes == kill:
                raise Killed
            return result

        return call

    group = stage.create(name="a", array=500, run={"command": "true"})
    for name in ("create_many", "commit"):
        monkeypatch.setattr(stage.store, name, dying(name))
    stage.until(group, lambda job: job.submitted == 500)
    jobs = elements(stage, group)
    assert [job.index for job in jobs] == list(range(500))
    sound(stage)


def test_a_group_with_a_failed_element_fails_and_goes_on_after_a_resume(stage: Stage) -> None:
    group = made(stage, recovery={"failures": 0}, at_once=2)
    jobs = elements(stage, group)
    end(stage, jobs[1], 1)
    assert "resume" in actions(stage)
    for job in jobs:
        if job.index == 1:
            continue
        end(stage, job, 1 if job.index in (1, 4) else 0)
    failed = stage.until(group, State.FAILED)
    assert failed.message == "4 of 6 succeeded, 2 failed: sweep-1, sweep-4"
    view = stage.api.get("sweep")
    assert view.get("elements") == {"succeeded": 4, "failed": 2}
    assert "resumes the elements that failed" in str(view.get("next"))
    assert [(element["name"], element["cause"]) for element in view.get("worst", [])] == [
        ("sweep-1", "CRASH"),
        ("sweep-4", "CRASH"),
    ]
    stage.api.resume("sweep")
    stage.step(group)
    assert states(stage, group) == {State.SUCCEEDED: 4, State.QUEUED: 2}
    for n in (1, 4):
        end(stage, jobs[n])
    assert stage.until(group, State.SUCCEEDED).message == "all 6 elements succeeded"
    with pytest.raises(IllegalInState, match="has succeeded"):
        stage.api.resume("sweep")
    sound(stage)


def test_a_cancelled_group_goes_on_after_a_resume_also_on_held_slices(stage: Stage) -> None:
    group = made(stage, at_once=2)
    jobs = elements(stage, group)
    for job in jobs[:2]:
        stage.running(job.id)
    stage.api.cancel(group)
    round_of(stage, group, 6)
    with pytest.raises(IllegalInState, match="its group sweep was cancelled"):
        stage.api.resume("sweep-5")
    stage.api.resume("sweep")
    round_of(stage, group, 4)
    assert [stage.job(job.id).desired for job in jobs] == [DesiredState.RUN] * 6
    assert [len(stage.job(job.id).slices) for job in jobs[:2]] == [1, 1]
    for job in jobs:
        end(stage, job)
    stage.until(group, State.SUCCEEDED)
    sound(stage)


def test_one_element_is_cancelled_and_resumed_by_itself(stage: Stage) -> None:
    group = made(stage)
    *others, last = elements(stage, group)
    stage.api.cancel("sweep-5")
    stage.until(last.id, State.CANCELLED)
    for job in others:
        end(stage, job)
    ended = stage.until(group, State.CANCELLED)
    assert ended.message == "cancelled; 5 of 6 succeeded"
    stage.api.resume("sweep-5")
    end(stage, last)
    stage.until(group, State.SUCCEEDED)
    with pytest.raises(BadRequest, match="that of each of its elements"):
        stage.api.resume(group, budget=5.0)


def test_an_element_that_ends_again_by_a_slow_clock_is_resumed_once(stage: Stage) -> None:
    """The element waits for a job that failed, and the backend that ends it has a clock behind the other's."""
    first = stage.job(stage.create(name="first", recovery={"failures": 0}))
    group = made(stage, after=["first"])
    job = elements(stage, group)[0]
    end(stage, first, 1)
    round_of(stage, group)
    stage.until(group, State.CANCELLED)
    stage.api.resume("sweep")
    stage.clock.time -= 3600.0
    round_of(stage, group, 3)
    assert stage.kinds(job.id).count("resume_requested") == 1
    stage.until(group, State.CANCELLED)
    sound(stage)


def test_clean_removes_all_records_the_groups_last(stage: Stage) -> None:
    group = made(stage, array=30, matrix=None, run={"command": "true"}, at_once=2)
    first, second = elements(stage, group)[:2]
    end(stage, first)
    stage.running(second.id)
    stage.api.clean(group, checkpoints=True)
    for _ in range(100):
        for job in stage.store.list():
            stage.step(job.id)
        remaining = stage.store.list()
        assert not remaining or stage.store.get(group)
        if not remaining:
            break
    assert stage.store.list() == []
    assert not stage.cloud.machines
    assert not [path for path in stage.bucket.objects if first.id in path or second.id in path]


def test_a_list_has_the_group_for_its_elements(stage: Stage) -> None:
    group = made(stage)
    alone = stage.create()
    page = stage.api.list({"recent": True})
    assert [row["id"] for row in page["rows"]] == [alone, group]
    row = page["rows"][1]
    assert (row.get("elements"), row["why"]) == ({"queued": 6}, "0 of 6 ended; 6 queued")
    jobs = [job.id for job in elements(stage, group)]
    for name in (group, group.lstrip("0"), "sweep"):
        rows = stage.api.list({"group": name, "recent": True, "order": "id", "reverse": True})
        assert [row["id"] for row in rows["rows"]] == jobs
    assert rows["rows"][4].get("params") == {"lr": "0.0003", "seed": "1"}
    stranger = stage.api.acting_for(caller("eve", Role.VIEWER)).list({"group": group})
    assert [row.get("params") for row in stranger["rows"]] == [{}] * 6
    assert len(stage.api.list({})["rows"]) == 8
    assert stage.api.list({"group": "digits"})["rows"] == []
    view = stage.api.get("sweep-4")
    assert (view.get("group"), view.get("index")) == (group, 4)
    assert view.get("params") == {"lr": "0.0003", "seed": "1"}
    assert stage.api.capacity()["waiting"] == 7, "the group itself waits for no slice"
    assert stage.api.get(group)["actions"]


def test_a_group_is_shown_as_what_its_elements_do(stage: Stage) -> None:
    group = made(stage)
    first, second, *_ = jobs = elements(stage, group)

    def shown() -> tuple[str, str, str | None]:
        view = stage.api.get(group)
        (row,) = stage.api.list({"recent": True})["rows"]
        assert (view["state"], view.get("why")) == (row["state"], row["why"])
        states = Counter(job.state.value for job in elements(stage, group))
        states[row["state"]] += 1
        assert stage.api.list()["states"] == {state: n for state, n in states.items() if n}
        rows = stage.api.list({"states": [row["state"]]})["rows"]
        assert group in [row["id"] for row in rows]
        return row["state"], row["why"], view.get("place") and "in the queue"

    assert shown() == ("queued", "0 of 6 ended; 6 queued", None)
    stage.until(first.id, State.PROVISIONING)
    assert shown()[0] == "provisioning"
    stage.running(first.id)
    assert shown() == ("running", "0 of 6 ended; 5 queued, 1 running", None)
    assert stage.job(group).state is State.QUEUED
    end(stage, first, 0)
    stage.running(second.id)
    assert shown()[:2] == ("running", "1 of 6 ended; 4 queued, 1 running")
    stage.api.cancel(group)
    stage.until(second.id, State.HOLDING)
    assert shown()[0] == "holding"
    for job in jobs:
        stage.until(job.id, lambda job: job.state in ENDED)
    assert shown()[0] == "queued", "it is about to end"
    stage.until(group, State.CANCELLED)
    assert shown()[:2] == ("cancelled", "cancelled; 1 of 6 succeeded")
    stage.store.remove(first.id, lease=None)
    assert stage.api.get(group).get("elements") == {"cancelled": 5}


def test_the_element_with_the_lowest_loss_is_named(stage: Stage) -> None:
    group = made(stage)
    assert stage.api.get(group).get("best") is None
    for job, loss in zip(elements(stage, group), (2.5, 0.75, float("nan")), strict=False):
        stage.running(job.id)
        stage.reports(job.id, phase="running", step=10, loss=loss)
        stage.step(job.id)
    best = stage.api.get(group).get("best")
    assert best == {
        "id": elements(stage, group)[1].id,
        "name": "sweep-1",
        "loss": 0.75,
        "params": {"lr": "0.001", "seed": "1"},
    }
    stranger = stage.api.acting_for(caller("eve", Role.VIEWER)).get(group).get("best")
    assert stranger is not None
    assert stranger["params"] == {}, "as in the element's own view"


def test_logs_and_costs_of_a_group_are_those_of_its_elements(stage: Stage) -> None:
    group = made(stage)
    first = elements(stage, group)[0]
    stage.running(first.id)
    stage.clock.sleep(3600)
    end(stage, first)
    total = stage.api.cost(job=group)["total"]
    assert total["jobs"] == 2, "those that had a slice, or waited for the cloud"
    parts = [stage.api.cost(job=job.id)["total"]["list_micros"] for job in elements(stage, group)]
    assert total["list_micros"] == sum(parts) > 0
    with pytest.raises(BadRequest) as refused:
        stage.api.logs(group)
    assert refused.value.hint == "tpujob logs sweep-0"
    assert stage.api.get(group)["budgets"] == [], "each element has its own retries"


def test_a_plan_says_how_many_jobs_it_is(stage: Stage) -> None:
    plan = stage.api.plan({**SWEEP, "tpu": {"type": "v4-16"}, "at_once": 4})
    assert (plan.get("elements"), plan.get("at_once")) == (6, 4)
    assert plan["command"] == "python3 train.py --lr 0.001 --seed 0", "of the first"
    with pytest.raises(BadSpec, match=re.escape("must be from 1 to 10,000")):
        stage.create(name="a", array=10_001)


def test_a_budget_is_that_of_each_element(stage: Stage) -> None:
    group = made(stage, budget={"usd": 50})
    assert {job.spec.budget and job.spec.budget.usd for job in elements(stage, group)} == {50.0}
    assert stage.api.get(group)["usd_spent"] == 0
    first = elements(stage, group)[0]
    stage.running(first.id)
    stage.clock.sleep(1800.0)
    usd = stage.api.get(first.id)["usd_spent"]
    view, (row,) = stage.api.get(group), stage.api.list({"recent": True})["rows"]
    assert usd
    assert view["usd_spent"] == row["usd_spent"] == pytest.approx(usd)
    assert view["usd_per_hour"] == pytest.approx(7.37, abs=0.01)
    assert len(stage.api.budgets()) == 7
    for element in elements(stage, group)[1:]:
        stage.running(element.id)
        stage.clock.sleep(7.0)
        assert (total := stage.api.get(group)["usd_spent"]) == round(total or 0, 6)
