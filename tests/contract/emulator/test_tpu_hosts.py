"""Slices with hosts: the emulator's own process, and a real host farm that outlives it or comes later."""

from pathlib import Path

import pytest

from tests.contract.emulator.storage_rig import ask
from tests.support.farm_rig import EmulatorProcess, FarmProcess
from tests.support.records import a_slice
from tests.support.tpu_rig import QUICK, Cloud, node_state, queued, until
from tests.support.waiting import LONG
from tpujob.adapters.cloud_tpu import CloudTpuSlices
from tpujob.domain.observations import Present, SliceState
from tpujob.emulator.driver import FarmClient

SLICE = a_slice()


@pytest.mark.slow
def test_a_new_emulator_takes_down_what_an_earlier_one_left(tmp_path: Path) -> None:
    farm, first = FarmProcess(tmp_path), EmulatorProcess(tmp_path)
    first.client.do("settings", accept=0.01, create=0.05)
    slices = CloudTpuSlices("p", endpoint=first.ready["tpu"])
    slices.create(SLICE, job_id="000001", public_key=farm.public_key, timeout=LONG)

    def ready() -> Present | None:
        seen = slices.look(SLICE, timeout=LONG)
        return seen if isinstance(seen, Present) and seen.state is SliceState.READY else None

    seen = until(ready, "READY")
    assert seen
    answer = farm.run(seen.endpoints[0].address, "echo $STORAGE_EMULATOR_HOST")
    assert answer == (0, f"{first.ready['storage']}\n".encode(), b"")
    slices.close()
    first.client.do("storage-error", status=429, method="LIST")
    statuses = [ask(first.ready["storage"], "GET", "/storage/v1/b?project=p")[0] for _ in range(2)]
    assert statuses == [429, 200], "the control interface and the storage do not share their faults"

    first.process.kill()
    first.process.wait(timeout=60)
    assert farm.has(SLICE.name), "the farm is another process and runs on"
    again = EmulatorProcess(tmp_path)
    assert not farm.has(SLICE.name)
    assert again.stop() == farm.stop() == 0


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
