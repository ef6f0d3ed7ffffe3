"""Google's Firestore emulator for tests, from the Cloud SDK: one for each process of a test run."""

import contextlib
import os
import shutil
import socket
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import gcloud
from tests.support.ports import reserved
from tests.support.waiting import until

PARTS = "platform/cloud-firestore-emulator/cloud-firestore-emulator.jar"
SDK = Path("/usr/lib/google-cloud-sdk")
CLASS = "com.google.cloud.datastore.emulator.firestore.CloudFirestore"
#: options for a start in a second, and little memory
JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
PATIENCE = 120.0  #: seconds; a start takes one or two on a machine that is free
#: runs the emulator until its input ends, which it does with this process, however that ends
KEEPER = '"$@" < /dev/null & read _; kill -9 $!'

MISSING = (
    "NOT TESTED AGAINST FIRESTORE: its emulator is not here. Install Java and "
    "`gcloud components install cloud-firestore-emulator` (Debian: google-cloud-cli-firestore-emulator), "
    "or name the file in TPUJOB_FIRESTORE_JAR"
)


def jar() -> Path | None:
    """Return the emulator, if this machine can run it."""
    if not shutil.which("java"):
        return None
    path = os.environ.get("TPUJOB_FIRESTORE_JAR")
    places = [Path(path)] if path else [SDK / PARTS, gcloud.folder() / PARTS]
    return next((place for place in places if place.is_file()), None)


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@pytest.fixture(scope="session")
def firestore_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of Google's emulator, one for each process of a test run."""
    emulator_jar = jar()
    if emulator_jar is None:
        pytest.skip(MISSING)
    log = tmp_path_factory.mktemp("firestore") / "log"
    with reserved() as port, log.open("w") as out:
        address = ["--host=127.0.0.1", f"--port={port}"]
        java = ["java", *JVM, "-cp", str(emulator_jar), CLASS, "start", *address]
        keeper = subprocess.Popen(
            ["sh", "-c", KEEPER, "sh", *java], stdin=subprocess.PIPE, stdout=out, stderr=out
        )
        try:
            until(lambda: _answers(port), f"Firestore's emulator answers: {log}", PATIENCE)
            yield f"127.0.0.1:{port}"
        finally:
            keeper.communicate()


@pytest.fixture
def firestore_place(firestore_endpoint: str) -> str:
    """Return an empty database for one test."""
    return f"{firestore_endpoint}/test-{uuid.uuid4().hex[:12]}"
