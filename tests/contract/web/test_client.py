"""`tpujob.Client`: what a notebook gets, asked of a real backend over HTTP."""

import os
import pickle
import re
import subprocess
import sys
import warnings
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
from tpujob.api import JobView
from tpujob.errors import BackendGone, BadRequest, NotFound, Transient
from tpujob.lib import unix_sockets
from tpujob.lib.http import HttpReply, HttpRequest
from tpujob.lib.tries import Backoff
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


def test_a_forked_process_gets_the_jobs_that_it_names(stage: Stage, client: tpujob.Client) -> None:
    """`multiprocessing.Pool` and the workers of a DataLoader fork: a connection that they shared would mix answers."""
    ids = [client.create({**SPEC, "name": f"job-{n}"}).id for n in range(8)]
    readers: list[int] = []
    for _ in range(3):
        reader, writer = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of forks beside threads, also by JAX
            pid = os.fork()
        if pid == 0:
            wrong = "not finished"
            try:
                wrong = " ".join(i for i in ids * 5 if client.job(i).id != i)
            finally:
                os.write(writer, wrong.encode() or b"ok")
                os._exit(0)
        os.close(writer)
        readers.append(reader)
    assert [i for i in ids * 5 if client.job(i).id != i] == []
    assert [_read_to_the_end(reader) for reader in readers] == ["ok"] * 3
    for _ in readers:
        os.wait()


def _read_to_the_end(descriptor: int) -> str:
    with open(descriptor) as pipe:
        return pipe.read()


def test_an_answer_about_another_job_is_an_error(
    client: tpujob.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (client.create({**SPEC, "name": name}) for name in ("first", "second"))
    transport = client.api._transport  # pyright: ignore[reportPrivateUsage] what a proxy could do
    real = transport.request

    def mixed_up(request: HttpRequest) -> HttpReply:
        return real(request._replace(url=request.url.replace(first.id, second.id)))

    monkeypatch.setattr(transport, "request", mixed_up)
    for steer in (first.refresh, first.cancel, first.delete):
        with pytest.raises(BackendGone, match=f"about job {first.id} is about {second.id}"):
            steer()
    assert first.name == "first", "the wrong answer is not kept"


def test_ids_may_be_numbers_and_odd_keys_are_refused(client: tpujob.Client) -> None:
    job = client.create(SPEC)
    assert client.job(int(job.id)).id == job.id
    for key in ("a\nb", "schlüssel"):
        with pytest.raises(BadRequest, match="is not of ASCII"):
            client.create(SPEC, key=key)


def test_waiting_continues_when_the_backend_was_replaced(
    stage: Stage, client: tpujob.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = client.create(SPEC)
    job.delete()
    stage.reconciler.tick(job.id)
    failures = iter([BackendGone("gone"), Transient("starting")])
    real = client.api.get

    def get(job: str) -> JobView:
        error = next(failures, None)
        if error:
            raise error
        return real(job)

    monkeypatch.setattr("tpujob.wiring.retrying.RetryingClient.pauses", Backoff(0.01, 30.0))
    monkeypatch.setattr(client.api, "get", get, raising=False)
    assert job.wait(timeout=60).state == "cancelled"


def test_a_client_is_pickled_as_its_context(
    tmp_path: Path, client: tpujob.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = client.create(SPEC)
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(client)

    def connect(_settings: object) -> RemoteJobs:
        return client.api

    monkeypatch.setattr("tpujob.wiring.client.client", connect)
    own = tpujob.Client()
    copy = pickle.loads(pickle.dumps(own.job(job.id)))
    assert (copy.id, copy.refresh().name) == (job.id, "digits")
