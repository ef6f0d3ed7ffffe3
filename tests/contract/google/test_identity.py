"""Application Default Credentials, with a real key and a real token server: found, fresh, refused, out of reach."""

import json
from pathlib import Path

import pytest
from google.oauth2.credentials import Credentials

from tests.support import google_server as g
from tests.support.google_server import Error, GoogleServer
from tpujob.adapters.google import identity as google_identity
from tpujob.adapters.google.rest import GoogleRest
from tpujob.doctor.access import Identity, NoIdentity
from tpujob.doctor.findings import NotSeen
from tpujob.errors import Transient


def test_a_key_is_found_and_works(file: Path) -> None:
    credentials, identity = google_identity.find()
    assert identity == Identity(g.ACCOUNT, "service account", key_file=True)
    assert credentials.token == "a-token"


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (400, {"error": "invalid_grant", "error_description": "Account deleted"}),
        (401, {"error": "unauthorized_client"}),
    ],
)
def test_a_refused_key_is_no_identity(
    file: Path, tokens: GoogleServer, status: int, answer: dict[str, str]
) -> None:
    tokens.answers["token"] = Error(status, answer)
    _, identity = google_identity.find()
    assert isinstance(identity, NoIdentity)
    assert answer["error"] in identity.why


def test_an_absent_token_server_says_nothing_of_the_key(file: Path, tokens: GoogleServer) -> None:
    key = json.loads(file.read_text()) | {"token_uri": "http://127.0.0.1:9/token"}
    file.write_text(json.dumps(key))
    _, identity = google_identity.find()
    assert isinstance(identity, NotSeen)
    assert "cannot be reached" in identity.why


@pytest.mark.parametrize("text", ["", '{"type": "service_account"}', '{"type": "potato"}'])
def test_an_invalid_credentials_file_is_reported(file: Path, text: str) -> None:
    file.write_text(text)
    credentials, identity = google_identity.find()
    assert credentials is None
    assert isinstance(identity, NoIdentity)
    assert identity.why.startswith("the credentials cannot be read: ")


def test_missing_credentials_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    assert google_identity.find() == (
        None,
        NoIdentity("this machine has no credentials for Google Cloud"),
    )


def test_calls_carry_the_token(file: Path, tokens: GoogleServer) -> None:
    """Tokens of a user come with the project that is charged; a service account has one."""
    tokens.answers["host/v1/x"] = {"ok": True}
    account, _ = google_identity.find()
    user = Credentials("a-token")
    for credentials, counted_for in ((account, None), (user, g.PROJECT)):
        rest = GoogleRest(g.PROJECT, credentials, endpoint=tokens.url)
        assert rest.get("host", "v1/x") == {"ok": True}
        rest.close()
        headers = {name.lower(): value for name, value in tokens.asked[-1].headers.items()}
        assert headers["authorization"] == "Bearer a-token"
        assert headers.get("x-goog-user-project") == counted_for


def test_an_expired_token_is_renewed_or_reported(file: Path, tokens: GoogleServer) -> None:
    tokens.answers["host/v1/x"] = g.EXPIRED
    credentials, _ = google_identity.find()
    rest = GoogleRest(g.PROJECT, credentials, endpoint=tokens.url)
    before = tokens.paths().count("token")
    with pytest.raises(Transient, match="the credentials are refused") as caught:
        rest.get("host", "v1/x")
    assert caught.value.hint == "gcloud auth application-default login"
    assert tokens.paths().count("token") > before
    rest.close()
