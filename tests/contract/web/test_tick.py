"""`POST /v1/tick`: who may ask for a pass, and what a pass does, also twice at once."""

import threading
from contextlib import ExitStack
from typing import Any

from tests.support.callers import ADA, TokenDoor
from tests.support.http import ask
from tests.support.scripted import TOKEN, ScriptedJobs, listening, scripted_app
from tests.support.stage import Stage
from tpujob.domain.model import State
from tpujob.engine.loop import Loop


def tick(url: str, path: str = "/v1/tick", method: str = "POST") -> tuple[int, Any]:
    status, _, body = ask(url, method, path, {"Authorization": f"Bearer {TOKEN}"})
    return status, body


def test_an_admin_may_ask_for_a_pass() -> None:
    passes: list[bool] = []

    def make_pass(sweep: bool) -> tuple[int, float | None]:
        passes.append(sweep)
        return 2, 30.0

    door = TokenDoor(TOKEN, ADA)
    with listening(scripted_app(ScriptedJobs(), door, make_pass=make_pass)) as url:
        assert tick(url) == (200, {"ticks": 2, "next_in": 30.0})
        assert tick(url, "/v1/tick?sweep=true")[0] == 200
        assert tick(url, method="GET")[0] == 405
    assert passes == [False, True]
    with listening(scripted_app(ScriptedJobs(), door)) as url:
        assert tick(url)[0] == 400, "a backend with a loop of its own makes its passes"


# What a pass does ----------------------------------------------------------------------------------------------------


def loop_of(stage: Stage) -> Loop:
    return Loop(stage.new_backend(), stage.store, stage.clock, sweep=stage.sweep)


def test_passes_alone_run_a_job_to_its_end(stage: Stage) -> None:
    """Nobody runs between them: no thread, and each pass by a backend that knows nothing of the one before."""
    job_id = stage.create()
    while stage.job(job_id).state is not State.RUNNING:
        one_pass(stage)
        assert stage.clock.now() < 1_001_000, stage.job(job_id).message
    stage.finish(job_id, 0, 0)
    while stage.job(job_id).state is not State.SUCCEEDED:
        one_pass(stage)
        assert stage.clock.now() < 1_002_000, stage.job(job_id).message
    assert stage.cloud.machines == {}


def one_pass(stage: Stage) -> None:
    """Make one pass like an instance that is started for it, a minute after the last."""
    loop = loop_of(stage)
    loop.make_pass()
    loop.stop()
    stage.clock.sleep(60)


def test_a_pass_with_nothing_to_do_is_short_and_one_that_sweeps_finds_leaks(stage: Stage) -> None:
    loop = loop_of(stage)
    before = stage.clock.now()
    assert loop.make_pass() == (0, None)
    assert stage.clock.now() == before
    job_id = stage.started()
    stage.store.remove(job_id, lease=None)
    stage.clock.sleep(3600)
    loop.make_pass()
    assert stage.cloud.machines, "only a sweep looks for what no job claims"
    loop.make_pass(sweep=True)
    assert stage.cloud.machines == {}
    loop.stop()


def test_a_slice_is_asked_for_on_behalf_of_the_jobs_owner(stage: Stage) -> None:
    """The owner's programs may run as an account of their own."""
    job_id = stage.started()
    assert stage.cloud.users == {f"tj-{job_id}-1": "ada"}


def test_two_callers_at_once_make_one_slice(stage: Stage) -> None:
    stage.cloud.waiting.add("us-central2-b")  # requests wait, so that every pass ends soon
    jobs = [stage.create(name=f"job-{n}") for n in range(4)]
    with ExitStack() as ends:
        loops = [loop_of(stage) for _ in range(2)]
        for loop in loops:
            ends.callback(loop.stop)
        together = threading.Barrier(4)

        def call(loop: Loop) -> None:
            together.wait()
            loop.make_pass()

        # two instances, and each is called twice at once
        callers = [threading.Thread(target=call, args=(loop,)) for loop in loops * 2]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
    assert sorted(stage.cloud.created) == [f"tj-{job_id}-1" for job_id in jobs]
