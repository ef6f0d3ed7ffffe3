"""An emulated Cloud TPU inside the test's process: real gRPC, no hosts, everything quick."""

import itertools
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
from google.api_core.exceptions import NotFound
from google.cloud import tpu_v2, tpu_v2alpha1
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport
from google.cloud.tpu_v2alpha1.services.tpu.transports import TpuGrpcTransport as AlphaTransport

from tests.support.waiting import LONG, T
from tests.support.waiting import until as until
from tpujob.emulator.cloud.records import Disturb, Latencies
from tpujob.emulator.control import ControlServer
from tpujob.emulator.driver import Driver, FarmApi
from tpujob.emulator.farm import HostUp, SliceRequest
from tpujob.emulator.http_server import HttpThread
from tpujob.emulator.tpu.rest import handler
from tpujob.emulator.tpu.served_world import ServedWorld
from tpujob.emulator.tpu.server import TpuServer

PROJECT = "p"
ZONE = "us-central2-b"
PARENT = f"projects/{PROJECT}/locations/{ZONE}"
QUICK = Latencies(accept=0.01, create=0.03, delete=0.02, suspend=0.02, stop=0.01)


class NoFarm:
    """Slices without hosts, at addresses that do not answer: for work on the API alone."""

    def __init__(self) -> None:
        self._numbers = itertools.count()

    def bring_up(self, request: SliceRequest) -> list[HostUp]:
        numbers = [next(self._numbers) for _ in request.hosts]
        addresses = (f"10.{128 + n // 65000}.{n // 250 % 256}.{n % 250 + 2}" for n in numbers)
        return [HostUp(address, {}) for address in addresses]

    def take_down(self, slice: str) -> None: ...

    def disturb(self, request: Disturb) -> None: ...

    def switch_on(self, slice: str) -> None: ...

    def slices(self) -> None: ...


class Cloud:
    """An emulated Cloud TPU, from the constructor to `stop`."""

    def __init__(
        self, farm: FarmApi | None = None, latencies: Latencies = QUICK, **world: Any
    ) -> None:
        self.world = ServedWorld(time.time, latencies, **world)
        self._driver = Driver(self.world, farm or NoFarm())
        self._driver.start()
        self._folder = tempfile.TemporaryDirectory(prefix="cloud-")
        self.tpu = TpuServer(self.world, Path(self._folder.name))
        self._control: ControlServer | None = None
        self._rest: HttpThread | None = None
        self._channels: list[grpc.Channel] = []

    def do(self, action: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Call a function with the world, while its lock is held."""
        with self.world.lock:
            return action(self.world, *args, **kwargs)

    def client(self) -> tpu_v2.TpuClient:
        """Return the official client, v2."""
        return tpu_v2.TpuClient(transport=TpuGrpcTransport(channel=self._channel()))

    def alpha(self) -> tpu_v2alpha1.TpuClient:
        return tpu_v2alpha1.TpuClient(transport=AlphaTransport(channel=self._channel()))

    def control(self) -> ControlServer:
        """The control interface, started at the first use."""
        if self._control is None:
            self._control = ControlServer(self.world, Path(self._folder.name))
        return self._control

    def rest(self) -> HttpThread:
        """The REST API, started at the first use."""
        if self._rest is None:
            self._rest = HttpThread(handler(self.world), 0, name="tpu-rest")
        return self._rest

    def _channel(self) -> grpc.Channel:
        self._channels.append(grpc.insecure_channel(self.tpu.address))
        return self._channels[-1]

    def stop(self) -> None:
        for channel in self._channels:
            channel.close()
        for server in (self._control, self._rest):
            if server:
                server.stop()
        self.tpu.stop()
        self._driver.stop()
        self._folder.cleanup()


def result(operation: Any) -> Any:
    """Return the result of a long-running operation; the library's own `result` polls once a second only."""
    until(operation.done, "the operation done")
    return operation.result(timeout=LONG)


def node(type: str = "v4-16", **fields: Any) -> dict[str, Any]:
    return {"accelerator_type": type, "runtime_version": "tpu-ubuntu2204-base"} | fields


def queued(id: str, type: str = "v4-16", *, spot: bool = True, **fields: Any) -> dict[str, Any]:
    """Return a request for a queued resource with one node of the same name."""
    spec = {"parent": PARENT, "node_id": id, "node": node(type, **fields)}
    resource: dict[str, Any] = {"tpu": {"node_spec": [spec]}}
    if spot:
        resource["spot"] = {}
    return {"parent": PARENT, "queued_resource_id": id, "queued_resource": resource}


def node_name(id: str) -> str:
    return f"{PARENT}/nodes/{id}"


def queued_name(id: str) -> str:
    return f"{PARENT}/queuedResources/{id}"


def node_state(client: tpu_v2.TpuClient, id: str) -> str:
    """Return the state of a node; empty: not found."""
    with suppress(NotFound):
        return client.get_node(name=node_name(id)).state.name
    return ""


def queued_state(client: tpu_v2.TpuClient, id: str) -> str:
    """Return the state of a queued resource; empty: not found."""
    with suppress(NotFound):
        return client.get_queued_resource(name=queued_name(id)).state.state.name
    return ""
