"""A service account's key, and the server that gives tokens for it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.support import google_server as g
from tests.support.google_server import GoogleServer

TOKEN = {"access_token": "a-token", "expires_in": 3600, "token_type": "Bearer"}


@pytest.fixture(scope="session")
def private_key() -> str:
    made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return made.private_bytes(pem, pkcs8, serialization.NoEncryption()).decode()


@pytest.fixture
def tokens() -> Iterator[GoogleServer]:
    with GoogleServer({"token": TOKEN}) as server:
        yield server


@pytest.fixture
def file(
    tmp_path: Path, private_key: str, tokens: GoogleServer, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The key, where Google's library looks first."""
    file = tmp_path / "key.json"
    account = {"client_email": g.ACCOUNT, "project_id": g.PROJECT, "private_key_id": "1"}
    where = {"private_key": private_key, "token_uri": f"{tokens.url}/token"}
    file.write_text(json.dumps({"type": "service_account", **account, **where}))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return file
