"""Injected faults on real hosts: the emulated API, a real host farm, programs that run there."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.farm_rig import FarmProcess, alive, process_state, refuses
from tests.support.tpu_rig import (
    PARENT,
    ZONE,
    Cloud,
    node_name,
    node_state,
    queued,
    queued_name,
    queued_state,
    until,
)
from tpujob.emulator.client import EmulatorClient
from tpujob.emulator.driver import FarmClient

METADATA = "http://$GCE_METADATA_HOST/computeMetadata/v1/instance"
ASK = f"""python3 -c '
import os, sys, urllib.request as u
q = u.Request(os.path.expandvars("{METADATA}/") + sys.argv[1], headers={{"Metadata-Flavor": "Google"}})
print(u.urlopen(q, timeout=5).read().decode())' """


class Rig:
    """A cloud on the farm; `up` makes a slice of two hosts."""

    def __init__(self, farm: FarmProcess) -> None:
        self.farm = farm
        self.cloud = Cloud(FarmClient(farm.state.parent / "farm.ready"))
        self.client = self.cloud.client()
        self.emulator = EmulatorClient(self.cloud.control().path)

    def up(self, id: str) -> list[str]:
        keys = {"ssh-keys": f"tpujob:{self.farm.public_key}"}
        self.client.create_queued_resource(queued(id, metadata=keys))
        until(lambda: queued_state(self.client, id) == "ACTIVE", "ACTIVE")
        endpoints = self.client.get_node(name=node_name(id)).network_endpoints
        return [endpoint.ip_address for endpoint in endpoints]

    def gone(self, id: str) -> None:
        self.client.delete_queued_resource({"name": queued_name(id), "force": True})
        until(lambda: not queued_state(self.client, id), "gone")

    def program(
        self, address: str, folder: Path, name: str, command: str, *, agent: str = ""
    ) -> int:
        """Start a process as an agent's program (or, with `agent`, as something else); returns its pid."""
        file = folder / name
        marked = "" if agent else "TPUJOB_OUT=/somewhere/1 "
        inner = f"echo $$ > {file}.tmp; mv {file}.tmp {file}; exec {command}"
        self.farm.run(
            address, f"{marked}setsid nohup sh -c '{inner}' > /dev/null 2>&1 < /dev/null &"
        )
        return int(until(lambda: file.exists() and file.read_text(), f"{name} runs"))

    def refuses(self, address: str) -> bool:
        return refuses(address, self.farm.ssh_port)

    def health(self, id: str) -> str:
        return self.client.get_node(name=node_name(id)).health.name


@pytest.fixture
def rig(farm: FarmProcess) -> Iterator[Rig]:
    made = Rig(farm)
    yield made
    for request in made.client.list_queued_resources(parent=PARENT):
        made.gone(request.name.rpartition("/")[2])
    made.cloud.stop()


def test_a_bad_machine_is_known_by_its_name_and_is_handed_out_again(rig: Rig) -> None:
    rig.emulator.do("break-host", physical=f"{ZONE}-h001", fault="nan:step=3,device=1")
    good, bad = rig.up("one")
    assert rig.farm.run(bad, "echo $TPUJOB_FAULT")[1] == b"nan:step=3,device=1\n"
    assert rig.farm.run(good, "echo $TPUJOB_FAULT")[1] == b"\n", "the other host got it too"
    names = [rig.farm.run(a, ASK + "attributes/physical-host")[1].decode() for a in (good, bad)]
    assert names == [f"{ZONE}-h000\n", f"{ZONE}-h001\n"]
    shown = rig.emulator.status()["slices"][0]["hosts"]
    assert [(h["physical"], h["fault"]) for h in shown] == [
        (f"{ZONE}-h000", ""),
        (f"{ZONE}-h001", "nan:step=3,device=1"),
    ]
    rig.up("two")
    rig.gone("one")
    _, again = rig.up("three")
    assert rig.farm.run(again, "echo $TPUJOB_FAULT")[1] == b"nan:step=3,device=1\n", (
        "given back before its replacement came, the bad machine is what one gets"
    )


def test_a_machine_goes_bad_and_good_under_a_slice(rig: Rig) -> None:
    """Running programs are left alone; programs that start from then on have the fault."""
    first, _ = rig.up("one")

    def fault() -> str:
        return rig.farm.run(first, "echo $TPUJOB_FAULT")[1].decode().strip()

    assert fault() == ""
    rig.emulator.do("break-host", physical=f"{ZONE}-h000", fault="exit:step=9,code=70")
    until(lambda: fault() == "exit:step=9,code=70", "the fault")
    rig.emulator.do("break-host", physical=f"{ZONE}-h000", mend=True)
    until(lambda: fault() == "", "mended")


def test_a_silent_host_is_dead_and_still_ready(rig: Rig, tmp_path: Path) -> None:
    lives, dies = rig.up("one")
    pid = rig.program(dies, tmp_path, "program", "sleep 1000")
    rig.emulator.do("silence", host=1)
    until(lambda: rig.refuses(dies) and not alive(pid), "silence")
    assert rig.farm.run(lives, "true")[0] == 0, "the other host was hit too"
    assert (node_state(rig.client, "one"), rig.health("one")) == ("READY", "HEALTHY")
    assert queued_state(rig.client, "one") == "ACTIVE"
    assert [h["silent"] for h in rig.emulator.status()["slices"][0]["hosts"]] == [False, True]
    rig.emulator.do("silence")
    until(lambda: rig.refuses(lives), "all of it is silent")
    assert node_state(rig.client, "one") == "READY"


def test_a_program_hangs_and_its_agent_does_not(rig: Rig, tmp_path: Path) -> None:
    _, address = rig.up("one")
    program = rig.program(address, tmp_path, "program", "sleep 1000")
    agent = rig.program(address, tmp_path, "agent", "sleep 1000", agent="yes")
    rig.emulator.do("hang", host=1)
    until(lambda: process_state(program) == "T", "the program is stopped")
    assert process_state(agent) == "S"

    def hung() -> list[bool]:
        return [h["hung"] for h in rig.emulator.status()["slices"][0]["hosts"]]

    until(lambda: hung() == [False, True], "status shows the hung host")
    assert rig.farm.run(address, "true")[0] == 0, "the host itself must answer"
    rig.emulator.do("hang", host=1, off=True)
    until(lambda: process_state(program) == "S", "it goes on")
    until(lambda: hung() == [False, False], "status shows no hung host")
    rig.emulator.do("hang", host=0)
    until(
        lambda: "no program runs" in str(rig.emulator.status()["recent"]), "it says that none runs"
    )


def test_out_of_memory_kills_the_biggest_process(rig: Rig, tmp_path: Path) -> None:
    address, _ = rig.up("one")
    hog = 'python3 -c "import time; big = bytearray(50_000_000); time.sleep(1000)"'
    small = rig.program(address, tmp_path, "small", "sleep 1000")
    big = rig.program(address, tmp_path, "big", hog)
    until(lambda: int(Path(f"/proc/{big}/statm").read_text().split()[1]) > 12_000, "it is big")
    agent = rig.program(address, tmp_path, "agent", hog, agent="yes")
    count = "cat $TPUJOB_VMSTAT"  # where the agent there looks for what the kernel has killed
    assert rig.farm.run(address, count)[1] == b"oom_kill 0\n"
    rig.emulator.do("oom", host=0)
    until(lambda: not alive(big), "killed")
    assert alive(small)
    assert alive(agent), "only the program's processes are meant"
    assert rig.farm.run(address, count)[1] == b"oom_kill 1\n"


def test_hosts_restart_under_maintenance(rig: Rig, tmp_path: Path) -> None:
    """Without a process, with their disks and keys; the API says REPAIRING in between."""
    address, _ = rig.up("one")
    pid = rig.program(address, tmp_path, "program", "sleep 1000")
    rig.farm.run(address, "echo kept > ~/note")
    key = _host_key(rig.farm, address)
    rig.emulator.do("maintain", restart=True, window_s=4, notice_s=3)
    assert rig.health("one") == "UNHEALTHY_MAINTENANCE"
    until(lambda: node_state(rig.client, "one") == "REPAIRING", "REPAIRING")
    assert queued_state(rig.client, "one") == "ACTIVE", "the slice is still there"
    until(lambda: node_state(rig.client, "one") == "READY", "READY again")
    assert not alive(pid)
    assert rig.farm.run(address, "cat ~/note")[1] == b"kept\n"
    assert rig.farm.run(address, ASK + "maintenance-event")[1] == b"NONE\n"
    assert _host_key(rig.farm, address) == key, "another key is another machine"
    assert rig.health("one") == "HEALTHY"


def _host_key(farm: FarmProcess, address: str) -> bytes:
    with farm.ssh(address) as client:
        transport = client.get_transport()
        assert transport is not None
        return transport.get_remote_server_key().asbytes()


def test_a_person_can_delete_the_slice(rig: Rig) -> None:
    rig.up("one")
    rig.emulator.do("delete", target="one")
    until(lambda: not queued_state(rig.client, "one") and not node_state(rig.client, "one"), "gone")
    assert not rig.farm.has("one")
    rig.emulator.do("stockout", zone=ZONE)
    rig.client.create_queued_resource(queued("waits"))
    until(lambda: queued_state(rig.client, "waits") == "WAITING_FOR_RESOURCES", "it waits")
    rig.emulator.do("delete", target="waits")
    until(lambda: not queued_state(rig.client, "waits"), "one without a node goes too")


@pytest.mark.slow
def test_a_farm_that_has_died_took_its_slices_with_it(tmp_path: Path) -> None:
    farm = FarmProcess(tmp_path)
    rig = Rig(farm)
    rig.up("one")
    farm.kill()
    until(lambda: queued_state(rig.client, "one") == "SUSPENDED", "SUSPENDED")
    assert "one: TERMINATED" in str(rig.emulator.status()["recent"])
    again = FarmProcess(tmp_path)
    rig.gone("one")
    assert rig.emulator.status()["slices"] == []
    rig.up("two")
    until(lambda: json.dumps(rig.emulator.status()).count("READY"), "a new farm has room")
    again.stop()
    rig.cloud.stop()
