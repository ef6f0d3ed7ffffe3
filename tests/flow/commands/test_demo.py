"""`tpujob demo` against a scripted backend: when it preempts, what it says, and how it ends."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import Response

from tests.support.commands import Tpujob, stand_in
from tests.support.scripted import ScriptedJobs, attempt_view, event_view, job_view
from tests.support.waiting import LONG
from tpujob.cli.commands.demo import time_to_preempt
from tpujob.emulator.http_server import HttpThread, Request, json_response


@pytest.mark.parametrize(
    ("step", "checkpoint", "fields", "preempts"),
    [
        pytest.param(None, None, {}, False, id="not begun"),
        pytest.param(340, None, {}, False, id="nothing to resume from"),
        pytest.param(120, 100, {}, False, id="too early to hurt"),
        pytest.param(300, 300, {}, False, id="nothing would be lost"),
        pytest.param(340, 300, {}, True, id="in the middle"),
        pytest.param(600, 600, {}, True, id="late: no longer picky"),
        pytest.param(340, 300, {"attempt": 2}, False, id="once is enough"),
        pytest.param(340, 300, {"state": "releasing"}, False, id="no longer running"),
    ],
)
def test_the_demo_preempts_in_the_middle_of_the_run_and_after_a_checkpoint(
    step: int | None, checkpoint: int | None, fields: dict[str, Any], preempts: bool
) -> None:
    job = job_view(step=step, steps=1000, checkpoint=checkpoint, **fields)
    assert time_to_preempt(job) is preempts


@pytest.fixture
def requests(tpujob: Tpujob) -> Iterator[list[Any]]:
    """Yield the requests that an emulator gets."""
    calls: list[Any] = []

    async def answer(request: Request) -> Response:
        calls.append((request.path, await request.json_object()))
        return json_response({})

    control = tpujob.state / "run" / "control.sock"
    server = HttpThread(answer, control, name="control")
    stand_in(tpujob.state, "emulator", control=str(control))
    yield calls
    server.stop()


def story(api: ScriptedJobs, accuracy: float = 0.99, attempts: int = 2) -> None:
    """The demo's job as `get` shows it from one look to the next."""

    def view(**fields: Any) -> Any:
        return job_view("000002", name="quickstart", **fields)

    ended = [attempt_view(1, step=350, redone=10, outcome="interrupted", cause="PREEMPTED")]
    last = attempt_view(2, step=1000, resumed_from=340, outcome="succeeded")
    api.script = [
        *[view(step=None, steps=None, checkpoint=None, state="provisioning", attempt=0)] * 2,
        *[view(step=350, steps=1000, checkpoint=300)] * 4,
        *[view(step=400, steps=1000, checkpoint=340, attempt=2)] * 3,
        view(
            state="succeeded",
            step=1000,
            steps=1000,
            attempt=attempts,
            attempts=[*ended, last][-attempts:],
            metrics={"test_accuracy": accuracy},
        ),
    ]
    api.happened["000002"] = [event_view(1, "queued", "ada submitted quickstart")]


def test_the_demo_preempts_once(tpujob: Tpujob, api: ScriptedJobs, requests: list[Any]) -> None:
    story(api)
    ready = tpujob.state / "run" / "backend.json"
    page = {"page": "http://127.0.0.1:23456", "page_needs_code": False}
    ready.write_text(json.dumps(json.loads(ready.read_text()) | page))
    result = tpujob("demo")
    lines = result.out.splitlines()
    its_page = "Its page: http://127.0.0.1:23456/jobs/000002"
    assert its_page in lines[:4], "at the start"
    assert lines[-1] == its_page, "and at the end"
    assert max(map(len, lines[:4])) <= 80
    assert [(path, body["target"]) for path, body in requests] == [("/preempt", "000002")]
    assert requests[0][1]["notice_s"] == 5
    for part in ("preempts the slice", "1 preemption", "99.00%", "10 of 1000", "$7.37/h"):
        assert part in result.out, result.out
    assert api.named("create")[0]["spec"]["name"] == "quickstart"
    assert "Where the time went" in result.out
    assert api.named("cost")[0]["job"] == "000002"


@pytest.mark.parametrize(
    ("command", "extra", "purpose"),
    [
        ("demo", "workloads", "the demo trains on this machine"),
        ("demo", "emulator", "the demo trains on this machine"),
        ("up", "emulator", "the local stack runs on this machine"),
        ("list", "emulator", "the local stack runs on this machine"),
    ],
)
def test_without_an_extra_a_command_says_what_to_install_and_starts_nothing(
    command: str, extra: str, purpose: str, tmp_path: Path
) -> None:
    """Simulate an installation without extras: its metadata names packages that are not installed."""
    stated = tmp_path / "tpujob-1.dist-info" / "METADATA"
    stated.parent.mkdir()
    stated.write_text(
        "Metadata-Version: 2.4\nName: tpujob\nVersion: 1\nRequires-Dist: rich>=14\n"
        f"Provides-Extra: {extra}\nRequires-Dist: rich>=14 ; extra == '{extra}'\n"
        f"Requires-Dist: jaxx[a]>=0.10 ; extra == '{extra}'\nRequires-Dist: nothing>=1 ; extra == 'dev'\n"
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "TPUJOB_STATE": str(tmp_path / "new")}
    words = [sys.executable, "-m", "tpujob", command]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=LONG)
    assert done.returncode == 2
    assert f"{purpose}, and this Python has no jaxx\n" in done.stderr
    assert "python3 -m pip install 'jaxx[a]>=0.10'\n" in done.stderr
    assert not list(tmp_path.glob("new/**/*.json")), "it started something"


def test_a_demo_that_does_not_show_what_it_should_fails(
    tpujob: Tpujob, api: ScriptedJobs, requests: list[Any]
) -> None:
    story(api, accuracy=0.5)
    assert "test accuracy is 50.0%" in tpujob("demo", code=1).out


def test_the_demo_survives_a_dead_emulator(tpujob: Tpujob, api: ScriptedJobs) -> None:
    story(api, attempts=1)
    result = tpujob("demo", code=1)
    assert "could not preempt" in result.err
    assert "1 attempt instead of 2" in result.out
    del api.jobs["000002"]
    story(api, attempts=1)
    assert tpujob("demo", "--no-preempt").err == "", "it expects one attempt, and asks nothing"
