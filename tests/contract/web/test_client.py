"""`tpujob.Client`: what a notebook gets, asked of a real backend over HTTP."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

import tpujob
from tests.flow.page import lab
from tests.support.callers import ADA, NamedDoor
from tests.support.scripted import listening
from tests.support.stage import SPEC, Stage
from tpujob.adapters.http.client import RemoteJobs
from tpujob.errors import BadRequest, NotFound, Transient
from tpujob.lib import unix_sockets
from tpujob.web.api import create_app


@pytest.fixture
def client(tmp_path: Path, stage: Stage) -> Iterator[tpujob.Client]:
    app = create_app(stage.api.acting_for, NamedDoor(ADA))
    app.state.now = stage.clock.now
    path = unix_sockets.place(tmp_path, "b.sock")
    with listening(app, place=unix_sockets.listen(path)) as url:
        named = {"x-test-name": ADA.name}
        yield tpujob.Client(api=RemoteJobs(url, sign=lambda _: named))


def test_a_job_from_a_mapping_is_steered_and_ends(stage: Stage, client: tpujob.Client) -> None:
    job = client.create(SPEC, key="once")
    assert (job.name, job.state) == ("digits", "queued")
    assert client.create(SPEC, key="once").id == job.id, "the same key makes no second job"
    assert client.job("digits").id == job.id
    with pytest.raises(Transient, match=r"is queued after 0\.1 s"):
        job.wait(timeout=0.1)
    job.delete()
    stage.reconciler.tick(job.id)
    assert job.wait(timeout=10).state == "cancelled"
    assert [event["kind"] for event in job.events()][:2] == ["created", "release_requested"]
    assert [e["job"] for e in client.events("created")] == [job.id]
    assert repr(job).startswith(f"<job {job.id} digits: cancelled: ")


def test_a_create_without_an_answer_says_how_to_repeat_it(
    client: tpujob.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = client.api.create

    def lose_the_answer(*args: Any, **kwargs: Any) -> None:
        create(*args, **kwargs)
        raise Transient("the backend did not answer in time", hint="try again")

    with monkeypatch.context() as lossy:
        lossy.setattr(client.api, "create", lose_the_answer, raising=False)
        with pytest.raises(Transient) as error:
            client.create(SPEC)
    (key,) = re.findall("key='([0-9a-f]+)'", error.value.hint)
    client.create(SPEC, key=key)
    assert len(client.jobs()) == 1


def test_rows_are_ready_for_a_data_frame(stage: Stage, client: tpujob.Client) -> None:
    assert repr(client.jobs()) == "no jobs"
    lab.store_jobs(stage.store, lab.full())
    page = client.jobs(states=["running"], order="spent", limit=2)
    assert len(page) == 2
    assert {row["state"] for row in page} == {"running"}
    with pytest.raises(BadRequest, match="order: there is no 'nosuch'; one of 'id', 'name', "):
        client.jobs(order=cast(Any, "nosuch"))
    assert all(isinstance(row["usd_spent"], float) for row in page[:2])


def test_metrics_of_a_job_without_a_program_are_no_rows(client: tpujob.Client) -> None:
    assert client.create(SPEC).metrics() == []


def test_a_notebook_shows_a_job_as_its_page_does_without_actions(client: tpujob.Client) -> None:
    shown = client.create({**SPEC, "name": "x"})._repr_html_()
    assert shown.startswith('<iframe srcdoc="')
    assert 'sandbox=""' in shown
    page = client.api.html("/jobs/000001")
    assert "<style>" in page
    assert "<script" not in page
    assert "<link" not in page, "it needs no other file"
    with pytest.raises(NotFound):
        client.api.html("/jobs/999999")


def test_what_needs_the_command_line_says_so(client: tpujob.Client) -> None:
    with pytest.raises(BadRequest, match="no folder that `code` could be in"):
        client.create({**SPEC, "code": "."})
    with pytest.raises(NotFound):
        client.job("nobody")


def test_importing_tpujob_imports_no_client() -> None:
    script = "import tpujob, sys; print('tpujob.client' in sys.modules, hasattr(tpujob, 'Klient'))"
    printed = subprocess.check_output([sys.executable, "-c", script], text=True)
    assert printed.split() == ["False", "False"]
