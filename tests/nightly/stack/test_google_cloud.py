"""Jobs in a context of Google Cloud, with all of its real clients: Firestore against Google's emulator, Cloud Storage
and the Cloud TPU API against ours, SSH to its hosts. Only addresses differ from the real thing."""

import http.client
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.edge import Edge
from tests.support.issuer import CLIENT, SECRET, IssuerServer, subject
from tests.support.local_stack import PATIENCE, Lab, LocalStack
from tests.support.paths import ROOT
from tests.support.ports import reserved

pytestmark = pytest.mark.timeout(900)

#: the first attempt goes on until it is stopped, the second one ends well
PROGRAM = """
import os, signal, sys, time
print("code one, attempt", os.environ["TPUJOB_ATTEMPT"], "on host", os.environ["TPUJOB_HOST"], flush=True)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
while os.environ["TPUJOB_ATTEMPT"] == "1":
    time.sleep(0.1)
"""
TICK = "tpujob-tick@my-lab-4711.iam.gserviceaccount.com"


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
        author = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
        subprocess.run(["git", *author, *words], cwd=self.folder, check=True, capture_output=True)

    def commit(self, text: str) -> None:
        (self.folder / "train.py").write_text(text)
        self.git("add", "-A")
        self.git("commit", "-q", "--no-gpg-sign", "-m", "one more")


def test_a_job_in_a_project_is_preempted_and_goes_on_with_its_own_code(lab: Lab) -> None:
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
    output = logs(lab, job_id)
    assert [f"code one, attempt 2 on host {host}" in output for host in (0, 1)] == [True, True]
    assert "never submitted" not in output
    assert view["code"]["branch"] == "main"
    assert view["code"]["commit"][:12] in tpujob.run("show", job_id)

    assert "digits" in tpujob.run("list", "--all")
    assert "No slice is left over" in tpujob.run("leaks")
    assert not any(tpujob.json("sweep", "--dry-run").values())
    assert lab.in_the_cloud() == []
    assert lab.local.json("list", "--all") == [], "the jobs of a context are its own"


def logs(lab: Lab, job_id: str) -> str:
    return lab.tpujob.run("logs", job_id, code=None)


SIGN_IN = f"""
sign_in:
  client_id: {CLIENT}
  client_secret: {SECRET}
"""


@pytest.fixture
def cloud_run(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[Edge]:
    """Google's accounts, and the edge of Cloud Run; there is no backend behind it yet."""
    server, edge_folder = IssuerServer(), lab.folder / "edge"
    edge_folder.mkdir()
    edge = Edge(server.issuer, edge_folder)
    edge.invokers = {"ada@example.org", "ben@example.org", TICK}
    monkeypatch.setenv("SSL_CERT_FILE", str(edge.certificate))  # for what this process asks itself
    lab.tpujob.env |= {
        "SSL_CERT_FILE": str(edge.certificate),
        "TPUJOB_GOOGLE_ENDPOINT": server.url,
        "DISPLAY": ":0",
        "BROWSER": f"{sys.executable} -P {ROOT}/tests/support/browser.py %s &",
    }
    yield edge
    edge.close()
    server.close()


def test_a_deployed_backend_knows_who_asks_and_ends_a_job_only_while_it_is_called(
    lab: Lab, cloud_run: Edge, request: pytest.FixtureRequest
) -> None:
    """Call the backend as Cloud Scheduler does where Cloud Run keeps no instance: nothing happens in between. Two
    people sign in at Google's accounts, one of whom may only look; the keys of the issuer change meanwhile."""
    lab.context("cloud")
    issuer, log = cloud_run.issuer, lab.folder / "deployed.log"
    with deployed(lab, cloud_run, log):
        ada, ben = lab.tpujob, another(lab, "ben")
        use = ("use", cloud_run.url, "--name", "run", "--client-id", CLIENT)
        for user in (ada, ben):
            assert "tpujob login" in user.run(*use, "--client-secret", SECRET)
        ada.run("login")
        issuer.at_the_browser = "ben@example.org"
        ben.run("login")
        assert ada.run("whoami").startswith("ada@example.org (google:")
        assert "ben@example.org is not a member" in ben.run("list", code=77)
        ada.run("members", "add", "ben@example.org", "viewer")

        job_id = ada.create("hello", "echo hello from $TPUJOB_HOST", preflight=False)
        assert ada.job(job_id)["state"] == "queued", "there was no call yet"
        assert ben.json("show", job_id)["state"] == "queued"
        assert "needs the role" in ben.run("delete", job_id, "--yes", code=77)
        page = ben.popen("open", "--print")
        request.addfinalizer(page.kill)
        assert page.stdout is not None
        address = page.stdout.readline().strip()
        status, shown = http_get(f"{address}?who=everyone")
        assert (status, "hello" in shown, "ben@example.org" in shown) == (200, True, True), shown
        issuer.rotate()
        ends = time.monotonic() + PATIENCE
        while ada.job(job_id)["state"] != "succeeded":
            assert time.monotonic() < ends, ada.run("show", job_id)
            # signed with a key that the backend does not know yet: Cloud Run has checked it
            tick(cloud_run, issuer.token(TICK, aud=cloud_run.url, azp=subject(TICK)))
        assert "hello from 1" in logs(lab, job_id)
        assert ada.json("show", job_id)["user"] == "ada@example.org"
        assert lab.in_the_cloud() == []

        renewed = issuer.token("ben@example.org")
        as_ben = dict.fromkeys(("Authorization", "X-Serverless-Authorization"), f"Bearer {renewed}")
        while (answer := ask(cloud_run, "GET", "/v1/jobs", as_ben))[0] != 200:
            # its backend looks for new keys 30 s after the last time
            assert time.monotonic() < ends, (
                f"the new keys are not fetched: {answer}\n{log.read_text()}"
            )
            time.sleep(0.5)
        ada.run("members", "remove", "ben@example.org")
        assert ask(cloud_run, "GET", "/v1/jobs", as_ben)[0] == 403, "it takes effect at once"
        status, shown = http_get(address)
        assert (status, "is not a member" in shown) == (403, True), "and on the page that is open"
        page.send_signal(signal.SIGINT)
        said_by_page = page.communicate(timeout=30)
        assert page.returncode == 0, said_by_page
        assert "Signed out" in ada.run("logout")
        assert "tpujob login" in ada.run("list", code=77)
    text = log.read_text()
    assert "refused: 'GET /v1/jobs'" in text
    for token in (renewed, *issuer.revoked):
        assert all(len(part) < 20 or part not in text for part in token.split("."))


def http_get(address: str) -> tuple[int, str]:
    """Request a page like a browser on this machine."""
    url = urlsplit(address)
    connection = http.client.HTTPConnection(url.netloc, timeout=90)
    try:
        connection.request("GET", f"{url.path}?{url.query}", headers={"Accept": "text/html"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def tick(edge: Edge, token: str) -> None:
    status, answer = ask(edge, "POST", "/v1/tick", {"Authorization": f"Bearer {token}"})
    assert status == 200, answer


def ask(edge: Edge, method: str, path: str, headers: dict[str, str]) -> tuple[int, bytes]:
    """Send a request like a client that is no command."""
    url = urlsplit(edge.url)
    connection = http.client.HTTPSConnection(url.hostname or "", url.port, timeout=90)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def another(lab: Lab, name: str) -> LocalStack:
    """Somebody else, on a machine of their own."""
    (lab.folder / name).mkdir()
    made = LocalStack(lab.folder / name)
    state = made.env["TPUJOB_STATE"]
    made.env = {**lab.tpujob.env, "TPUJOB_USER": name, "TPUJOB_STATE": state}
    return made


@contextmanager
def deployed(lab: Lab, edge: Edge, log: Path) -> Generator[None]:
    """The process of the image, behind the edge; what the image says of addresses and files is changed."""
    file = lab.folder / "lab.yaml"
    file.write_text((lab.folder / "state" / "contexts" / "cloud.yaml").read_text() + SIGN_IN)
    words = ["--context-file", str(file), "--state", "deployed", "--only-called"]
    words += ["--url", edge.url, "--tick-account", TICK, "--admin", "ada@example.org"]
    with reserved() as edge.port, listening(lab, words, log, edge.port):
        yield


@contextmanager
def listening(lab: Lab, words: list[str], log: Path, port: int) -> Generator[None]:
    # in the cloud its keys are in Secret Manager, which has no emulator
    env = {**lab.tpujob.env, "K_SERVICE": "tpujob", "PORT": str(port), "TPUJOB_KEYS": "files"}
    with log.open("w") as output:
        service = subprocess.Popen(
            [sys.executable, "-m", "tpujob.web.deployed", *words],
            env=env,
            cwd=lab.folder,
            stdout=output,
            stderr=output,
        )
    try:
        until_it_listens(service, port, log)
        yield
    finally:
        service.terminate()
        service.wait(timeout=10)  # Cloud Run kills it then


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
