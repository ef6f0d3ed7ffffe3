"""gsutil, of Google's Cloud SDK, finds the emulated Cloud Storage as good as the real one.

It speaks TLS only, so an edge with a certificate of its own stands before the emulator.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.contract.emulator.storage_rig import ask, running
from tests.support.tls import https

pytestmark = pytest.mark.skipif(
    shutil.which("gsutil") is None, reason="NOT TESTED: gsutil of the Cloud SDK is not installed"
)

BUCKET = "gs://shed-of-gsutil"


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
    with running(tmp_path / "storage") as server, https(server.url, tmp_path) as (edge, _):
        port = urlsplit(edge).port
        assert port
        yield Gsutil(tmp_path, server.url, port)


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
