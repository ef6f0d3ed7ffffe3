"""The backend where its disk does not last: what it takes from files, and what it refuses to begin with."""

from dataclasses import replace
from pathlib import Path

import pytest
from starlette.responses import JSONResponse

from tests.support.callers import ADA, TokenDoor
from tests.support.http import call_app
from tpujob.config import context
from tpujob.errors import BadRequest, BadSpec
from tpujob.web import deployed
from tpujob.web.security.middleware import SecurityMiddleware

LAB = """
name: lab
backend: https://tpujob-123456789.europe-west4.run.app
project: my-lab-4711
zones: [europe-west4-a]
buckets: {europe-west4: gs://my-lab-europe}
store: firestore
"""
TOKEN = "0123456789abcdef" * 4


SIGN_IN = """
sign_in:
  client_id: 1234-lab.apps.googleusercontent.com
  client_secret: GOCSPX-of-a-desktop-client
"""
URL = "https://tpujob-123456789.europe-west4.run.app"
TICK = "tpujob-tick@my-lab-4711.iam.gserviceaccount.com"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Write a file as a secret is mounted."""
    (tmp_path / "context.yaml").write_text(LAB + SIGN_IN)
    return tmp_path / "context.yaml"


def test_the_settings_of_the_backend_are_those_of_its_file(tmp_path: Path, file: Path) -> None:
    settings, stored = deployed.prepared(tmp_path / "state", file)
    assert settings.context == "lab"
    lab = context.current(settings)
    assert (lab.project, lab.store) == ("my-lab-4711", "firestore")
    assert lab.backend == "", "it is that backend itself"
    assert stored.sign_in.client_id == "1234-lab.apps.googleusercontent.com"
    assert deployed.prepared(tmp_path / "state", file) == (settings, stored)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LAB.replace("firestore", "sqlite"), "would be lost"),
        (None, "no such file"),
        ("name: lab\nprojct: x\n", "projct"),
        (LAB + "door: open\n", "allowed: iam, iap, public"),
        (LAB + "sign_in: {client_id: me}\n", "OAuth client's id"),
        (LAB + "sign_in: {token: x}\n", "token"),
        (LAB + "sign_in: {iap_audience: /projects/1/iap_web/x}\n", "services/NAME"),
    ],
    ids=["sqlite", "none", "typing error", "door", "client", "key", "audience"],
)
def test_invalid_settings_are_reported_before_anything_listens(
    tmp_path: Path, file: Path, text: str | None, message: str
) -> None:
    file.unlink() if text is None else file.write_text(text)
    with pytest.raises((BadRequest, BadSpec), match=message):
        deployed.prepared(tmp_path / "state", file)


@pytest.mark.parametrize(
    ("line", "words", "message"),
    [
        ("", [], "--url is missing"),
        ("door: iap", ["--url", URL], "needs sign_in.iap_audience"),
        ("", ["--url", URL, "--door", "iap"], "needs sign_in.iap_audience"),
        ("", ["--url", URL, "--tick-account", TICK], "only for Cloud Run"),
        ("", ["--url", "tpujob.example.org"], "names no host"),
    ],
)
def test_a_door_that_would_let_in_nobody_or_anybody_is_refused(
    tmp_path: Path,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    line: str,
    words: list[str],
    message: str,
) -> None:
    monkeypatch.delenv("K_SERVICE", raising=False)
    file.write_text(f"{LAB}{line}{SIGN_IN}")
    with pytest.raises(SystemExit, match=message):
        deployed.main(
            ["--context-file", str(file), "--state", str(tmp_path / "state"), "--port", "0", *words]
        )


def test_behind_iap_the_scheduler_needs_a_service_of_its_own(tmp_path: Path, file: Path) -> None:
    audience = "/projects/1/locations/europe-west4/services/tpujob"
    file.write_text(f"{LAB}door: iap{SIGN_IN}  iap_audience: {audience}\n")
    settings, lab = deployed.prepared(tmp_path / "state", file)
    with pytest.raises(BadRequest, match="IAP admits only people"):
        deployed.policy_of(settings, lab, [URL], tick_account=TICK)
    on_cloud_run = replace(settings, service="tpujob-ticks")
    policy = deployed.policy_of(on_cloud_run, lab, [URL], door="iam", tick_account=TICK)
    assert (policy.kind, policy.tick_account) == ("iam", TICK)


def test_audiences_are_clients_and_names_of_the_lab(tmp_path: Path, file: Path) -> None:
    settings, lab = deployed.prepared(tmp_path / "state", file)
    policy = deployed.policy_of(settings, lab, [f"{URL}/"])
    assert (policy.kind, policy.urls) == ("iam", {URL})
    assert policy.clients == {"1234-lab.apps.googleusercontent.com"}
    file.write_text(f"{LAB}{SIGN_IN}  gcloud: true\n")
    _, lab = deployed.prepared(tmp_path / "state", file)
    assert len(deployed.policy_of(settings, lab, [URL]).clients) == 2


# Under which names it answers ----------------------------------------------------------------------------------------

NAMED = "tpujob-123456789.europe-west4.run.app"
HASHED = "tpujob-yuquaflafa-ez.a.run.app"


OTHERS = (
    "",
    "tpujob-otherhashx-ez.a.run.app",  # the same name in another project
    "other-yuquaflafa-ez.a.run.app",  # another service of the project
    "tpujob-123456789.us-central1.run.app",
    f"tag---{HASHED}",
    f"{HASHED}.evil.example",
    "a.run.app",
    "localhost",
    "127.0.0.1:8080",
    f"{HASHED}:443@evil.example",
    f"{HASHED}:evil",
    f"[{HASHED}]",
)


def test_a_service_of_cloud_run_answers_under_both_of_its_names_and_no_other() -> None:
    hosts = deployed.hosts_of([f"https://{NAMED}", f"https://{HASHED}"])
    app = SecurityMiddleware(JSONResponse({}), authenticator=TokenDoor(TOKEN, ADA), hosts=hosts)

    def status(*headers: tuple[str, str]) -> int:
        bearer = ("authorization", f"Bearer {TOKEN}")
        return call_app(app, "GET", "/v1/jobs", [bearer, *headers])[0]

    for host in (NAMED, HASHED, f"{HASHED}:443", HASHED.upper(), f"{NAMED.title()}:443"):
        assert status(("host", host), ("x-serverless-authorization", "Bearer x.y.z")) == 200, host
    for host in OTHERS:
        assert status(("host", host)) == 400, host
    assert status(("host", HASHED), ("host", "evil.example")) == 400
    assert status(("x-forwarded-host", HASHED), ("host", "evil.example")) == 400
    assert status() == 400


@pytest.mark.parametrize("url", ["tpujob.example.org", "", "https://", "/v1"])
def test_a_url_without_a_host_is_refused(url: str) -> None:
    """Such a URL would let in requests that name no host."""
    with pytest.raises(BadRequest, match="names no host"):
        deployed.hosts_of(["https://tpujob.example.org", url])


@pytest.mark.parametrize(
    ("urls", "only_tls"),
    [
        (["https://tpujob.example.org", f"https://{HASHED}"], True),
        (["https://login.example.org:8443"], False),
        (["https://tpujob.example.org", "http://127.0.0.1:8080"], False),
        ([], False),
    ],
)
def test_browsers_use_tls_alone_at_a_name_of_its_own(urls: list[str], only_tls: bool) -> None:
    expected = [("strict-transport-security", "max-age=31536000")] if only_tls else []
    assert deployed.headers_of(urls) == expected
