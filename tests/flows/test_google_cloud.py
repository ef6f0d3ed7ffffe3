"""Jobs in a context of Google Cloud, with all of its real clients: Firestore against Google's emulator, Cloud Storage
and the Cloud TPU API against ours, SSH to its hosts. Only addresses differ from the real thing."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.http import ACCOUNT, URL, ask, claims, token
from tests.support.local_stack import PATIENCE, Lab
from tests.support.tls import https

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

#: the first attempt goes on until it is told to stop, the second one ends well
PROGRAM = """
import os, signal, sys, time
print("code one, attempt", os.environ["TPUJOB_ATTEMPT"], "on host", os.environ["TPUJOB_HOST"], flush=True)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
while os.environ["TPUJOB_ATTEMPT"] == "1":
    time.sleep(0.1)
"""
TOKEN = "0123456789abcdef" * 4


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, firestore_endpoint: str) -> Iterator[Lab]:
    made = Lab(tmp_path_factory.mktemp("lab"), firestore_endpoint)
    yield made
    made.down()


class Checkout:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.git("init", "-q", "-b", "main")

    def git(self, *words: str) -> None:
        who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
        subprocess.run(["git", *who, *words], cwd=self.folder, check=True, capture_output=True)

    def commit(self, text: str) -> None:
        (self.folder / "train.py").write_text(text)
        self.git("add", "-A")
        self.git("commit", "-q", "--no-gpg-sign", "-m", "one more")


def test_a_job_in_a_project_is_preempted_and_goes_on_with_the_code_that_was_submitted(
    lab: Lab,
) -> None:
    tpujob, code = lab.tpujob, Checkout(lab.folder / "code")
    code.commit(PROGRAM)
    bucket = lab.context("lab")
    job_id = tpujob.create("digits", "python3 train.py", code="code", preflight=False)
    view = tpujob.until(job_id, lambda v: v["state"] == "running" and "host 1" in logs(lab, job_id))
    assert view["workdir"].startswith(f"{bucket}/")

    code.commit("raise SystemExit('this was never submitted')\n")
    lab.local.run("emulator", "preempt", view["slices"][0]["name"], "--notice", "1s")
    assert "succeeded" in tpujob.run("wait", job_id)

    view = tpujob.job(job_id)
    assert [(a["outcome"], a["cause"]) for a in view["attempts"]] == [
        ("interrupted", "PREEMPTED"),
        ("succeeded", None),
    ]
    assert all(slice["gone_at"] for slice in view["slices"])
    said = logs(lab, job_id)
    assert [f"code one, attempt 2 on host {host}" in said for host in (0, 1)] == [True, True]
    assert "never submitted" not in said
    assert view["code"]["branch"] == "main"
    assert view["code"]["commit"][:12] in tpujob.run("show", job_id)

    assert "digits" in tpujob.run("list", "--all")
    assert "Nothing is left" in tpujob.run("leaks")
    assert not any(tpujob.json("sweep", "--dry-run").values())
    assert lab.in_the_cloud() == []
    assert lab.local.json("list", "--all") == [], "the jobs of a context are its own"


def logs(lab: Lab, job_id: str) -> str:
    return lab.tpujob.run("logs", job_id, code=None)


def test_a_deployed_backend_that_only_runs_while_it_is_called_ends_a_job(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Cloud Run with no instance kept: Cloud Scheduler calls, and nothing happens in between."""
    lab.context("cloud")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (lab.folder / "token").write_text(TOKEN)
    words = ["--context-file", str(lab.folder / "state" / "contexts" / "cloud.yaml")]
    words += ["--token-file", "token", "--state", "deployed", "--only-called"]
    words += ["--url", URL, "--tick-account", ACCOUNT]
    # in the cloud its keys are in Secret Manager, which has no emulator
    env = {**lab.tpujob.env, "K_SERVICE": "tpujob", "PORT": str(port), "TPUJOB_KEYS": "files"}
    with (lab.folder / "deployed.log").open("w") as log:
        service = subprocess.Popen(
            [sys.executable, "-m", "tpujob.web.deployed", *words],
            env=env,
            cwd=lab.folder,
            stdout=log,
            stderr=log,
        )
    edge = ExitStack()
    try:
        backend = f"http://127.0.0.1:{port}"
        until_it_listens(service, port, lab.folder / "deployed.log")
        use(lab, edge.enter_context(in_front_of(backend, lab, monkeypatch)))
        job_id = lab.tpujob.create("hello", "echo hello from $TPUJOB_HOST", preflight=False)
        assert lab.tpujob.job(job_id)["state"] == "queued", "nobody has called yet"
        ends = time.monotonic() + PATIENCE
        while lab.tpujob.job(job_id)["state"] != "succeeded":
            assert time.monotonic() < ends, lab.tpujob.run("show", job_id)
            headers = {"Authorization": f"Bearer {token(claims())}"}
            status, _, said = ask(backend, "POST", "/v1/tick", headers, timeout=90)
            assert status == 200, said
        assert "hello from 1" in logs(lab, job_id)
        assert lab.in_the_cloud() == []
    finally:
        edge.close()
        service.terminate()
        service.wait(timeout=60)


@contextmanager
def in_front_of(backend: str, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Generator[str]:
    """HTTPS, as Cloud Run has it in front of a container; this process and the commands trust it."""
    with https(backend, lab.folder) as (url, certificate):
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        lab.tpujob.env["SSL_CERT_FILE"] = str(certificate)
        yield url


def until_it_listens(service: subprocess.Popen[bytes], port: int, log: Path) -> None:
    ends = time.monotonic() + PATIENCE
    while True:
        assert service.poll() is None, log.read_text()
        assert time.monotonic() < ends, log.read_text()
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)


def use(lab: Lab, backend: str) -> None:
    """`tpujob use URL < token`."""
    done = subprocess.run(
        [sys.executable, "-m", "tpujob", "use", backend, "--name", "run"],
        input=TOKEN,
        env=lab.tpujob.env,
        cwd=lab.folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stdout + done.stderr
