"""`tpujob doctor --probe` as it is typed: it asks, it is killed in the middle, and the next command cleans up."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.local_stack import PATIENCE, LocalStack

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    made = LocalStack(tmp_path_factory.mktemp("probe"))
    made.run("up")
    yield made
    made.down()


def slices(local: LocalStack) -> list[str]:
    return [one["name"] for one in local.json("emulator", "status")["slices"]]


def started(local: LocalStack, to: str, *, ready: bool = False) -> subprocess.Popen[str]:
    """A run whose slice is asked for, or there."""
    probing = local.popen("doctor", "--probe", "--yes", "--to", to)
    seen = "10-create.json" if ready else "09-closed-zone.json"
    until(lambda: (local.folder / to / seen).exists(), probing)
    until(lambda: len(slices(local)) == 1, probing)
    return probing


def until(holds: Callable[[], bool], probing: subprocess.Popen[str]) -> None:
    ends = time.monotonic() + PATIENCE
    while not holds():
        assert probing.poll() is None, probing.communicate()
        assert time.monotonic() < ends
        time.sleep(0.05)


def records(local: LocalStack) -> list[Path]:
    return list((local.state / "probes").glob("*.json"))


def test_it_asks_and_spends_nothing_when_there_is_nobody_to_answer(local: LocalStack) -> None:
    said = local.run("doctor", "--probe", "--to", "never", code=2)
    assert "one spot slice v5litepod-1 in" in said
    assert "cap $1.00" in said
    assert "there is nobody to ask" in said
    assert not (local.folder / "never").exists()
    assert slices(local) == []


def test_kill_9_in_the_middle_is_cleaned_up_by_the_next_run(local: LocalStack) -> None:
    probing = started(local, "killed", ready=True)
    probing.kill()
    probing.communicate()
    (left,) = slices(local)
    assert len(records(local)) == 1

    again = local.popen("doctor", "--probe", "--yes", "--to", "second")
    out, err = again.communicate(timeout=PATIENCE)
    assert again.returncode == 0, out + err
    assert f"has left {left} in us-central1-a: removing it first" in err
    assert f"{left} is gone" in err
    assert "0 differ" in out
    assert "Attach this folder to a report" in out
    assert slices(local) == []
    assert records(local) == []
    summary = json.loads((local.folder / "second" / "summary.json").read_text())
    assert summary["left"] == 0
    assert summary["usd"] < 0.05


def test_kill_9_in_the_middle_is_shown_by_leaks_and_removed_by_sweep(local: LocalStack) -> None:
    probing = started(local, "swept")
    shown = local.run("leaks", code=6)
    assert "may have left" not in shown, "a probe that runs has left nothing"
    probing.kill()
    probing.communicate()
    (left,) = slices(local)
    assert f"a probe that was cut off may have left {left}" in local.run("leaks", code=6)
    local.run("sweep", "--dry-run")
    assert slices(local) == [left]
    local.run("sweep")
    assert slices(local) == []
    assert records(local) == []
    assert "Nothing is left" in local.run("leaks")


def test_a_signal_in_the_middle_leaves_nothing(local: LocalStack) -> None:
    probing = started(local, "ended")
    probing.send_signal(signal.SIGTERM)
    out, err = probing.communicate(timeout=PATIENCE)
    assert probing.returncode == 130, out + err
    assert "Traceback" not in err
    assert slices(local) == []
    assert records(local) == []
