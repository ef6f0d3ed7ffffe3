"""The port Hosts with the cloud: host keys that hosts publish, login users that are late, IAP, many hosts.

Real emulated hosts, and the emulated Cloud TPU API in front of them.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from tests.contract.hosts.strange_server import StrangeServer
from tests.support.farm_rig import FarmProcess, slice_at
from tests.support.tpu_rig import PROJECT, ZONE, Cloud, node_state, queued, until
from tpujob.adapters.cloud_tpu import CloudTpuSlices
from tpujob.adapters.ssh import FileKeys, SshHosts, open_session
from tpujob.adapters.ssh.hosts import LOGIN_PATIENCE
from tpujob.adapters.ssh.keys import new_private_key, public_line
from tpujob.adapters.ssh.pool import Bounds
from tpujob.adapters.ssh.transport import MAX_TUNNELS, last_message
from tpujob.domain.actions import HostPlan
from tpujob.domain.hardware.generations import CLOUD_TPU
from tpujob.domain.model import Endpoint, Slice
from tpujob.emulator.driver import FarmClient
from tpujob.emulator.tpu.served_world import CallFault
from tpujob.errors import HostKeyChanged, Refused, TpujobError, Transient
from tpujob.ports import PublishedHost

AGENT = Path(__file__).parent / "fake_agent.py"
RELAY = Path(__file__).parent / "relay.py"
NOW = 1_000_000.0


class World:
    """An emulated Cloud TPU with hosts, and adapters on it."""

    numbers = count(1)

    def __init__(self, folder: Path) -> None:
        self.farm = FarmProcess(folder)
        self.cloud = Cloud(FarmClient(folder / "farm.ready"))
        self.slices = CloudTpuSlices(PROJECT, endpoint=self.cloud.tpu.address)
        self.keys = folder / "keys"
        self._made: list[SshHosts] = []

    def hosts(self, look: Callable[..., Any] | None = None, **options: Any) -> SshHosts:
        """Return an adapter. `look` returns what the hosts have published, in place of the cloud."""
        guests = self.slices.guest_attributes
        settings: dict[str, Any] = {
            "port": self.farm.ssh_port,
            "agent": AGENT,
            "project": PROJECT,
            "guests": {
                CLOUD_TPU: SimpleNamespace(look=look or guests.look, obstacle=guests.obstacle)
            },
            "now": lambda: NOW,
        }
        self._made.append(SshHosts(self.keys, **{**settings, **options}))
        return self._made[-1]

    def slice(self, key: str = "", **metadata: str) -> Slice:
        """Return a slice of two hosts. `metadata` replaces values of the node's metadata, `key` the adapter's key."""
        name = f"tj-000001-{next(self.numbers)}"
        bare = replace(slice_at(name), zone=ZONE)
        own = self.hosts().public_key(bare)
        both = {
            "ssh-keys": f"tpujob:{key or own}",
            "enable-guest-attributes": "TRUE",
            **{k.replace("_", "-"): v for k, v in metadata.items()},
        }
        client = self.cloud.client()
        client.create_queued_resource(queued(name, metadata=both))
        until(lambda: node_state(client, name) == "READY", f"{name} is ready")
        node = self.cloud.world.nodes[f"projects/{PROJECT}/locations/{ZONE}/nodes/{name}"]
        ends = tuple(Endpoint(i, address) for i, address in enumerate(node.addresses))
        return replace(bare, endpoints=ends, ready_at=NOW)

    def close(self) -> None:
        for adapter in self._made:
            adapter.close()
        self.slices.close()
        self.cloud.stop()
        self.farm.stop()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(tmp_path_factory.mktemp("cloud"))
    yield world
    world.close()


def _plans(slice: Slice) -> list[HostPlan]:
    plan = {"job": "000001", "attempt": 1, "command": ["sleep", "1000"]}
    return [HostPlan(endpoint.host, plan) for endpoint in slice.endpoints]


# Host keys -----------------------------------------------------------------------------------------------------------


def test_what_hosts_publish_is_known_before_the_first_contact(world: World):
    slice = world.slice()
    guests = world.slices.guest_attributes.look(slice, 20)
    assert [guest.name for guest in guests] == [f"{slice.name}-w-0", f"{slice.name}-w-1"]
    hosts = world.hosts()
    hosts.start(slice, _plans(slice), timeout=60)
    pinned = FileKeys(world.keys).pinned(slice.name)
    shown = [pinned[f"[{e.address}]:{world.farm.ssh_port}"] for e in slice.endpoints]
    assert [frozenset({key[:2]}) for key in shown] == [guest.host_keys for guest in guests]
    assert hosts.trust(slice) == "published"
    hosts.stop(slice, grace=1, timeout=60)


def test_nothing_is_sent_to_a_server_whose_key_no_host_has_published(world: World):
    slice = world.slice()
    first, second = slice.endpoints
    with StrangeServer() as server:

        def published(*_: object) -> tuple[PublishedHost, ...]:
            return world.slices.guest_attributes.look(slice, 20)

        lured = replace(slice, endpoints=(replace(first, internal_ip="127.0.0.1"), second))
        hosts = world.hosts(port=server.port, look=published)
        with pytest.raises(HostKeyChanged, match=r"host 0 .*has published") as caught:
            hosts.start(lured, _plans(lured), timeout=30)
        assert server.connections, "there was no connection to the server"
        assert server.seen == [], f"the server got {server.seen}"
    assert "tpujob cancel --release" in caught.value.hint
    assert FileKeys(world.keys).pinned(slice.name) == {}, "its key was pinned"


def test_hosts_that_publish_nothing_are_pinned_at_the_first_contact(world: World):
    slice = world.slice(enable_guest_attributes="FALSE")
    assert world.slices.guest_attributes.look(slice, 20) == (PublishedHost(), PublishedHost())
    hosts = world.hosts()
    assert hosts.trust(slice) == "", "nothing is pinned yet"
    assert hosts.alive(slice, timeout=30) == {0, 1}
    assert len(FileKeys(world.keys).pinned(slice.name)) == 2
    assert hosts.trust(slice) == "first-contact"


def test_if_one_host_has_published_its_key_all_must(world: World):
    slice = world.slice()

    def half(*_: object) -> tuple[PublishedHost, ...]:
        return (world.slices.guest_attributes.look(slice, 20)[0], PublishedHost())

    young = world.hosts(look=half, now=lambda: NOW + LOGIN_PATIENCE - 1)
    with pytest.raises(Transient, match=r"host 1 .*not published, and other hosts .* have"):
        young.start(slice, _plans(slice), timeout=60)
    first, second = (f"[{e.address}]:{world.farm.ssh_port}" for e in slice.endpoints)
    pinned = FileKeys(world.keys).pinned(slice.name)
    assert pinned[first].published
    assert second not in pinned, "a first contact was believed"
    late = world.hosts(look=half, now=lambda: NOW + LOGIN_PATIENCE + 1)
    with pytest.raises(Refused, match=r"host 1 .*after the slice was ready, and others") as caught:
        late.start(slice, _plans(slice), timeout=60)
    assert caught.value.cause == "BAD_HOST", "another slice may do better"
    complete = world.hosts()
    complete.start(slice, _plans(slice), timeout=60)
    assert complete.trust(slice) == "published"
    complete.stop(slice, grace=1, timeout=60)


def test_without_permission_to_read_published_keys_the_first_contact_counts(world: World):
    slice = world.slice()
    denied = CallFault("GetGuestAttributes", "PERMISSION_DENIED", count=1)
    world.cloud.world.call_faults.pending.append(denied)
    assert world.slices.guest_attributes.look(slice, 20) == ()
    gone = CallFault("GetGuestAttributes", "UNAVAILABLE", count=1)
    world.cloud.world.call_faults.pending.append(gone)
    with pytest.raises(Transient):  # the keys may be published soon
        world.hosts().start(slice, _plans(slice), timeout=60)
    assert FileKeys(world.keys).pinned(slice.name) == {}


# Login ---------------------------------------------------------------------------------------------------------------


def test_a_login_user_that_is_not_made_yet_is_waited_for(world: World):
    slice = world.slice(key="ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINone")
    with pytest.raises(Transient, match="does not accept the key"):
        world.hosts(now=lambda: NOW + LOGIN_PATIENCE - 1).start(slice, _plans(slice), timeout=60)
    late = world.hosts(now=lambda: NOW + LOGIN_PATIENCE + 1)
    with pytest.raises(Refused, match="does not accept the key") as caught:
        late.start(slice, _plans(slice), timeout=60)
    assert caught.value.cause == "BAD_HOST", "another slice may do better"
    assert "compute.requireOsLogin" in caught.value.hint
    with pytest.raises(Transient, match="does not accept the key"):  # a stop is never refused
        late.stop(slice, grace=1, timeout=60)


def test_os_login_is_recognised_and_named(world: World):
    slice = world.slice(enable_oslogin="TRUE")
    hosts = world.hosts(now=lambda: NOW + LOGIN_PATIENCE + 1)
    with pytest.raises(Refused, match="enable-oslogin=TRUE, so its ssh-keys are ignored") as caught:
        hosts.start(slice, _plans(slice), timeout=60)
    assert caught.value.cause == "PERMISSION", "another slice would be the same"
    assert "OS Login" in caught.value.hint


# IAP -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def through_iap(world: World, tmp_path: Path) -> Callable[[Slice], SshHosts]:
    def make(slice: Slice) -> SshHosts:
        for endpoint in slice.endpoints:
            (tmp_path / f"{slice.name}-w-{endpoint.host}").write_text(endpoint.internal_ip)
        return world.hosts(reach="iap", tunnel=[sys.executable, str(RELAY), str(tmp_path)])

    return make


def _ran(folder: Path) -> list[str]:
    return sorted(path.read_text() for path in folder.glob("ran-*"))


def test_hosts_are_reached_through_a_tunnel(
    world: World, through_iap: Callable[[Slice], SshHosts], tmp_path: Path
):
    slice = world.slice()
    hosts = through_iap(slice)
    hosts.start(slice, _plans(slice), timeout=60)
    flags = f"{world.farm.ssh_port} --project={PROJECT} --zone={ZONE}"
    assert _ran(tmp_path) == [f"{slice.name}-w-{host} {flags}" for host in (0, 1)], (
        "one tunnel for each host, for both steps"
    )
    key = new_private_key()
    today = world.hosts(reach="iap", now=time.time)  # the hosts' clock judges certificates
    access = today.access(slice, 1, public_line(key), "ada")
    assert access["instance"] == f"{slice.name}-w-1"
    null = os.open(os.devnull, os.O_RDWR)
    try:
        tunnel = [sys.executable, str(RELAY), str(tmp_path)]
        code = open_session(
            access, key, ["sh", "-c", "exit 7"], stdin=null, stdout=null, stderr=null, tunnel=tunnel
        )
    finally:
        os.close(null)
    assert code == 7
    hosts.stop(slice, grace=1, timeout=60)
    commands = [child.cmdline() for child in psutil.Process().children()]
    assert not [words for words in commands if str(RELAY) in words], "a tunnel was left behind"


@pytest.mark.parametrize(
    ("printed", "message"),
    [
        ("", ""),
        ("ERROR: no way\nWARNING: \n\nTo be faster, consider installing NumPy.\n", "ERROR: no way"),
        ("WARNING: \n\nplease see x#increasing_the_tcp_upload_bandwidth\n\n", ""),
        ("ERROR: first\nERROR: second\nbye\n", "ERROR: second"),
        ("Traceback (most recent call last):\n  x\nKeyError: 'y'\n", "KeyError: 'y'"),
    ],
)
def test_what_a_tunnel_advises_is_not_why_it_ended(printed: str, message: str) -> None:
    assert last_message(printed) == message


def test_a_tunnel_that_is_not_allowed_says_what_iap_needs(
    world: World, through_iap: Callable[[Slice], SshHosts], tmp_path: Path
):
    slice = world.slice()
    hosts = through_iap(slice)
    (tmp_path / f"{slice.name}-w-1").unlink()
    with pytest.raises(
        Transient, match=r"host 1 .*failed: ERROR: .*4033: 'not authorized'"
    ) as caught:
        hosts.start(slice, _plans(slice), timeout=60)
    assert "roles/iap.tunnelResourceAccessor" in caught.value.hint
    assert "35.235.240.0/20" in caught.value.hint
    assert hosts.alive(slice, timeout=30) == {0}


def test_iap_without_gcloud_or_without_instance_names_is_refused(world: World):
    slice = world.slice()
    with pytest.raises(Transient, match="cannot start /no/gcloud") as caught:
        world.hosts(reach="iap", tunnel=["/no/gcloud"]).start(slice, _plans(slice), timeout=30)
    assert "ssh: internal" in caught.value.hint
    silent = world.slice(enable_guest_attributes="FALSE")
    with pytest.raises(Transient, match="has not published its name") as caught:
        world.hosts(reach="iap").start(silent, _plans(silent), timeout=30)
    assert "compute.disableGuestAttributesAccess" in caught.value.hint


def test_a_name_that_would_be_an_option_is_refused(world: World):
    slice = world.slice()
    evil = (PublishedHost("--impersonate-service-account=x"), PublishedHost("w-1"))
    hosts = world.hosts(reach="iap", tunnel=["false"], look=lambda *_: evil)
    with pytest.raises(TpujobError, match="cannot be the name of a machine"):
        hosts.start(slice, _plans(slice), timeout=30)


def test_tunnels_are_bounded(world: World, tmp_path: Path):
    """Sixteen hosts: never more than MAX_TUNNELS programs, and every host is tried."""
    program = tmp_path / "tunnel.py"
    program.write_text(
        "import os, pathlib, sys, time\n"
        f"place = pathlib.Path({str(tmp_path)!r})\n"
        "mine = place / ('now-%d' % os.getpid())\n"
        "mine.touch()\n"
        "(place / ('seen-%d-%d' % (len([*place.glob('now-*')]), os.getpid()))).touch()\n"
        "time.sleep(0.2)\n"
        "mine.unlink()\n"
        "sys.exit('no')\n"
    )
    names = tuple(PublishedHost(f"w-{i}") for i in range(16))
    slice = slice_at("tj-000098-1", *[f"10.0.0.{i}" for i in range(16)])
    hosts = world.hosts(reach="iap", tunnel=[sys.executable, str(program)], look=lambda *_: names)
    hosts.public_key(slice)
    with pytest.raises(Transient, match=r"host 0 .*host 15 "):
        hosts.start(slice, _plans(slice), timeout=120)
    peak = max(int(path.name.split("-")[1]) for path in tmp_path.glob("seen-*"))
    assert 1 <= peak <= MAX_TUNNELS
    assert len(list(tmp_path.glob("seen-*"))) == 16


# Many hosts ----------------------------------------------------------------------------------------------------------


def test_all_hosts_get_the_stop_before_one_is_waited_for(world: World, tmp_path: Path):
    calls, agent = tmp_path / "calls", tmp_path / "agent.py"
    agent.write_text(
        f"import sys\nopen({str(calls)!r}, 'a').write(sys.argv[-1] + ' ')\nprint('{{\"ok\": true}}')\n"
    )
    slice = world.slice()
    hosts = world.hosts(agent=agent, bounds=Bounds(workers=1, share=1, kept=0))
    hosts.stop(slice, grace=30, timeout=60)
    assert calls.read_text().split() == ["--ask", "--ask", "30", "30"]
    world.hosts(agent=agent).stop(slice, grace=30, timeout=60)
    assert calls.read_text().split()[4:] == ["30", "30"], "two hosts are worked on at once"
