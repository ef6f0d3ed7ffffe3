"""The project under test: the emulator, or the real one that TPUJOB_LIVE_PROJECT and TPUJOB_LIVE_ZONE name.

The cost of a real run is bounded (`Meter`), and whatever it requested is deleted at its end. Its slices have an
owner label of their own, so that no backend of the project deletes them. The next run deletes what a killed run left.
"""

import io
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import paramiko
import pytest
from google.api_core.exceptions import NotFound
from google.cloud import tpu_v2

from tests.support import google_server as g
from tests.support.farm_rig import FarmProcess
from tests.support.records import a_slice
from tests.support.tpu_rig import Cloud
from tests.support.waiting import until
from tpujob.adapters.cloud_tpu import CloudTpuSlices, Options
from tpujob.adapters.gcs import GcsBlobs
from tpujob.adapters.google import identity
from tpujob.adapters.google.rest import GoogleRest
from tpujob.adapters.ssh import FileKeys, SshHosts
from tpujob.domain.hardware import accelerators
from tpujob.domain.hardware.generations import CLOUD_TPU
from tpujob.domain.hardware.prices import LIST
from tpujob.domain.model import Endpoint, Slice
from tpujob.domain.observations import Absent
from tpujob.emulator.driver import FarmClient
from tpujob.emulator.storage import StorageServer
from tpujob.errors import TpujobError

T = TypeVar("T")

OWNER, JOB = "live", "live"
PREFIX = "tj-live-"
#: seconds: the least that the tests of a slice take, and the most that it may be held
SHORTEST, LONGEST = 600.0, 1500.0
#: seconds after which a slice of this owner was left by a run that was killed
LEFT_BEHIND = 3600.0
CALL = 20.0


@dataclass
class Meter:
    """The time for which the slice was held, and its list price. It errs upwards: time counts from the request."""

    usd_per_hour: float
    cap: float
    began: float | None = None

    def start(self) -> None:
        """Start counting. Fail if the shortest run would cost more than the cap, before anything is requested."""
        least = self.usd_per_hour * SHORTEST / 3600
        if least > self.cap:
            pytest.fail(
                f"{SHORTEST / 60:.0f} min cost ${least:.2f}, over the cap of ${self.cap:.2f}: TPUJOB_LIVE_USD"
            )
        self.began = time.monotonic()

    def check(self) -> None:
        """Fail when time or money is used up."""
        if self.began is None:
            return
        held = time.monotonic() - self.began
        if held > min(LONGEST, self.cap / self.usd_per_hour * 3600):
            pytest.fail(
                f"held for {held:.0f} s, ${held * self.usd_per_hour / 3600:.2f}: the cap is reached"
            )


@dataclass
class Project:
    """One project, as the backend's own adapters and Google's own client see it."""

    id: str
    zone: str
    slice: Slice
    meter: Meter
    wait: float  #: seconds for capacity
    slices: CloudTpuSlices
    hosts: SshHosts
    keys: FileKeys
    blobs: GcsBlobs
    google: GoogleRest
    client: tpu_v2.TpuClient
    workdir: str  #: empty: no bucket was named
    ssh_port: int
    emulated: Cloud | None = None
    poll: float = 5.0
    seen: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    used_before: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def parent(self) -> str:
        return f"projects/{self.id}/locations/{self.zone}"

    def until(self, look: Callable[[], T], condition: str, seconds: float) -> T:
        """Return the first true answer of `look`. Fail after `seconds`, or when the money is used up."""

        def answer() -> T:
            self.meter.check()
            return look()

        return until(answer, condition, seconds, pause=self.poll)

    def ask(self, slice: Slice) -> None:
        """Request it, as the backend does."""
        self.slices.create(slice, job_id=JOB, public_key=self.hosts.public_key(slice), timeout=CALL)

    def states(self, name: str) -> tuple[str, str]:
        """Return the states of the queued resource and of the node, as Google's client reads them; empty: not found."""
        queued = node = ""
        with suppress(NotFound):
            resource = self.client.get_queued_resource(name=f"{self.parent}/queuedResources/{name}")
            queued = resource.state.state.name
        with suppress(NotFound):
            node = self.client.get_node(name=f"{self.parent}/nodes/{name}").state.name
        return queued, node

    @contextmanager
    def login(self) -> Iterator[paramiko.SSHClient]:
        """Connect to host 0 over SSH, by a client that accepts only the host keys that the cloud has published."""
        endpoint: Endpoint = self.slice.endpoints[0]
        (guest, *_) = self.slices.guest_attributes.look(self.slice, CALL)
        client = paramiko.SSHClient()
        place = endpoint.address if self.ssh_port == 22 else f"[{endpoint.address}]:{self.ssh_port}"
        for kind, key in guest.host_keys:
            entry = paramiko.hostkeys.HostKeyEntry.from_line(f"{place} {kind} {key}")
            assert entry is not None
            client.get_host_keys().add(place, kind, entry.key)
        own = paramiko.Ed25519Key.from_private_key(
            io.StringIO(self.keys.private_key(self.slice.name))
        )
        client.set_missing_host_key_policy(paramiko.RejectPolicy())
        try:
            client.connect(
                endpoint.address, self.ssh_port, "tpujob", pkey=own, allow_agent=False,
                look_for_keys=False, timeout=30, banner_timeout=30, auth_timeout=30,
            )  # fmt: skip
            yield client
        finally:
            client.close()

    def run(self, command: str) -> str:
        """Return the output of a shell command on host 0."""
        with self.login() as client:
            _, out, _ = client.exec_command(command, timeout=60)
            return out.read().decode("utf-8", "replace").strip()

    def clear(self, *names: str) -> list[str]:
        """Delete every slice of this owner that has one of the names, or is old; wait until they are gone. Return the
        names that are left."""
        now = time.time()
        owned = self.slices.list_all([self.zone], timeout=CALL)
        doomed = {s.name for s in owned if s.name in names or now - s.created_at > LEFT_BEHIND}
        for name in doomed | set(names):
            slice = a_slice(name=name, zone=self.zone)
            ends = time.monotonic() + 900
            while time.monotonic() < ends:
                with suppress(TpujobError):
                    self.slices.delete(slice, timeout=CALL)
                if isinstance(self.slices.look(slice, timeout=CALL), Absent):
                    break
                time.sleep(self.poll)
            self.hosts.forget(slice)
        return sorted({s.name for s in self.slices.list_all([self.zone], timeout=CALL)} & doomed)

    def close(self) -> None:
        remaining = self.clear(*(self.slice.name, f"{self.slice.name}-2"))
        if self.workdir:
            with suppress(TpujobError):
                for blob in self.blobs.list(f"{self.workdir}/", timeout=CALL):
                    self.blobs.delete(blob.path, timeout=CALL)
        self.slices.close()
        self.hosts.close()
        self.blobs.close()
        self.google.close()
        assert remaining == [], f"still there, and billed: {remaining}"


def cheapest(types: frozenset[str], zone: str) -> str:
    """Return the cheapest type of one host with a known spot price."""
    priced = {
        type: usd
        for type in types
        if (accelerator := accelerators.ALL.get(type)) and accelerator.hosts == 1
        and (usd := LIST.usd_per_hour(type, zone, "spot")) is not None
    }  # fmt: skip
    assert priced, f"no type of one host with a known price is offered in {zone}"
    return min(priced, key=lambda type: priced[type])


@contextmanager
def real(folder: Path) -> Iterator[Project]:
    """The project that the environment names, with this user's own credentials."""
    id, zone = os.environ["TPUJOB_LIVE_PROJECT"], os.environ["TPUJOB_LIVE_ZONE"]
    bucket = os.environ.get("TPUJOB_LIVE_BUCKET", "")
    cap, wait = (
        float(os.environ.get(n, d))
        for n, d in (("TPUJOB_LIVE_USD", "1"), ("TPUJOB_LIVE_WAIT", "600"))
    )
    slices = CloudTpuSlices(id, owner=OWNER, options=Options(wait=wait))
    keys, (credentials, _) = FileKeys(folder / "keys"), identity.find()
    hosts = SshHosts(keys, project=id, guests={CLOUD_TPU: slices.guest_attributes})
    type = os.environ.get("TPUJOB_LIVE_TYPE", "")
    slice, meter, workdir = _chosen(slices, zone, type, cap, bucket)
    made = Project(
        id, zone, slice, meter, wait, slices, hosts, keys, GcsBlobs(id), GoogleRest(id, credentials),
        tpu_v2.TpuClient(), workdir, ssh_port=22,
    )  # fmt: skip
    made.clear()
    try:
        yield made
    finally:
        made.close()


@contextmanager
def emulated(folder: Path) -> Iterator[Project]:
    """The emulator with one real host, and a server in place of Google's other APIs."""
    farm, storage, google = FarmProcess(folder), StorageServer(folder / "storage"), g.healthy()
    cloud = Cloud(
        FarmClient(folder / "farm.ready"), host_env={"STORAGE_EMULATOR_HOST": storage.url}
    )
    held = g.series("tpu.googleapis.com/tpu-v4s-preemptible", g.ZONE, 8)
    google.answers[g.SERIES] = lambda _: {"timeSeries": [held] if cloud.world.nodes else []}
    slices = CloudTpuSlices(
        g.PROJECT, endpoint=cloud.tpu.address, owner=OWNER, options=Options(wait=60)
    )
    keys = FileKeys(folder / "keys")
    hosts = SshHosts(keys, port=farm.ssh_port, guests={CLOUD_TPU: slices.guest_attributes})
    blobs = GcsBlobs(g.PROJECT, endpoint=storage.url)
    blobs.make_bucket(f"gs://{g.BUCKET}", g.REGION, log_days=90, adopt=False, timeout=30)
    slice, meter, workdir = _chosen(slices, g.ZONE, "v4-8", 3.0, f"gs://{g.BUCKET}")
    made = Project(
        g.PROJECT, g.ZONE, slice, meter, 60, slices, hosts, keys, blobs,
        GoogleRest(g.PROJECT, endpoint=google.url), cloud.client(), workdir, farm.ssh_port, cloud, poll=0.02,
    )  # fmt: skip
    try:
        yield made
        made.close()
        with cloud.world.lock:
            remaining = [*cloud.world.queued, *cloud.world.nodes]
        assert remaining == []
    finally:
        google.close()
        cloud.stop()
        storage.stop()
        farm.stop()


def _chosen(
    slices: CloudTpuSlices, zone: str, type: str, cap: float, bucket: str
) -> tuple[Slice, Meter, str]:
    """Return the slice that will be requested, its meter, and the folder of the run."""
    type = type or cheapest(slices.catalog.types(zone, timeout=CALL) or frozenset(), zone)
    name = f"{PREFIX}{os.urandom(3).hex()}"
    usd = LIST.usd_per_hour(type, zone, "spot")
    assert usd is not None, f"no spot price is known for {type} in {zone}, and a cap needs one"
    runtime = accelerators.find(type).row.system_image
    slice = a_slice(name=name, zone=zone, type=type, system_image=runtime, requested_at=time.time())
    return slice, Meter(float(usd), cap), f"{bucket}/live/{name}" if bucket else ""
