"""Slices with hosts: the emulator's own process, a real host farm, and the adapter between them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.emulator.storage_rig import ask
from tests.support.farm_rig import FarmProcess, refuses
from tests.support.tpu_rig import QUICK, ZONE, Cloud, node_state, queued, until
from tpujob.adapters.cloud_tpu import CloudTpuSlices
from tpujob.domain.model import Slice
from tpujob.domain.observations import Absent, Present, SliceState
from tpujob.emulator.client import EmulatorClient
from tpujob.emulator.driver import FarmClient

SLICE = Slice("tj-000001-1", 1, "v4-16", ZONE, "spot", "tpu-ubuntu2204-base", None, 0.0)


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[FarmProcess]:
    made = FarmProcess(tmp_path)
    yield made
    made.stop()


class EmulatorProcess:
    def __init__(self, folder: Path, farm_ready: Path) -> None:
        self.ready_file = folder / "emulator.ready"
        self.ready_file.unlink(missing_ok=True)
        options = {"ready": self.ready_file, "state": folder / "emulator", "farm-ready": farm_ready}
        arguments = [part for key, value in options.items() for part in (f"--{key}", str(value))]
        self.process = subprocess.Popen([sys.executable, "-m", "tpujob.emulator", *arguments])
        until(lambda: self.ready_file.exists() or self.process.poll() is not None, "it is up", 120)
        assert self.ready_file.exists(), f"the emulator ended with {self.process.returncode}"
        self.ready: dict[str, Any] = json.loads(self.ready_file.read_text())
        self.client = EmulatorClient.from_ready(self.ready_file)
        self.client.do("settings", accept=0.01, create=0.05, delete=0.01, suspend=0.01)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)


@pytest.fixture
def emulator(tmp_path: Path, farm: FarmProcess) -> Iterator[EmulatorProcess]:
    made = EmulatorProcess(tmp_path, tmp_path / "farm.ready")
    yield made
    if made.process.poll() is None:
        made.stop()


def ready_slice(slices: CloudTpuSlices, farm: FarmProcess) -> Present:
    slices.create(SLICE, job_id="000001", public_key=farm.public_key, timeout=20)

    def there() -> Present | None:
        seen = slices.look(SLICE, timeout=20)
        ready = isinstance(seen, Present) and seen.state is SliceState.READY
        return seen if ready else None

    found = until(there, "READY")
    assert found is not None
    return found


@pytest.mark.slow
def test_a_slice_lives_on_its_hosts_and_dies_with_them(
    emulator: EmulatorProcess, farm: FarmProcess
) -> None:
    emulator.client.do("break-host", physical=f"{ZONE}-h001", fault="nan:step=3")
    slices = CloudTpuSlices("p", endpoint=emulator.ready["tpu"])
    seen = ready_slice(slices, farm)
    first, second = (endpoint.address for endpoint in seen.endpoints)
    said = farm.run(first, "echo $STORAGE_EMULATOR_HOST $TPUJOB_FAULT")
    assert said == (0, f"{emulator.ready['storage']}\n".encode(), b"")
    assert farm.run(second, "echo $TPUJOB_FAULT")[1] == b"nan:step=3\n", "it landed on a bad host"
    shown = emulator.client.status()["slices"][0]["hosts"]
    assert [h["physical"] for h in shown] == [f"{ZONE}-h000", f"{ZONE}-h001"]

    emulator.client.do("storage-error", status=429, method="LIST")
    storage = emulator.ready["storage"]
    asked = [ask(storage, "GET", "/storage/v1/b?project=p")[0] for _ in range(2)]
    assert asked == [429, 200], "the control interface and the storage do not share their faults"

    emulator.client.do("preempt", target="1", notice_s=0.2)
    until(lambda: "PREEMPTED" in str(slices.look(SLICE, timeout=20)).upper(), "PREEMPTED")
    until(lambda: refuses(first, farm.ssh_port), "the hosts are down")

    slices.delete(SLICE, timeout=20)
    until(lambda: slices.look(SLICE, timeout=20) == Absent(), "gone")
    assert not farm.has(SLICE.name), "a slice that is gone has no hosts"
    slices.close()
    assert emulator.stop() == 0


@pytest.mark.slow
def test_a_new_emulator_takes_down_what_an_earlier_one_left(
    tmp_path: Path, emulator: EmulatorProcess, farm: FarmProcess
) -> None:
    slices = CloudTpuSlices("p", endpoint=emulator.ready["tpu"])
    ready_slice(slices, farm)
    slices.close()
    emulator.process.kill()
    emulator.process.wait(timeout=60)
    assert farm.has(SLICE.name), "the farm is another process and runs on"
    again = EmulatorProcess(tmp_path, tmp_path / "farm.ready")
    assert not farm.has(SLICE.name)
    assert again.stop() == 0


def test_a_node_waits_for_the_farm(tmp_path: Path) -> None:
    """No farm yet: the node stays CREATING and is READY once there is one; deleting needs none."""
    cloud = Cloud(FarmClient(tmp_path / "farm.ready"), QUICK)
    client = cloud.client()
    client.create_queued_resource(queued("q", "v4-8"))
    until(lambda: any("does not run" in text for _, text in cloud.world.history), "a first try")
    assert node_state(client, "q") == "CREATING"
    farm = FarmProcess(tmp_path)
    until(lambda: node_state(client, "q") == "READY", "READY")
    farm.stop()
    cloud.stop()
