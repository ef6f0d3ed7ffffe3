"""`tpujob login`, `logout`, and commands that then show who runs them, in front of an issuer and an edge that do what
Google's do. The requests, the signatures and the TLS are real."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support import stranger
from tests.support.commands import Tpujob
from tests.support.edge import IAP_AUDIENCE, Edge, service_account_key
from tests.support.issuer import CLIENT, SECRET, IssuerServer
from tests.support.paths import ROOT
from tests.support.scripted import ScriptedJobs, job_view, listening, scripted_app
from tests.support.waiting import LONG
from tpujob.adapters.google import rest
from tpujob.adapters.sign_in import google, loopback, session
from tpujob.config import context, settings
from tpujob.domain.access import Principal, Role
from tpujob.errors import BadRequest, Forbidden, StoreError, TpujobError, Unauthorized
from tpujob.web.security.sign_in import SignInAuthenticator, SignInPolicy
from tpujob.wiring import sign_in

CI = "ci@my-lab-4711.iam.gserviceaccount.com"


class Cloud:
    """A backend that is deployed, with what is in front of it, and the person who uses it."""

    def __init__(self, issuer: IssuerServer, edge: Edge, jobs: ScriptedJobs, state: Path) -> None:
        self.server, self.issuer, self.edge, self.jobs, self.state = (
            issuer, issuer.issuer, edge, jobs, state,
        )  # fmt: skip
        self.members = {"ada@example.org": Role.SUBMITTER, CI: Role.SUBMITTER}
        self.came: list[Principal] = []

    def recognise(self, id: str, name: str) -> Principal:
        if name not in self.members:
            raise Forbidden(f"{name} is not a member")
        self.came.append(Principal(id, name, self.members[name]))
        return self.came[-1]

    @property
    def settings(self) -> settings.Settings:
        return settings.load(self.state, context="lab")

    @property
    def file(self) -> Path:
        return self.settings.home / "sign-in.json"

    def write(self, **changes: Any) -> None:
        """Write the context of a person who has typed `tpujob use URL`, but has not signed in."""
        client = {"client_id": CLIENT, "client_secret": SECRET} | changes.pop("sign_in", {})
        fields = {"name": "lab", "backend": self.edge.url, "sign_in": client} | changes
        now = settings.load(self.state)
        context.write(now, context.make(fields))
        settings.choose(now, "lab")

    @property
    def place(self) -> session.SignInPlace:
        return session.SignInPlace(context.read(self.settings, "lab"), self.file, self.server.url)

    def paste(self, **changes: Any) -> str:
        """Choose the backend and sign in on a login node: the browser is on another machine."""
        self.write(**changes)
        texts: list[str] = []

        def ask(_: str) -> str:
            address = next(line for text in texts for line in text.split("\n") if "//" in line)
            return f"  {self.issuer.consent(address)}\n"

        return sign_in.login(self.settings, open_browser=None, show=texts.append, ask=ask)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[IssuerServer, Edge]]:
    with IssuerServer() as server, Edge(server.issuer, tmp_path_factory.mktemp("edge")) as edge:
        yield server, edge


@pytest.fixture
def cloud(
    servers: tuple[IssuerServer, Edge], tpujob_state: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cloud]:
    server, edge = servers
    server.issuer.now, server.issuer.refuses, edge.iap = time.time, "", False
    edge.audiences = {CLIENT, edge.url}
    edge.invokers, edge.asked, server.issuer.revoked = {"ada@example.org", CI}, [], []
    monkeypatch.setenv("TPUJOB_GOOGLE_ENDPOINT", server.url)
    monkeypatch.setenv("SSL_CERT_FILE", str(edge.certificate))
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "DISPLAY", "WAYLAND_DISPLAY", "TPUJOB_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    made = Cloud(server, edge, ScriptedJobs(job_view()), tpujob_state)
    urls = frozenset({edge.url})
    policy = SignInPolicy("iam", frozenset({CLIENT}), urls, iap_audience=IAP_AUDIENCE)
    door = SignInAuthenticator(policy, made.recognise, rest.key_fetcher(server.url))
    with listening(scripted_app(made.jobs, door)) as url:
        edge.port = urlsplit(url).port or 0
        yield made


def test_one_line_chooses_a_backend_and_a_browser_signs_in(
    cloud: Cloud, tpujob: Tpujob, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = cloud.edge.url
    result = tpujob("use", url, "--name", "lab", "--client-id", CLIENT, "--client-secret", SECRET)
    assert result.out == f"Jobs now run in lab: the backend at {url}.\nNext:\n  tpujob login\n"
    assert "tpujob login" in tpujob("list", code=77).err

    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setenv("BROWSER", f"{sys.executable} -P {ROOT}/tests/support/browser.py %s &")
    login = tpujob.popen("login")
    out, err = login.communicate(timeout=60)
    assert login.returncode == 0, err
    assert out == "Signed in as ada@example.org, for lab.\n"

    assert tpujob("list", "--json").json[0]["id"] == "000042"
    assert cloud.came[-1].name == "ada@example.org"
    request = cloud.edge.asked[-1]
    assert request["authorization"] == request["x-serverless-authorization"], "IAM and the backend"
    assert cloud.file.stat().st_mode & 0o777 == 0o600
    secret = json.loads(cloud.file.read_text())["refresh_token"]
    assert secret not in out + err

    assert "Signed out of lab" in tpujob("logout").out
    assert cloud.issuer.revoked == [secret], "Google knows, too"
    assert not cloud.file.exists()
    assert "you are not signed in" in tpujob("list", code=77).err
    assert tpujob("logout").out == "You were not signed in.\n"


def test_a_browser_in_the_foreground_is_answered_and_the_address_is_shown_first(
    cloud: Cloud,
) -> None:
    """Such as w3m: the call that opens it returns when the person closes it."""
    cloud.write()
    shown: list[str] = []
    signed_in = threading.Event()

    def browse(address: str) -> bool:
        assert address in shown[0], "the address was shown before the browser opened"
        urllib.request.urlopen(cloud.issuer.consent(address), timeout=30).close()
        return signed_in.wait(30)

    def ask(_: str) -> str:
        raise AssertionError("a browser was opened: no address is pasted")

    who = sign_in.login(
        cloud.settings, open_browser=browse, show=shown.append, ask=ask, foreground=0.05
    )
    signed_in.set()
    assert who == "ada@example.org"


def test_on_a_login_node_an_address_is_pasted(cloud: Cloud, tpujob: Tpujob) -> None:
    assert cloud.paste() == "ada@example.org"
    assert tpujob("whoami").out.startswith("ada (")
    refused = tpujob("login", "--no-browser", code=2)
    assert f"{cloud.server.url}/accounts.google.com/o/oauth2/v2/auth?" in refused.err
    assert "signing in needs a terminal" in refused.err


def test_an_address_of_another_sign_in_is_refused(cloud: Cloud) -> None:
    """The address's code would sign this machine in as another person."""
    cloud.write()
    attempt = google.SignInAttempt.new("http://127.0.0.1:1")
    other = google.address(google.OAuthClient(CLIENT, SECRET, cloud.server.url), attempt)
    for pasted, message in (
        (cloud.issuer.consent(other), "not the address of this sign-in"),
        ("", "not the address"),
        ("http://[/?state=x&code=x", "not the address"),
        ("http://127.0.0.1/?state=a&state=b&code=x", "not the address"),
    ):
        with pytest.raises(BadRequest, match=message):
            sign_in.login(
                cloud.settings, open_browser=None, show=lambda _: None, ask=lambda _, p=pasted: p
            )
    assert not cloud.file.exists()


def test_a_code_is_worth_nothing_to_another_sign_in(cloud: Cloud) -> None:
    client = google.OAuthClient(CLIENT, SECRET, cloud.server.url)
    mine, theirs = (google.SignInAttempt.new("http://127.0.0.1:1") for _ in range(2))
    for attempt, message in (
        (theirs, "invalid_grant"),  # it lacks the verifier
        (mine._replace(nonce="x"), "belongs to another sign-in"),
    ):
        code = loopback.code_in(cloud.issuer.consent(google.address(client, mine)), mine)
        with pytest.raises(Unauthorized, match=message):
            google.exchange(client, attempt, code)
    address = f"http://127.0.0.1:1/?state={mine.state}&error=access_denied\x1b[2J"
    with pytest.raises(Unauthorized, match=r"access_denied\\x1b"):
        loopback.code_in(address, mine)


def test_requests_of_no_sign_in_do_not_end_it() -> None:
    with _waiting() as (listener, attempt, code):
        state = attempt.state
        queries = ("", "?code=evil", f"?state={state[:-1]}&code=evil", f"?state={state}&code=right")
        assert [_status(listener, query) for query in queries] == [400, 400, 400, 200]
        assert code.result(LONG) == "right"


def _status(listener: loopback.RedirectListener, query: str) -> int:
    try:
        with urllib.request.urlopen(f"{listener.redirect}/{query}", timeout=10) as answer:
            return answer.status
    except urllib.error.HTTPError as refused:
        refused.close()
        return refused.code


def test_an_open_connection_delays_neither_a_sign_in_nor_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Browsers open one before they need it."""
    with (
        _waiting(request_timeout=3600.0) as (listener, attempt, code),
        _connected(listener) as first,
    ):
        first.sendall(b"GET / HTTP/1.1\r\n")
        assert _status(listener, f"?state={attempt.state}&code=right") == 200
        assert code.result(LONG) == "right"
    with (
        _waiting(0.2, request_timeout=3600.0) as (listener, _, code),
        _connected(listener) as first,
    ):
        first.sendall(b"G")
        with pytest.raises(Unauthorized, match="did not sign in"):
            code.result(LONG)
    assert caplog.text == ""


def test_a_connection_that_sends_single_bytes_is_closed() -> None:
    with _waiting(request_timeout=0.5) as (listener, _, _), _connected(listener) as slow:
        slow.settimeout(0.05)
        for _ in range(100):
            with contextlib.suppress(TimeoutError):
                assert slow.recv(1) == b""
                break
            slow.sendall(b"x")
        else:
            pytest.fail("the connection is still open")


@stranger.needed
def test_a_connection_of_another_user_is_closed_at_once() -> None:
    with _waiting(request_timeout=3600.0) as (listener, _, _):
        script = """
with socket.create_connection(("127.0.0.1", given), timeout=10) as held:
    print(json.dumps(held.recv(100).decode()))
"""
        assert stranger.run(script, int(listener.redirect.rpartition(":")[2])) == ""


@contextlib.contextmanager
def _waiting(
    patience: float = 60.0, request_timeout: float = 60.0
) -> Iterator[tuple[loopback.RedirectListener, google.SignInAttempt, Future[str]]]:
    """A sign-in that waits in another thread; a test that has not ended it ends it here."""
    listener = loopback.RedirectListener(request_timeout)
    attempt = google.SignInAttempt.new(listener.redirect)
    with ThreadPoolExecutor(1) as pool:
        code = pool.submit(listener.wait, attempt, patience)
        try:
            yield listener, attempt, code
        finally:
            if not code.done():
                with contextlib.suppress(OSError):
                    _status(listener, f"?state={attempt.state}&code=end")
    listener.close()


def _connected(listener: loopback.RedirectListener) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(listener.redirect.rpartition(":")[2])))


# What is kept --------------------------------------------------------------------------------------------------------


def test_a_token_is_used_until_shortly_before_its_end_and_then_renewed(cloud: Cloud) -> None:
    cloud.paste()
    place, now = cloud.place, time.time()
    first = session.headers(place)
    assert session.headers(place, lambda: now + 3600 - session.EARLY - 60) == first
    cloud.issuer.now = lambda: now + 3400
    second = session.headers(place, lambda: now + 3400)
    assert second != first
    assert session.headers(place, lambda: now + 3401) == second


@pytest.mark.parametrize("apart", [-600, 600])
def test_a_clock_ten_minutes_off_signs_in_and_renews_too(cloud: Cloud, apart: float) -> None:
    """The machine's own: Google's and the backend's agree."""
    cloud.paste()
    place, now = cloud.place, time.time()
    for passed in (0.0, 1800.0, 3000.0, 3500.0, 7000.0):
        cloud.issuer.now = lambda passed=passed: now + passed
        headers = session.headers(place, lambda passed=passed: now + passed + apart)
        claims = google.claims_of(headers["Authorization"].removeprefix("Bearer "))
        assert claims["exp"] > now + passed, "an expired token would be shown"


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        ("revoked", 77, "invalid_grant, Token revoked."),
        (
            "admin_policy_enforced",
            77,
            "the admin of your Google Workspace blocks this OAuth client",
        ),
        ("invalid_client", 77, "the OAuth client of the context is wrong"),
        ("\x1b]0;x\x07", 77, "\\x1b]0;x"),
        ("no connection", 75, "cannot request a token from Google"),
    ],
)
def test_what_google_refuses_is_reported_and_only_a_revoked_sign_in_is_forgotten(
    cloud: Cloud,
    tpujob: Tpujob,
    monkeypatch: pytest.MonkeyPatch,
    error: str,
    code: int,
    message: str,
) -> None:
    cloud.paste()
    _outdate(cloud.file)
    if error == "revoked":
        cloud.issuer.people.clear()
    elif error == "no connection":
        monkeypatch.setenv("TPUJOB_GOOGLE_ENDPOINT", "http://127.0.0.1:9")
    else:
        cloud.issuer.refuses = error
    refused = tpujob("list", code=code).err
    assert message in refused
    assert ("sign in again: tpujob login" in refused) is (error == "revoked")
    assert cloud.file.exists() is (error != "revoked")


def _outdate(file: Path) -> None:
    """An hour has passed."""
    token = json.loads(file.read_text())
    file.write_text(json.dumps(token | {"until": 0.0}))


@pytest.mark.parametrize("how", ["link", "open", "folder"])
def test_a_file_that_others_may_have_written_is_not_trusted(
    cloud: Cloud, tpujob: Tpujob, how: str, tmp_path: Path
) -> None:
    cloud.paste()
    elsewhere = tmp_path / "elsewhere.json"
    cloud.file.replace(elsewhere)
    if how == "link":
        cloud.file.symlink_to(elsewhere)
    elif how == "open":
        cloud.file.write_text(elsewhere.read_text())
        cloud.file.chmod(0o644)
    else:
        cloud.file.mkdir()
    error = tpujob("list", code=1).err
    assert "holds your sign-in for a backend" in error
    assert cloud.edge.asked == [], "nothing was sent"


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: only root can give a file to others")
def test_a_file_of_another_user_is_not_trusted(cloud: Cloud) -> None:
    cloud.paste()
    os.chown(cloud.file, 65534, 65534)
    with pytest.raises(StoreError, match="not a file of yours"):
        session.headers(cloud.place)


@pytest.mark.parametrize("text", ["", "[]", '{"backend": "x"}', "\xff"])
def test_a_damaged_file_means_signing_in_again(cloud: Cloud, tpujob: Tpujob, text: str) -> None:
    cloud.paste()
    cloud.file.write_text(text, encoding="latin-1")
    assert "tpujob login" in tpujob("list", code=77).err


def test_a_sign_in_is_shown_to_no_other_backend(cloud: Cloud, tpujob: Tpujob) -> None:
    """The person who runs another backend could use the sign-in at the first one."""
    cloud.paste()
    cloud.write(backend="https://localhost:9")
    assert "you are not signed in at https://localhost:9" in tpujob("list", code=77).err
    assert cloud.edge.asked == []


def test_who_uses_this_machine_signs_in_nowhere(tpujob: Tpujob) -> None:
    for words in (("login",), ("logout",)):
        assert "its backend is on this machine" in tpujob(*words, code=2).err


def test_a_token_that_is_refused_is_renewed_once(cloud: Cloud, tpujob: Tpujob) -> None:
    """Google's keys may have changed, or the token was revoked."""
    cloud.paste()
    token = json.loads(cloud.file.read_text())
    cloud.file.write_text(json.dumps(token | {"id_token": cloud.issuer.token(aud="https://other")}))
    assert tpujob("list", "--json").json != []
    assert len(cloud.edge.asked) == 2
    cloud.edge.audiences = {"https://another"}
    tpujob("list", code=77)
    assert len(cloud.edge.asked) == 4, "and not again"


# What is in front ----------------------------------------------------------------------------------------------------


def test_the_edges_refusals_are_explained(cloud: Cloud, tpujob: Tpujob) -> None:
    cloud.paste()
    accepted, refused = cloud.edge.audiences, "Google Cloud refuses you access"
    for invokers, audiences, member, *parts in (
        (set[str](), accepted, True, refused, "deploy/join.sh YOUR_ADDRESS ROLE"),
        ({"ada@example.org"}, {"https://another"}, True, refused, "tpujob login"),
        ({"ada@example.org"}, accepted, False, "ada@example.org is not a member"),
    ):
        cloud.edge.invokers, cloud.edge.audiences = invokers, audiences
        if not member:
            cloud.members.clear()
        error = tpujob("list", code=77).err
        assert all(part in error for part in parts), error


def test_a_login_page_is_not_followed_with_the_token(cloud: Cloud, tpujob: Tpujob) -> None:
    cloud.paste()
    cloud.edge.iap, cloud.edge.audiences = True, {"https://another"}
    error = tpujob("list", code=77).err
    assert "Identity-Aware Proxy" in error
    assert len(cloud.edge.asked) == 1


def test_behind_iap_a_command_is_no_page_of_another_origin(
    cloud: Cloud, tpujob: Tpujob, job_file: Path
) -> None:
    policy = SignInPolicy(
        "iap", frozenset(), frozenset({cloud.edge.url}), iap_audience=IAP_AUDIENCE
    )
    door = SignInAuthenticator(policy, cloud.recognise, rest.key_fetcher(cloud.server.url))
    cloud.paste(door="iap")
    cloud.edge.iap = True
    with listening(scripted_app(cloud.jobs, door)) as url:
        cloud.edge.port = urlsplit(url).port or 0
        assert tpujob("list", "--json").json != []
        tpujob("cancel", "42")
        assert cloud.jobs.named("cancel")
    assert "x-serverless-authorization" not in cloud.edge.asked[-1]


# Programs ------------------------------------------------------------------------------------------------------------


def test_a_program_shows_the_key_of_its_service_account(
    cloud: Cloud, tpujob: Tpujob, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    key = tmp_path / "key.json"
    uri = f"{cloud.server.url}/oauth2.googleapis.com/token"
    key.write_text(service_account_key(cloud.issuer, uri, CI))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key))
    result = tpujob("use", cloud.edge.url, "--name", "lab", "--account", "machine")
    assert "You are ada there" in result.out, "the scripted backend always says so"
    assert cloud.came[-1].name == CI
    assert "signs in by itself" in tpujob("login", code=2).err
    key.unlink()
    assert tpujob("list", "--json").json != [], "the token is kept for an hour"


def test_a_program_may_act_as_a_service_account(
    cloud: Cloud, tpujob: Tpujob, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use = ("use", cloud.edge.url, "--name", "lab", "--account")
    tpujob(*use, CI)
    assert cloud.came[-1].name == CI
    stranger = "x@other.iam.gserviceaccount.com"
    cloud.edge.invokers.add(stranger)
    tpujob(*use, stranger, code=77)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    error = tpujob(*use, "machine", code=77).err
    assert "has no service account that can prove its identity" in error


def test_no_secret_is_in_an_error_or_its_cause(cloud: Cloud) -> None:
    cloud.paste()
    secrets = json.loads(cloud.file.read_text())
    _outdate(cloud.file)
    cloud.issuer.refuses = "invalid_scope"
    with pytest.raises(TpujobError) as raised:
        session.headers(cloud.place)
    text = repr(raised.value) + repr(raised.value.__cause__) + repr(raised.value.__context__)
    assert secrets["refresh_token"] not in text
    assert secrets["id_token"].split(".")[1] not in text
