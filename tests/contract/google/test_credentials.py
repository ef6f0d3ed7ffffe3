"""Credentials that are not there or have expired: every adapter says what to run, and concludes nothing else."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.contract.slices.tpu_slices import KEY, SLICE
from tpujob.adapters.cloud_tpu import CloudTpuSlices
from tpujob.adapters.gcs import GcsBlobs
from tpujob.domain.observations import Unknown
from tpujob.errors import Refused, Transient

LOGIN = "gcloud auth application-default login"


@pytest.fixture(autouse=True)
def no_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "gcloud"))
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)


class _Expired(BaseHTTPRequestHandler):
    """Google's answer to a login that has run out."""

    def do_POST(self) -> None:
        body = (
            b'{"error": "invalid_grant", "error_description": "Token has been expired or revoked."}'
        )
        self.send_response(400)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def expired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The account of a service whose tokens are not renewed any more."""
    server = HTTPServer(("127.0.0.1", 0), _Expired)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    account = {
        "type": "service_account",
        "project_id": "p",
        "private_key_id": "k",
        "private_key": key.decode(),
        "client_email": "jobs@p.iam.gserviceaccount.com",
        "token_uri": f"http://127.0.0.1:{server.server_port}/token",
    }
    (tmp_path / "account.json").write_text(json.dumps(account))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "account.json"))
    for proxy in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(proxy, raising=False)
        monkeypatch.delenv(proxy.upper(), raising=False)
    yield
    server.shutdown()
    thread.join()
    server.server_close()


def test_without_credentials_nothing_is_known_of_a_slice() -> None:
    slices = CloudTpuSlices("p")
    seen = slices.look(SLICE, timeout=5)
    assert isinstance(seen, Unknown)
    assert LOGIN in seen.error
    for act in (
        lambda: slices.create(SLICE, job_id="000007", public_key=KEY, timeout=5),
        lambda: slices.delete(SLICE, timeout=5),
        lambda: slices.list_all(["us-central2-b"], timeout=5),
    ):
        with pytest.raises(Transient, match=LOGIN):
            act()


def test_without_credentials_the_storage_says_what_to_run() -> None:
    blobs = GcsBlobs("p")
    for act in (
        lambda: blobs.list("gs://a-bucket/", timeout=5),
        lambda: blobs.place("gs://a-bucket", timeout=5),
        lambda: blobs.put("gs://a-bucket/a", b"", timeout=5),
    ):
        with pytest.raises(Refused) as refused:
            act()
        assert (refused.value.cause, LOGIN in refused.value.hint) == ("PERMISSION", True)


@pytest.mark.usefixtures("expired")
def test_expired_credentials_say_so_and_what_to_run() -> None:
    blobs = GcsBlobs("p")
    with pytest.raises(Refused, match="Token has been expired or revoked") as refused:
        blobs.list("gs://a-bucket/", timeout=10)
    assert LOGIN in refused.value.hint
    blobs.close()
