"""The gRPC server: the Cloud TPU services, operations and locations, with call faults applied.

It listens on a Unix socket, as gRPC does not check who connects to a port. Clients of gRPC accept such an address like
a port; gcloud does not, and uses the REST API.
"""

# grpc and the generated message classes carry no types that a checker can follow.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

import threading
from concurrent.futures import ThreadPoolExecutor
from operator import methodcaller
from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc
from google.cloud.location import locations_pb2
from google.longrunning import operations_pb2

from tpujob.emulator.cloud import rules
from tpujob.emulator.cloud.records import ApiError, id_of
from tpujob.emulator.tpu.convert import Message, operation_message, page, zone_of
from tpujob.emulator.tpu.served_world import CallFault, ServedWorld
from tpujob.emulator.tpu.v2 import Handler, TpuV2
from tpujob.emulator.tpu.v2alpha1 import TpuV2Alpha1
from tpujob.lib import unix_sockets

_THREADS = 16
_NO_FAULT = CallFault("", "OK", 0)

Methods = dict[str, tuple[Handler, Any]]


class TpuServer:
    """A server of a world, from the constructor to `stop`, on a socket in `folder`. Clients of gRPC take `address`."""

    def __init__(self, world: ServedWorld, folder: Path) -> None:
        self._server = grpc.server(
            ThreadPoolExecutor(_THREADS, thread_name_prefix="tpu-api"),
            options=(("grpc.so_reuseport", 0),),
        )
        for service, methods in services(world).items():
            handlers = {name: _handler(world, name, *method) for name, method in methods.items()}
            self._server.add_generic_rpc_handlers(
                (grpc.method_handlers_generic_handler(service, handlers),)
            )
        self._socket = unix_sockets.place(folder, "tpu.sock")
        self.address = f"unix:{quote(str(self._socket))}"
        self._server.add_insecure_port(self.address)
        self._socket.chmod(0o600)
        self._server.start()

    def stop(self) -> None:
        """Stop at once and cut running calls, as when a server dies."""
        self._server.stop(None).wait()
        unix_sockets.remove(self._socket)


def services(world: ServedWorld) -> dict[str, Methods]:
    """Return handler and type of request of every call, by service."""
    return {
        "google.cloud.tpu.v2.Tpu": TpuV2(world).methods(),
        "google.cloud.tpu.v2alpha1.Tpu": TpuV2Alpha1(world).methods(),
        "google.longrunning.Operations": _operations(world),
        "google.cloud.location.Locations": _locations(world),
    }


def message_class(request_class: Any) -> Any:
    """Return the protobuf class of a request, which proto-plus wraps."""
    return getattr(request_class, "pb", lambda: request_class)()


def method_name(world: ServedWorld, text: str) -> str:
    """Return `CreateNode` for `create_node`; `*` stays. Raise ApiError for an unknown call."""
    calls = {name for methods in services(world).values() for name in methods}
    name = "".join(part[:1].upper() + part[1:] for part in text.split("_"))
    if name not in calls | {"*"}:
        message = f"there is no call {text!r}; there are {', '.join(sorted(calls))} and *"
        raise ApiError("NOT_FOUND", message)
    return name


# One call, over gRPC or over HTTP -----------------------------------------------------------------------------------


def next_fault(world: ServedWorld, name: str) -> CallFault:
    """Return the fault for this call, counted down. The caller waits for its `delay_s` before `carry_out`."""
    with world.lock:
        world.calls[name] += 1
        return world.call_faults.take(name) or _NO_FAULT


def carry_out(world: ServedWorld, handler: Handler, request: Message, fault: CallFault) -> Message:
    """Return the response. Raise ApiError: the world's, or the fault's before or after the call took effect."""
    if fault.when == "pre":
        _raise_fault(fault)
    with world.lock:
        world.advance()
        response = handler(request)
    if fault.when == "post":
        _raise_fault(fault)
    return response


def _raise_fault(fault: CallFault) -> None:
    if fault.code != "OK":
        raise ApiError(fault.code, fault.message or f"injected fault: {fault.code}")


def _handler(world: ServedWorld, name: str, handler: Handler, request_class: Any) -> Any:
    def call(request: Message, context: grpc.ServicerContext) -> Message:
        fault = next_fault(world, name)
        if fault.delay_s:
            client_left = threading.Event()
            context.add_callback(client_left.set)
            client_left.wait(fault.delay_s)
        try:
            return carry_out(world, handler, request, fault)
        except ApiError as error:
            context.abort(grpc.StatusCode[error.code], error.message)
            raise

    return grpc.unary_unary_rpc_method_handler(
        call,
        request_deserializer=message_class(request_class).FromString,
        response_serializer=methodcaller("SerializeToString"),
    )


# Operations and locations --------------------------------------------------------------------------------------------


def _operations(world: ServedWorld) -> Methods:
    def get(request: Message) -> Message:
        return operation_message(world.get_operation(request.name))

    def list_all(request: Message) -> Message:
        zone_of(request.name)
        below = f"{request.name}/operations/"
        listed = sorted((o.name, o) for o in world.operations.values() if o.name.startswith(below))
        operations, token = page(
            listed, size=request.page_size, max_size=world.page_size, token=request.page_token
        )
        messages = [operation_message(o) for o in operations]
        return operations_pb2.ListOperationsResponse(operations=messages, next_page_token=token)

    return {
        "GetOperation": (get, operations_pb2.GetOperationRequest),
        "ListOperations": (list_all, operations_pb2.ListOperationsRequest),
    }


def _locations(world: ServedWorld) -> Methods:
    def get(request: Message) -> Message:
        project, zone = zone_of(request.name)
        rules.check_zone(world, zone)
        return _location(f"projects/{project}", zone)

    def list_all(request: Message) -> Message:
        listed = [(zone, _location(request.name, zone)) for zone in sorted(world.stock.hosts)]
        locations, token = page(
            listed, size=request.page_size, max_size=world.page_size, token=request.page_token
        )
        return locations_pb2.ListLocationsResponse(locations=locations, next_page_token=token)

    return {
        "GetLocation": (get, locations_pb2.GetLocationRequest),
        "ListLocations": (list_all, locations_pb2.ListLocationsRequest),
    }


def _location(project: str, zone: str) -> Message:
    name = f"{project}/locations/{zone}"
    return locations_pb2.Location(name=name, location_id=id_of(name))
