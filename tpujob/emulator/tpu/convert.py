"""Converts between the records of the world and the messages of the API (v2), and between the versions of the API."""

# The generated message classes carry no types that a checker can follow.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import re
from bisect import bisect_right
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, TypeVar

import grpc
from google.cloud.tpu_v2.types import cloud_tpu as v2
from google.cloud.tpu_v2alpha1.types import cloud_tpu as v2alpha1
from google.longrunning import operations_pb2
from google.protobuf import empty_pb2, json_format

from tpujob.domain.hardware import accelerators
from tpujob.emulator.cloud.records import Node, NodeSpec, Operation, Queued, id_of, invalid
from tpujob.emulator.cloud.states import NodeState, QueuedState

TPU_PORT = 8470

Message = Any  #: a protobuf message; its classes are generated at run time


#: fields with a different name in each version
_OTHER_WORD = {"multislice_params": "multi_node_params", "multi_node_params": "multislice_params"}


def convert_version(message: Message, target: type[Message]) -> Message:
    """Return the message in the other version of the API, whose field numbers differ, without fields unknown there."""
    fields = json_format.MessageToDict(message, preserving_proto_field_name=True)
    return json_format.ParseDict(_renamed(fields), target(), ignore_unknown_fields=True)


def _renamed(value: Any) -> Any:
    if isinstance(value, dict):
        return {_OTHER_WORD.get(key, key): _renamed(inner) for key, inner in value.items()}
    return [_renamed(inner) for inner in value] if isinstance(value, list) else value


def node_spec(node: Message, tier: str | None = None) -> NodeSpec:
    """Return the requested node; `tier`, the queued resource's, overrides the node's own."""
    return NodeSpec(
        type=_type(node),
        runtime_version=node.runtime_version,
        pricing=tier or node_tier(node),
        labels=dict(node.labels),
        metadata=dict(node.metadata),
        external_ips=node.network_config.enable_external_ips,
        body=node.SerializeToString(),
        uses=_uses(node),
    )


def _uses(node: Message) -> tuple[str, ...]:
    networks = [node.network_config, *node.network_configs]
    references = [
        *(("networks", item.network) for item in networks),
        *(("subnetworks", item.subnetwork) for item in networks),
        ("serviceAccounts", node.service_account.email),
        *(("disks", item.source_disk) for item in node.data_disks),
    ]
    return tuple(f"{kind}/{id_of(name)}" for kind, name in references if name)


def node_tier(node: Message) -> str:
    scheduling = node.scheduling_config
    if scheduling.spot or scheduling.preemptible:
        return "spot"
    return "reserved" if scheduling.reserved else "on-demand"


def queued_tier(queued: Message, node: Message) -> str:
    """Return the pricing of a queued resource. Raise ApiError where the node sets it: public code reports that the API
    refuses this; the error text is ours."""
    if node.HasField("scheduling_config"):
        raise invalid(
            "Cloud TPU received a bad request. scheduling_config must not be set in the node of a "
            "queued resource"
        )
    if queued.WhichOneof("tier") == "spot":
        return "spot"
    return "reserved" if queued.reservation_name else "on-demand"


def node_message(node: Node, now: float) -> Message:
    """Return the node as `get` shows it."""
    spec, accelerator = node.spec, accelerators.find(node.spec.type)
    message = v2.Node.pb().FromString(spec.body)
    message.name = node.name
    message.id = node.number
    message.state = v2.Node.State[node.state]
    message.api_version = v2.Node.ApiVersion.V2
    message.accelerator_type = spec.type
    message.accelerator_config.type_ = v2.AcceleratorConfig.Type[
        accelerator.row.api_enum or "TYPE_UNSPECIFIED"
    ]
    message.accelerator_config.topology = accelerator.topology
    message.queued_resource = node.queued
    message.multislice_node = spec.multislice
    message.create_time.FromNanoseconds(int(node.created_at * 1e9))
    message.network_config.network = message.network_config.network or "default"
    message.cidr_block = "127.0.0.0/8" if node.addresses else ""  # the hosts' network
    if spec.pricing == "spot":
        message.scheduling_config.preemptible = True
        message.scheduling_config.spot = True
    elif spec.pricing in ("reserved", "calendar"):
        message.scheduling_config.reserved = True
    if node.state in (NodeState.READY, NodeState.REPAIRING):
        message.health = v2.Node.Health[_health(node, now)]
    for address in node.addresses:
        endpoint = message.network_endpoints.add(ip_address=address, port=TPU_PORT)
        if spec.external_ips:
            endpoint.access_config.external_ip = address
    return message


def _health(node: Node, now: float) -> str:
    if node.unreachable:
        return "TIMEOUT"
    return "UNHEALTHY_MAINTENANCE" if node.maintenance_until > now else "HEALTHY"


def queued_message(queued: Queued) -> Message:
    message = v2.QueuedResource.pb().FromString(queued.body)
    message.name = queued.name
    message.create_time.FromNanoseconds(int(queued.created_at * 1e9))
    _show_each_node(message.tpu, queued)
    state = message.state
    state.state = v2.QueuedResourceState.State[queued.state]
    if queued.initiator:
        state.state_initiator = v2.QueuedResourceState.StateInitiator[queued.initiator]
    if queued.state is QueuedState.FAILED and queued.error is not None:
        state.failed_data.error.code = code_number(queued.error.code)
        state.failed_data.error.message = queued.error.message
    elif queued.state is not QueuedState.WAITING_FOR_RESOURCES:
        getattr(state, f"{queued.state.lower()}_data").SetInParent()
    return message


def _show_each_node(tpu: Message, queued: Queued) -> None:
    """Replace the spec of a Multislice by one spec per node, with its id, as gcloud reads an answer (`queued-resources
    ssh`, NODE_COUNT). Whether the service answers like this is unknown."""
    specs, ids = list(tpu.node_spec), iter(queued.specs)
    del tpu.node_spec[:]
    for spec in specs:
        for _ in range(max(1, spec.multislice_params.node_count)):
            tpu.node_spec.add().CopyFrom(spec)
            tpu.node_spec[-1].node_id = next(ids)[0]


def operation_message(operation: Operation) -> Message:
    """Return the operation; metadata and response have the types of the API version that started it."""
    metadata = v2.OperationMetadata.pb()(
        target=operation.target, verb=operation.verb, api_version=operation.api
    )
    metadata.create_time.FromNanoseconds(int(operation.created_at * 1e9))
    message = operations_pb2.Operation(name=operation.name, done=operation.done)
    if operation.ended_at is not None:
        metadata.end_time.FromNanoseconds(int(operation.ended_at * 1e9))
        if operation.error is not None:
            message.error.code = code_number(operation.error.code)
            message.error.message = operation.error.message
        else:
            message.response.Pack(_response(operation, operation.ended_at))
    message.metadata.Pack(_in_version(metadata, operation.api))
    return message


def _response(operation: Operation, now: float) -> Message:
    match operation.response:
        case Node() as node:
            return _in_version(node_message(node, now), operation.api)
        case Queued() as queued:
            return _in_version(queued_message(queued), operation.api)
        case _ if operation.api == "v2alpha1" and "/queuedResources/" in operation.target:
            # Deleting a queued resource answers with its last state in v2alpha1, with nothing in v2.
            return v2alpha1.QueuedResource.pb()(name=operation.target)
        case _:
            return empty_pb2.Empty()


def _in_version(message: Message, api: str) -> Message:
    if api == "v2":
        return message
    return convert_version(message, getattr(v2alpha1, message.DESCRIPTOR.name).pb())


def code_number(name: str) -> int:
    return int(grpc.StatusCode[name].value[0])


def _type(node: Message) -> str:
    """Return the type's name; a request may give generation and topology instead."""
    if node.accelerator_type or not node.HasField("accelerator_config"):
        return node.accelerator_type
    generation = v2.AcceleratorConfig.Type(node.accelerator_config.type_).name
    topology = node.accelerator_config.topology
    for accelerator in accelerators.ALL.values():
        if accelerator.row.api_enum == generation and accelerator.topology == topology:
            return accelerator.type
    return f"{generation} {topology}"


# Names and pages -----------------------------------------------------------------------------------------------------


_NAME = re.compile(r"projects/([^/]+)/locations/([^/]+)(?:/([^/]+)/([^/]+))?")

_Item = TypeVar("_Item")


def zone_of(parent: str) -> tuple[str, str]:
    """Return project and zone of `projects/P/locations/Z`, or of a resource below it. Raise ApiError."""
    match = _NAME.fullmatch(parent)
    if match is None:
        raise invalid(f"Invalid resource name {parent[:200]!r}")
    return match[1], match[2]


def page(
    items: Sequence[tuple[str, _Item]], *, size: int, max_size: int, token: str
) -> tuple[list[_Item], str]:
    """Return the items after `token`, and the token of the next page. `items` are (key, item), sorted by key; a token
    is a key, so items added or removed between two pages shift no others."""
    size = min(size or max_size, max_size)
    first = bisect_right(items, token, key=itemgetter(0)) if token else 0
    chosen = items[first : first + size]
    next_token = chosen[-1][0] if first + size < len(items) else ""
    return [item for _, item in chosen], next_token
