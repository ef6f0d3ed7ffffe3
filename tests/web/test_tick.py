"""`POST /v1/tick`: who may ask for a pass, and what a pass does, also twice at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.support.callers import ADA
from tests.support.http import ACCOUNT, URL, ask, claims, token
from tests.support.scripted import TOKEN, ScriptedJobs, listening, scripted_app
from tests.support.stage import Stage
from tpujob.domain.model import State
from tpujob.engine.loop import Loop
from tpujob.web.door import TokenDoor
from tpujob.web.scheduler import REMOVED, SKEW, Scheduler


class Passes:
    """Counts the passes that were asked for."""

    def __init__(self) -> None:
        self.asked: list[bool] = []

    def __call__(self, sweep: bool) -> tuple[int, float | None]:
        self.asked.append(sweep)
        return 2, 30.0


@pytest.fixture
def passes() -> Passes:
    return Passes()


@pytest.fixture
def backend(passes: Passes) -> Iterator[str]:
    """Its URL here; in the cloud it is called URL."""
    scheduler = Scheduler(ACCOUNT, URL)
    hosts = [URL.removeprefix("https://")]
    app = scripted_app(
        ScriptedJobs(), TokenDoor(TOKEN, ADA, scheduler), hosts=hosts, make_pass=passes
    )
    with listening(app) as url:
        yield url


def tick(url: str, value: str, path: str = "/v1/tick", method: str = "POST") -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {value}", "Host": URL.removeprefix("https://")}
    status, _, body = ask(url, method, path, headers)
    return status, body


def test_the_scheduler_and_the_tokens_owner_may_ask_for_a_pass(
    backend: str, passes: Passes
) -> None:
    for value in (TOKEN, token(claims())):
        assert tick(backend, value) == (200, {"ticks": 2, "next_in": 30.0})
    assert tick(backend, token(claims()), "/v1/tick?sweep=true")[0] == 200
    assert passes.asked == [False, False, True]
    strange = token(claims(note="?~" * 9))
    assert {"-", "_"} & set(strange.removesuffix(REMOVED)), "letters that only this base64 has"
    assert tick(backend, strange)[0] == 200
    late = claims(exp=time.time() - SKEW / 2, iat=time.time() + SKEW / 2)
    assert tick(backend, token(late))[0] == 200, "clocks differ"


FORGED: dict[str, Callable[[], str]] = {
    "signed": lambda: token(claims(), "c2lnbmVk"),
    "no signature": lambda: token(claims(), ""),
    "for another": lambda: token(claims(aud="https://somebody-else.run.app")),
    "of another": lambda: token(claims(email="eve@my-lab.iam.gserviceaccount.com")),
    "not verified": lambda: token(claims(email_verified="true")),
    "issuer": lambda: token(claims(iss="https://evil.example")),
    "expired": lambda: token(claims(exp=time.time() - 60)),
    "without an end": lambda: token(claims(exp=None)),
    "strange end": lambda: token(claims(exp=True)),
    "from the future": lambda: token(claims(iat=time.time() + 600)),
    "without a beginning": lambda: token(claims(iat=None)),
    "not JSON's base64": lambda: token(claims()).replace(".", ".*", 1),
    "no claims": lambda: token({}),
    "a list": lambda: token([1]),
    "no base64": lambda: f"a.$$$.{REMOVED}",
    "no JSON": lambda: f"a.{'W' * 40_000}.{REMOVED}",
    "empty": lambda: f"..{REMOVED}",
    "no parts": lambda: REMOVED,
}


@pytest.mark.parametrize("name", FORGED)
def test_any_other_token_is_refused(backend: str, passes: Passes, name: str) -> None:
    assert tick(backend, FORGED[name]())[0] == 401
    assert passes.asked == []


def test_the_schedulers_token_opens_nothing_else(backend: str) -> None:
    for method, path in (("GET", "/v1/jobs"), ("POST", "/v1/jobs"), ("GET", "/v1/tick/")):
        assert tick(backend, token(claims()), path, method)[0] == 401
    assert tick(backend, token(claims()), "/v1/tick", "GET")[0] == 405


def test_a_backend_with_a_loop_of_its_own_refuses_passes() -> None:
    with listening(scripted_app(ScriptedJobs(), TokenDoor(TOKEN, ADA))) as url:
        assert ask(url, "POST", "/v1/tick", {"Authorization": f"Bearer {TOKEN}"})[0] == 400
        forged = {"Authorization": f"Bearer {token(claims())}"}
        assert ask(url, "POST", "/v1/tick", forged)[0] == 401, "nobody has told it of a scheduler"


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
    """As an instance does that is started for it, a minute after the last."""
    loop = loop_of(stage)
    loop.make_pass()
    loop.stop()
    stage.clock.sleep(60)


def test_a_pass_with_nothing_to_do_is_short_and_one_that_sweeps_finds_leaks(stage: Stage) -> None:
    loop = loop_of(stage)
    before = stage.clock.now()
    assert loop.make_pass() == (0, None)
    assert stage.clock.now() == before
    job_id = stage.create()
    stage.running(job_id)
    stage.store.remove(job_id, lease=None)
    stage.clock.sleep(3600)
    loop.make_pass()
    assert stage.cloud.machines, "only a sweep looks for what nobody claims"
    loop.make_pass(sweep=True)
    assert stage.cloud.machines == {}
    loop.stop()


def test_two_callers_at_once_make_one_slice(stage: Stage) -> None:
    stage.cloud.queues.add("us-central2-b")  # requests wait, so that every pass ends soon
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
