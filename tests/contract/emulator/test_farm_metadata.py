"""The metadata server as programs on a TPU VM use it: raw, by `wait_for_change`, and through Google's own library."""

import json
import threading
import urllib.error
import urllib.request

import pytest

from tests.support.farm_rig import FarmProcess
from tests.support.waiting import LONG

V1 = "/computeMetadata/v1/"


class Vm:
    """Host 1 of a slice of two."""

    def __init__(self, farm: FarmProcess, name: str) -> None:
        self.addresses = farm.slice(name, hosts=2)
        self.ssh_address = self.addresses[1]
        self.root = farm.run(self.ssh_address, "printf %s $GCE_METADATA_HOST")[1].decode()

    def get(self, path: str, *, flavor: str = "Google") -> tuple[str, str]:
        """Body and ETag."""
        request = urllib.request.Request(f"http://{self.root}{path}")
        if flavor:
            request.add_header("Metadata-Flavor", flavor)
        with urllib.request.urlopen(request, timeout=LONG) as answer:
            assert answer.headers["Metadata-Flavor"] == "Google"
            return answer.read().decode(), answer.headers.get("ETag", "")

    def status(self, path: str, *, flavor: str = "Google") -> int:
        try:
            self.get(path, flavor=flavor)
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        return 200


@pytest.fixture(scope="module")
def vm(farm: FarmProcess) -> Vm:
    return Vm(farm, "tj-meta")


def test_a_host_can_read_where_it_stands(vm: Vm):
    def attribute(name: str) -> str:
        return vm.get(f"{V1}instance/attributes/{name}")[0]

    assert attribute("accelerator-type") == "v4-16"
    assert attribute("agent-worker-number") == "1"
    endpoints = attribute("worker-network-endpoints").split(",")
    # the way in which JAX reads it
    assert [endpoint.split(":")[2] for endpoint in endpoints] == vm.addresses
    assert "WORKER_ID: '1'\n" in attribute("tpu-env")
    assert attribute("ssh-keys").startswith("tpujob:ssh-ed25519 ")
    assert vm.get(f"{V1}instance/preempted")[0] == "FALSE"
    assert vm.get(f"{V1}instance/maintenance-event")[0] == "NONE"
    assert vm.get(f"{V1}instance/zone")[0].endswith("/zones/us-central2-b")
    assert vm.get(f"{V1}instance/hostname")[0].startswith("tj-meta-w-1.")
    assert vm.get(f"{V1}project/project-id")[0] == "tpujob-emulator"


def test_the_rules_of_the_real_server_hold(vm: Vm):
    assert vm.status("/", flavor="") == 200
    assert vm.status(f"{V1}instance/preempted", flavor="") == 403
    assert vm.status(f"{V1}instance/preempted", flavor="google") == 403
    assert vm.status(f"{V1}instance/no-such-thing") == 404
    assert vm.status("/elsewhere") == 404
    listing = vm.get(f"{V1}instance/service-accounts/default/")[0].split()
    assert listing == ["aliases", "email", "scopes", "token"]
    tree = json.loads(vm.get(f"{V1}instance/?recursive=true")[0])
    assert tree["maintenanceEvent"] == "NONE"
    assert tree["attributes"]["agent-worker-number"] == "1"
    assert tree["serviceAccounts"]["default"]["scopes"] == [
        "https://www.googleapis.com/auth/cloud-platform"
    ]


def test_a_waiting_reader_is_woken_by_the_change(farm: FarmProcess):
    vm = Vm(farm, "tj-wait")
    path = f"{V1}instance/maintenance-event"
    _, etag = vm.get(path)
    woken: list[str] = []
    waits = [f"?wait_for_change=true&last_etag={etag}", "?wait_for_change=true"]
    readers = [
        threading.Thread(target=lambda q=query: woken.append(vm.get(path + q)[0]))
        for query in waits
    ]
    readers[0].start()
    farm.call("POST", "/slices/tj-wait/maintain", {"window_s": 1})
    readers[0].join()
    assert woken == ["TERMINATE_ON_HOST_MAINTENANCE"]
    readers[1].start()
    readers[1].join()
    assert woken[1:] == ["NONE"], "the event did not end with its window"
    assert vm.get(f"{path}?wait_for_change=true&timeout_sec=0")[0] == "NONE"


def test_maintenance_is_announced_for_later(farm: FarmProcess):
    vm = Vm(farm, "tj-announced")
    path = f"{V1}instance/upcoming-maintenance?alt=json"
    assert "no notifications" in json.loads(vm.get(path)[0])["error"]
    farm.call("POST", "/slices/tj-announced/announce", {"upcoming": {"type": "SCHEDULED"}})
    assert json.loads(vm.get(path)[0]) == {"type": "SCHEDULED"}
    assert vm.get(f"{V1}instance/maintenance-event")[0] == "NONE", "no notice"
    farm.call("POST", "/slices/tj-announced/announce", {"upcoming": {}})
    assert "no notifications" in json.loads(vm.get(path)[0])["error"]


def test_googles_own_library_gets_its_token_here(farm: FarmProcess, vm: Vm):
    program = (
        "import google.auth.compute_engine as c, google.auth.transport.requests as r\n"
        "k = c.Credentials(); k.refresh(r.Request()); print(k.token, k.service_account_email)"
    )
    code, out, err = farm.run(vm.ssh_address, "python3 -", program.encode())
    assert code == 0, err.decode()
    assert out.decode().split() == [
        "emulated",
        "emulated-vm@tpujob-emulator.iam.gserviceaccount.com",
    ]
