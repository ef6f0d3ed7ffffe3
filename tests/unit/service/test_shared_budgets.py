"""Budgets of a user and of the project, over the jobs of a backend."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.callers import caller
from tests.support.stage import SPEC, Stage
from tests.unit.service.test_budgets import alive
from tpujob.domain.events import EventKind
from tpujob.domain.lifecycle import event
from tpujob.domain.model import Cause, Grant, Job, State
from tpujob.domain.money.ledger import US
from tpujob.domain.money.shared import SharedBudget
from tpujob.engine.spending import REFRESH
from tpujob.errors import DamagedRecord, IllegalInState, Transient

PROJECT, ADA = SharedBudget(5 * US), SharedBudget(2 * US, "ada")


def stage_with(folder: Path, *budgets: SharedBudget) -> Stage:
    return Stage(folder, budgets=budgets)


def submit(stage: Stage, user: str) -> str:
    return stage.api.acting_for(caller(user)).create(SPEC)["id"]


def both(stage: Stage, state: State, *jobs: str) -> None:
    """Tick them in turn until each is in that state."""
    for _ in range(4000):
        if all(stage.job(job).state is state for job in jobs):
            return
        for job in jobs:
            if stage.job(job).state is State.RUNNING:
                alive(stage, job)
            stage.reconciler.tick(job)
        stage.clock.sleep(5)
    raise AssertionError([stage.job(job).message for job in jobs])


def test_a_users_budget_stops_the_jobs_of_that_user_alone(tmp_path: Path) -> None:
    stage = stage_with(tmp_path, ADA)
    first, other = submit(stage, "ada"), submit(stage, "bob")
    stage.running(other)
    stage.running(first)
    both(stage, State.FAILED, first)
    assert stage.job(first).cause is Cause.BUDGET
    assert "the budget of user ada, $2.00, is used up" in stage.job(first).message
    assert stage.job(other).state is State.RUNNING
    (account,) = stage.api.budgets()
    assert (account["whose"], account["used_up"] or account["used_micros"] > 1_700_000) == (
        "user ada",
        True,
    )
    assert account["used_micros"] <= 2_000_000


def test_the_projects_budget_stops_all(tmp_path: Path) -> None:
    stage = stage_with(tmp_path, PROJECT)
    jobs = [submit(stage, user) for user in ("ada", "bob")]
    both(stage, State.RUNNING, *jobs)
    both(stage, State.FAILED, *jobs)
    assert {stage.job(job).cause for job in jobs} == {Cause.BUDGET}
    assert 4_000_000 < stage.api.budgets()[0]["used_micros"] <= 5_000_000
    with pytest.raises(IllegalInState, match="cannot continue: the budget of project does not pay"):
        stage.api.resume(jobs[0])
    with pytest.raises(IllegalInState, match=r"does not pay for a slice: \$4.\d\d of \$5.00 spent"):
        submit(stage, "eve")


def test_who_waits_for_money_says_so_and_goes_on_in_the_next_month(tmp_path: Path) -> None:
    """$1.40 pay for the first slice, and not for a second one beside it."""
    stage = stage_with(tmp_path, SharedBudget(1_400_000, monthly=True))
    stage.clock.time = 1_795_000_000.0  # 2026-11-18
    first, second = submit(stage, "ada"), submit(stage, "bob")
    stage.running(first)
    both(stage, State.FAILED, first)
    stage.reconciler.tick(second)
    waits = stage.api.get(second)
    assert waits["state"] == "queued"
    assert waits["waiting"].startswith("waiting: the budget of project does not pay for a slice:")
    assert stage.api.budgets()[0]["anew_at"] == "2026-12-01T00:00:00.000Z"
    with pytest.raises(IllegalInState):
        submit(stage, "eve")
    stage.clock.time = 1_796_083_200.0  # 2026-12-01
    stage.running(second)
    assert stage.api.budgets()[0]["used_micros"] < 100_000


def test_of_many_that_ask_at_once_only_those_get_a_slice_that_are_paid_for(tmp_path: Path) -> None:
    """All of them have looked at the same sums."""
    stage = stage_with(tmp_path, PROJECT)
    jobs = [submit(stage, "ada") for _ in range(12)]
    stage.clock.sleep(1)  # a new plan of the queue takes its time
    for job in jobs:
        stage.reconciler.tick(job)
    requesting = [job for job in jobs if stage.job(job).state is State.PROVISIONING]
    # each takes $0.43 for its way out, and needs $1.04 to begin with
    assert len(requesting) == 10
    stage.clock.sleep(5)
    assert stage.api.get(jobs[-1])["waiting"].startswith("waiting: the budget of project")


def test_what_a_grant_pays_for_is_in_no_sum(tmp_path: Path) -> None:
    """The grant is for one slice: that of the job which got one first."""
    stage = stage_with(tmp_path, PROJECT)
    first, second = submit(stage, "ada"), submit(stage, "ada")
    for job in map(stage.job, (first, second)):
        granted = replace(job, grants=(Grant("v4", "us-central2-b", "spot", 8),))
        resumed = event(job, EventKind.RESUME_REQUESTED, stage.clock.now(), "granted")
        version = job.version
        stage.store.commit(granted, resumed, expected_version=version, op_id=job.id, lease=None)
    stage.running(first)
    stage.clock.sleep(600)
    assert stage.api.budgets()[0]["used_micros"] == 0
    stage.running(second)
    stage.clock.sleep(360)
    alone = stage.api.budgets()[0]
    assert alone["micros_per_hour"] == 7_372_000
    assert 737_000 <= alone["used_micros"] <= 760_000
    assert stage.new_backend().spending.accounts()[0].used == alone["used_micros"]


def test_sums_that_cannot_be_read_again_are_as_old_as_they_are(tmp_path: Path) -> None:
    stage = stage_with(tmp_path, PROJECT)
    job = submit(stage, "ada")
    stage.running(job)
    accounts, real = stage.reconciler.spending.accounts(), stage.store.changes

    def broken(after: int) -> tuple[int, list[str]]:
        raise Transient("503")

    stage.store.changes = broken  # type: ignore[method-assign]
    stage.clock.sleep(100)
    assert stage.reconciler.spending.accounts() == accounts
    stage.store.changes = real  # type: ignore[method-assign]
    assert stage.reconciler.spending.accounts()[0].used > accounts[0].used


def test_a_damaged_record_stops_no_sums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = stage_with(tmp_path, PROJECT)
    job, damaged = submit(stage, "ada"), submit(stage, "bob")
    both(stage, State.RUNNING, job, damaged)
    before, get = stage.reconciler.spending.accounts()[0], stage.store.get
    stage.api.acting_for(caller("bob")).cancel(damaged)

    def get_unless_damaged(job_id: str) -> Job:
        if job_id == damaged:
            raise DamagedRecord(f"the record of job {job_id} is damaged")
        return get(job_id)

    monkeypatch.setattr(stage.store, "get", get_unless_damaged)
    stage.clock.sleep(600)
    after = stage.reconciler.spending.accounts()[0]
    assert after.at - before.at == 600
    assert after.used - before.used >= 1_000_000


def test_a_request_counts_during_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The budget pays for one slice; the store takes so long that the sums are read again meanwhile."""
    stage = stage_with(tmp_path, SharedBudget(1_400_000))
    first, second = submit(stage, "ada"), submit(stage, "bob")
    stage.clock.sleep(1)
    commit = stage.store.commit

    def commit_slowly(job: Job, *args: Any, **kwargs: Any) -> Job:
        if job.id == first and job.state is State.PROVISIONING:
            for _ in range(2):
                stage.clock.sleep(REFRESH)
                stage.reconciler.tick(second)
        return commit(job, *args, **kwargs)

    monkeypatch.setattr(stage.store, "commit", commit_slowly)
    stage.reconciler.tick(first)
    states = [stage.job(job).state for job in (first, second)]
    assert states == [State.PROVISIONING, State.QUEUED]


def test_what_a_removed_job_has_cost_counts_in_every_backend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unanswered() -> list[Job]:
        raise Transient("503")

    stage = stage_with(tmp_path, PROJECT, SharedBudget(50 * US, "ada", monthly=True))
    stage.clock.time = 1_795_000_000.0  # 2026-11-18
    job = stage.started()
    stage.clock.sleep(600)
    stage.succeed(job)
    spent = [account.used for account in stage.reconciler.spending.accounts()]
    assert min(spent) > 1_000_000
    stage.api.clean(job)
    stage.reconciler.tick(job)
    assert stage.store.list() == []
    for _ in range(2):
        stage.clock.sleep(REFRESH)
        assert [account.used for account in stage.reconciler.spending.accounts()] == spent
        stage.reconciler = stage.new_backend()
        with monkeypatch.context() as patch:
            patch.setattr(stage.store, "removed", unanswered)
            with pytest.raises(Transient):
                stage.reconciler.spending.accounts()
    stage.clock.time = 1_796_083_200.0  # 2026-12-01
    assert [account.used for account in stage.reconciler.spending.accounts()] == [spent[0], 0]


def test_a_month_that_began_by_a_wrong_clock_ends_with_it(tmp_path: Path) -> None:
    stage = stage_with(tmp_path, SharedBudget(50 * US, monthly=True))
    stage.clock.time = 1_830_000_000.0  # 2027-12-28
    assert stage.reconciler.spending.accounts()[0].used == 0
    stage.clock.time = 1_795_000_000.0  # 2026-11-18
    stage.started()
    stage.clock.sleep(600)
    (account,) = stage.reconciler.spending.accounts()
    assert account.used > 1_000_000
    assert account.until == 1_796_083_200.0  # 2026-12-01
