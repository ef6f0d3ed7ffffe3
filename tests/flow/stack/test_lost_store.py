"""A file of jobs that is emptied or moved away, on a stack of its own: refused, put back, given up."""

import contextlib
import json
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.local_stack import LocalStack

OUTPUTS = "mkdir -p out && ls out && echo ran >> out/{0} && ls out && {1}"


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalStack]:
    local = LocalStack(tmp_path)
    del local.env["TPUJOB_STATE"]
    local.env["XDG_STATE_HOME"] = str(tmp_path)
    local.state = tmp_path / "tpujob"
    yield local
    local.down()


def slices(local: LocalStack) -> list[str]:
    return [slice["name"] for slice in local.json("emulator", "status")["slices"]]


def stop_backend(local: LocalStack) -> None:
    """Stop the backend alone; the emulated cloud and its slices continue, as Google's do."""
    process = local.ready("backend")["pid"]
    os.kill(process, signal.SIGTERM)
    with contextlib.suppress(ProcessLookupError):
        while True:
            os.kill(process, 0)
            time.sleep(0.05)


def create(local: LocalStack, name: str, then: str) -> str:
    return local.create(name, OUTPUTS.format(name, then), outputs=["out"], tpu={"type": "v4-8"})


@pytest.mark.slow
def test_a_lost_store_is_refused_and_mixes_no_data(local: LocalStack, tmp_path: Path) -> None:
    ended = create(local, "first", "true")
    local.until(ended, "succeeded")
    running = create(local, "going", "sleep 3000")
    (old,) = [view["name"] for view in local.until(running, "running")["slices"]]
    stop_backend(local)
    (db,), backup = local.state.glob("jobs.db*"), tmp_path / "backup.db"
    db.replace(backup)
    for _ in range(2):
        message = local.run("list", code=69)
        assert f"{db} is missing or empty" in message
    db.write_bytes(b"")
    message = local.run("create", str(tmp_path / "first.yaml"), code=69)
    assert f"{db} is missing or empty" in message
    assert slices(local) == [old], "nothing is deleted before a user has chosen"
    db.write_bytes(backup.read_bytes())
    local.run("up")
    assert local.job(running)["state"] == "running"
    assert local.job(ended)["state"] == "succeeded"
    stop_backend(local)
    os.truncate(db, 0)
    message = local.run("list", code=69)
    assert slices(local) == [old]
    (identity,) = set(re.findall(r"--replace-store ([0-9a-f]{16})", message))
    local.run("up", "--replace-store", identity)
    assert local.json("list", "--all") == []
    other = create(local, "other", "test ! -e out/first")
    assert other == ended, "ids begin again"
    local.until(other, "succeeded")
    assert "of an earlier attempt" not in local.run("logs", other)
    new = local.create("new", "echo its own program", tpu={"type": "v4-8"})
    assert new == running, "the id of the job whose slice still runs"
    (slice,) = local.until(new, "succeeded")["slices"]
    assert slice["name"] != old
    assert "its own program" in local.run("logs", new)
    (unclaimed,) = json.loads(local.run("leaks", "--json", code=6))
    assert unclaimed["name"] == old, "the sweep deletes it when its grace is over"
