"""gsutil, of Google's Cloud SDK, finds the emulated Cloud Storage as good as the real one.

It speaks TLS only, so a relay with a certificate of its own stands before the emulator.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import os
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.contract.emulator.storage_rig import ask, running

pytestmark = [
    pytest.mark.skipif(
        shutil.which("gsutil") is None,
        reason="NOT TESTED: gsutil of the Cloud SDK is not installed",
    ),
]

BUCKET = "gs://shed-of-gsutil"


class Relay:
    """Takes TLS in, and passes it on in plain."""

    def __init__(self, certificate: Path, target: int) -> None:
        self._target, self.port = target, 0
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate)
        self._loop, self._end = asyncio.new_event_loop(), asyncio.Event()
        self._listens = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._listens.wait(30), "the relay does not listen"

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._carry, "127.0.0.1", 0, ssl=self._context)
        self.port = server.sockets[0].getsockname()[1]
        self._listens.set()
        await self._end.wait()
        server.close()

    async def _carry(self, client: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        server, request = await asyncio.open_connection("127.0.0.1", self._target)
        try:
            await asyncio.gather(_pump(client, request), _pump(server, answer))
        finally:  # the relay may stop first
            request.transport.abort()
            answer.transport.abort()


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(1 << 16):
            sink.write(data)
            await sink.drain()
    sink.close()
    with contextlib.suppress(OSError):
        await sink.wait_closed()


def certificate(path: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - day)
        .not_valid_after(now + day)
        .sign(key, hashes.SHA256())
    )
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    of_key = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    path.write_bytes(made.public_bytes(pem) + of_key)
    return path


class Gsutil:
    def __init__(self, home: Path, server: str, port: int) -> None:
        self.home, self.server = home, server
        (home / "boto").write_text(
            f"[Credentials]\ngs_json_host = 127.0.0.1\ngs_json_port = {port}\n"
            "[Boto]\nhttps_validate_certificates = False\n"
            f"[GSUtil]\nprefer_api = json\ndefault_project_id = lab\nstate_dir = {home}/state\n"
            "software_update_check_period = 0\n"
        )
        self._env = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "BOTO_CONFIG": str(home / "boto"),
            "CLOUDSDK_CONFIG": str(home / "sdk"),
            "CLOUDSDK_CORE_PASS_CREDENTIALS_TO_GSUTIL": "false",
            "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true",
        }

    def __call__(self, *words: str) -> str:
        done = subprocess.run(
            ["gsutil", *words],
            env=self._env,
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
        assert done.returncode == 0, f"gsutil {' '.join(words)}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture
def gsutil(tmp_path: Path) -> Iterator[Gsutil]:
    with running(tmp_path / "storage") as server:
        relay = Relay(certificate(tmp_path / "relay.pem"), int(server.url.rpartition(":")[2]))
        try:
            yield Gsutil(tmp_path, server.url, relay.port)
        finally:
            relay.stop()


def test_gsutil_copies_lists_moves_and_removes(gsutil: Gsutil) -> None:
    small, large = gsutil.home / "small.txt", gsutil.home / "large.bin"
    small.write_text("hello")
    large.write_bytes(os.urandom(9_000_000))  # a resumable upload, as it is over 8 MiB
    back = gsutil.home / "back"
    back.mkdir()
    gsutil("mb", BUCKET)
    gsutil("cp", str(small), str(large), f"{BUCKET}/jobs/")
    gsutil("cp", f"{BUCKET}/jobs/*", str(back))
    assert (back / "small.txt").read_text() == "hello"
    assert (back / "large.bin").read_bytes() == large.read_bytes()
    gsutil("mv", f"{BUCKET}/jobs/small.txt", f"{BUCKET}/moved/s")
    listed = gsutil("ls", "-l", f"{BUCKET}/**")
    assert [line.split()[-1] for line in listed.splitlines()[:-1]] == [
        f"{BUCKET}/jobs/large.bin",
        f"{BUCKET}/moved/s",
    ], listed
    gsutil("rm", "-r", BUCKET)
    assert json.loads(ask(gsutil.server, "GET", "/storage/v1/b")[2])["items"] == []
