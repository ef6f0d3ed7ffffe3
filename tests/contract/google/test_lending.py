"""Tokens for a part of a bucket, from a real key and a server that exchanges tokens as Google's does."""

import json
from pathlib import Path
from urllib.parse import parse_qs, unquote

import pytest
from google.auth import downscoped

from tests.support.google_server import Error, GoogleServer
from tpujob.adapters.gcs import GcsLender
from tpujob.errors import Refused, Transient

FOLDER = "gs://my-lab-eu/u/ada/jobs/000042/"
LENT = {"access_token": "lent", "expires_in": 600, "token_type": "Bearer", "issued_token_type": "x"}


@pytest.fixture
def lender(file: Path, tokens: GoogleServer, monkeypatch: pytest.MonkeyPatch) -> GcsLender:
    del file
    tokens.answers["exchange"] = LENT
    monkeypatch.setattr(downscoped, "_STS_TOKEN_URL_PATTERN", f"{tokens.url}/exchange")
    return GcsLender()


def test_a_token_reaches_the_folder_of_the_job_and_writes_only_where_programs_save(
    lender: GcsLender, tokens: GoogleServer
) -> None:
    lent = lender.lend(FOLDER, [f"{FOLDER}outputs/"])
    assert lent.token == "lent"
    assert lent.expires_at is not None
    exchange = next(asked for asked in tokens.asked if asked.path == "exchange")
    form = exchange.body if isinstance(exchange.body, dict) else parse_qs(str(exchange.body))
    form = {key: value[0] if isinstance(value, list) else value for key, value in form.items()}
    assert form["subject_token"] == "a-token", "this process's own token"
    rules = json.loads(unquote(form["options"]))["accessBoundary"]["accessBoundaryRules"]
    for rule, role, prefix in zip(
        rules,
        ("roles/storage.objectViewer", "roles/storage.objectUser"),
        ("u/ada/jobs/000042/", "u/ada/jobs/000042/outputs/"),
        strict=True,
    ):
        assert rule["availableResource"].endswith("/buckets/my-lab-eu")
        assert rule["availablePermissions"] == [f"inRole:{role}"]
        condition = rule["availabilityCondition"]["expression"]
        assert f"'projects/_/buckets/my-lab-eu/objects/{prefix}'" in condition
        assert f"objectListPrefix', '').startsWith('{prefix}')" in condition


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "invalid_request", Refused),
        (403, "access_denied", Refused),
        (503, "server_error", Transient),
    ],
)
def test_a_refused_exchange_is_one_error(
    lender: GcsLender, tokens: GoogleServer, status: int, code: str, kind: type[Exception]
) -> None:
    tokens.answers["exchange"] = Error(status, {"error": code, "error_description": "not uniform"})
    with pytest.raises(kind, match=f"no token for {FOLDER}: Error code {code}: not uniform$"):
        lender.lend(FOLDER, [])


def test_an_emulated_storage_takes_no_token() -> None:
    lent = GcsLender("http://127.0.0.1:1").lend(FOLDER, [])
    assert (lent.token, lent.endpoint, lent.expires_at) == ("", "http://127.0.0.1:1", None)
