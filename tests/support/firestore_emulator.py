"""Google's own Firestore emulator for tests: found where the Cloud SDK is, started once for a whole test run.

`python -m tests.support.firestore_emulator FOLDER JAR` is its keeper: it runs the emulator for as long as somebody
uses the folder, and ends it when the last of them is gone, however they ended: a lock on a file does not outlive its
holder.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.ports import reserved

PARTS = "platform/cloud-firestore-emulator/cloud-firestore-emulator.jar"
SDK = Path("/usr/lib/google-cloud-sdk")
CLASS = "com.google.cloud.datastore.emulator.firestore.CloudFirestore"
#: for a start in a second, and little memory
JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
PATIENCE = 120.0  #: seconds; a start takes one or two on a machine that is free

MISSING = (
    "NOT TESTED AGAINST FIRESTORE: its emulator is not here. Install Java and "
    "`gcloud components install cloud-firestore-emulator` (Debian: google-cloud-cli-firestore-emulator), "
    "or name the file in TPUJOB_FIRESTORE_JAR"
)


def jar() -> Path | None:
    """The emulator, if it can be run here."""
    if not shutil.which("java"):
        return None
    given = os.environ.get("TPUJOB_FIRESTORE_JAR")
    places = [Path(given)] if given else [SDK / PARTS, *_gcloud()]
    return next((place for place in places if place.is_file()), None)


def _gcloud() -> Iterator[Path]:
    """Beside the command, wherever that was installed."""
    if found := shutil.which("gcloud"):
        yield Path(found).resolve().parents[1] / PARTS


@contextlib.contextmanager
def emulator(folder: Path, jar: Path) -> Iterator[str]:
    """Host and port of the emulator that all users of `folder` share. It lives on while any of them does."""
    with (folder / "users").open("w") as users:
        with (folder / "starting").open("w") as starting:
            fcntl.flock(starting, fcntl.LOCK_EX)
            fcntl.flock(users, fcntl.LOCK_SH)  # waits for one that is just being ended
            ready = folder / "ready.json"
            if not ready.exists():
                _keeper(folder, jar)
        yield json.loads(ready.read_text())["endpoint"]


def _keeper(folder: Path, jar: Path) -> None:
    keeper = subprocess.Popen(
        [sys.executable, "-m", __name__, str(folder), str(jar)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,  # ends with its last user, not with the first one that is interrupted
        cwd=ROOT,
    )
    assert keeper.stdout
    said = keeper.stdout.readline().decode().strip()
    keeper.stdout.close()
    log = folder / "emulator.log"
    assert said == "ready", f"the emulator did not start: {log.read_text()[-2000:]}"
    keeper.returncode = 0  # not ours to wait for: it outlives us if others use it


def keep(folder: Path, jar: Path) -> None:
    with reserved() as port:
        _keep(folder, jar, port)


def _keep(folder: Path, jar: Path, port: int) -> None:
    command = ["java", *JVM, "-cp", str(jar), CLASS, "start", "--host=127.0.0.1", f"--port={port}"]
    with (folder / "emulator.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    ready = folder / "ready.json"
    try:
        _until(lambda: _answers(port), process)
        ready.write_text(json.dumps({"endpoint": f"127.0.0.1:{port}"}))
        print("ready", flush=True)
        with (folder / "users").open("w") as users:
            fcntl.flock(users, fcntl.LOCK_EX)
            ready.unlink(missing_ok=True)
    finally:
        process.kill()
        process.wait()


def _until(holds: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    ends = time.monotonic() + PATIENCE
    while not holds():
        if process.poll() is not None or time.monotonic() > ends:
            raise TimeoutError("the emulator does not answer")
        time.sleep(0.05)


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@pytest.fixture(scope="session")
def firestore_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Google's emulator, one for all workers of a test run."""
    found = jar()
    if found is None:
        pytest.skip(MISSING)
    folder = _shared(tmp_path_factory)
    folder.mkdir(exist_ok=True)
    with emulator(folder, found) as endpoint:
        yield endpoint


def _shared(factory: pytest.TempPathFactory) -> Path:
    """Each worker has a folder of its own below that of the whole run."""
    own = factory.getbasetemp()
    return (own.parent if own.name.startswith("popen-") else own) / "firestore"


@pytest.fixture
def firestore_place(firestore_endpoint: str) -> str:
    """An empty database for one test."""
    return f"{firestore_endpoint}/test-{uuid.uuid4().hex[:12]}"


if __name__ == "__main__":
    keep(Path(sys.argv[1]), Path(sys.argv[2]))
