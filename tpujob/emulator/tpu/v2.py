"""The gRPC service google.cloud.tpu.v2.Tpu: translates messages to calls of the world and back. No rules here."""

# The generated message classes carry no types that a checker can follow.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Callable
from dataclasses import replace

from google.cloud.tpu_v2.types import cloud_tpu as v2

from tpujob.domain.hardware import accelerators
from tpujob.emulator.cloud import nodes, queue, rules
from tpujob.emulator.cloud.records import NewerFields, Node, NodeSpec, Queued, invalid
from tpujob.emulator.cloud.world import not_found
from tpujob.emulator.tpu.convert import (
    Message,
    id_of,
    node_message,
    node_spec,
    operation_message,
    page,
    queued_message,
    queued_tier,
    zone_of,
)
from tpujob.emulator.tpu.served_world import ServedWorld

Handler = Callable[[Message], Message]


class TpuV2:
    """The calls of the service, a method each; `api` is the version that the caller speaks, for its operations."""

    def __init__(self, world: ServedWorld, api: str = "v2") -> None:
        self._world = world
        self._api = api

    def methods(self) -> dict[str, tuple[Handler, Message]]:
        """Return handler and type of request, by name of the call."""
        return {
            "ListNodes": (self.list_nodes, v2.ListNodesRequest),
            "GetNode": (self.get_node, v2.GetNodeRequest),
            "GetGuestAttributes": (self.get_guests, v2.GetGuestAttributesRequest),
            "CreateNode": (self.create_node, v2.CreateNodeRequest),
            "DeleteNode": (self.delete_node, v2.DeleteNodeRequest),
            "StopNode": (self.stop_node, v2.StopNodeRequest),
            "StartNode": (self.start_node, v2.StartNodeRequest),
            "ListQueuedResources": (self.list_queued, v2.ListQueuedResourcesRequest),
            "GetQueuedResource": (self.get_queued, v2.GetQueuedResourceRequest),
            "CreateQueuedResource": (self.create_queued, v2.CreateQueuedResourceRequest),
            "DeleteQueuedResource": (self.delete_queued, v2.DeleteQueuedResourceRequest),
            "ResetQueuedResource": (self.reset_queued, v2.ResetQueuedResourceRequest),
            "ListAcceleratorTypes": (self.list_types, v2.ListAcceleratorTypesRequest),
            "GetAcceleratorType": (self.get_type, v2.GetAcceleratorTypeRequest),
            "ListRuntimeVersions": (self.list_versions, v2.ListRuntimeVersionsRequest),
            "GetRuntimeVersion": (self.get_version, v2.GetRuntimeVersionRequest),
        }

    # Nodes

    def list_nodes(self, request: Message) -> Message:
        project, zone = self._zone_of(request.parent)
        listed = [(n.name, n) for n in self._world.list_nodes(project, zone)]
        chosen, token = self._page(listed, request)
        messages = [self._shown_node(node) for node in chosen]
        missed = self._unreachable(project, zone)
        return v2.ListNodesResponse.pb()(nodes=messages, next_page_token=token, unreachable=missed)

    def get_node(self, request: Message) -> Message:
        self._zone_of(request.name)
        return self._shown_node(self._world.get_node(request.name))

    def get_guests(self, request: Message) -> Message:
        """Return an entry for each requested worker, in order; empty where the worker has published nothing."""
        self._zone_of(request.name)
        node = self._world.get_node(request.name)
        requested = [id for id in request.worker_ids if id]
        if not all(id.isdecimal() and int(id) < len(node.addresses) for id in requested):
            raise invalid(f"{node.id} has no workers {', '.join(requested)}")
        workers = [int(id) for id in requested] or range(len(node.addresses))
        response = v2.GetGuestAttributesResponse.pb()()
        for worker in workers:
            entry = response.guest_attributes.add(query_path=request.query_path)
            entry.query_value.SetInParent()  # gcloud fails on an entry without it
            for path, value in node.guests[worker].items():
                if path.startswith(request.query_path.lstrip("/")):
                    namespace, _, key = path.partition("/")
                    entry.query_value.items.add(namespace=namespace, key=key, value=value)
        return response

    def create_node(self, request: Message, *, request_id: str = "") -> Message:
        """`request_id`: only in v2alpha1."""
        project, zone = zone_of(request.parent)
        started = nodes.create(
            self._world,
            project,
            zone,
            request.node_id,
            node_spec(request.node),
            api=self._api,
            request_id=request_id,
        )
        return operation_message(started)

    def delete_node(self, request: Message) -> Message:
        self._zone_of(request.name)
        return operation_message(nodes.delete(self._world, request.name, api=self._api))

    def stop_node(self, request: Message) -> Message:
        return operation_message(nodes.stop(self._world, request.name, api=self._api))

    def start_node(self, request: Message) -> Message:
        return operation_message(nodes.start(self._world, request.name, api=self._api))

    # Queued resources

    def list_queued(self, request: Message) -> Message:
        project, zone = self._zone_of(request.parent)
        listed = [(q.name, q) for q in self._world.list_queued(project, zone)]
        chosen, token = self._page(listed, request)
        messages = [self._shown_queued(queued) for queued in chosen]
        missed = self._unreachable(project, zone)
        return v2.ListQueuedResourcesResponse.pb()(
            queued_resources=messages, next_page_token=token, unreachable=missed
        )

    def get_queued(self, request: Message) -> Message:
        self._zone_of(request.name)
        return self._shown_queued(self._world.get_queued(request.name))

    def create_queued(self, request: Message, newer: NewerFields | None = None) -> Message:
        project, zone = zone_of(request.parent)
        resource = request.queued_resource
        rules.check_reservation(self._world, zone, resource.reservation_name)
        valid_for = _valid_for(resource, self._world.clock())
        if valid_for is not None and valid_for <= 0:
            text = "Cloud TPU received a bad request. the valid-until time must be in the future"
            raise invalid(text)
        started = queue.create(
            self._world,
            project,
            zone,
            request.queued_resource_id,
            _specs(resource, request.parent, request.queued_resource_id),
            api=self._api,
            body=resource.SerializeToString(),
            request_id=request.request_id,
            valid_for=valid_for,
            newer=newer,
        )
        conflict = rules.already_exists(started.target)
        if "late-conflict-operation" in self._world.faults.api_bugs:
            self._world.finish(started.name, error=conflict)
        if "late-conflict" in self._world.faults.api_bugs:
            raise conflict
        return operation_message(started)

    def delete_queued(self, request: Message) -> Message:
        self._zone_of(request.name)
        started = queue.delete(self._world, request.name, force=request.force, api=self._api)
        return operation_message(started)

    def reset_queued(self, request: Message) -> Message:
        return operation_message(queue.reset(self._world, request.name, api=self._api))

    # What a zone offers

    def list_types(self, request: Message) -> Message:
        _, zone = self._zone_of(request.parent)
        types = sorted(self._world.stock.types(zone))
        listed = [(type, _type_message(request.parent, type)) for type in types]
        chosen, token = self._page(listed, request)
        return v2.ListAcceleratorTypesResponse.pb()(accelerator_types=chosen, next_page_token=token)

    def get_type(self, request: Message) -> Message:
        _, zone = self._zone_of(request.name)
        if (type := id_of(request.name)) not in self._world.stock.types(zone):
            raise not_found(request.name)
        return _type_message(request.name.partition("/acceleratorTypes")[0], type)

    def list_versions(self, request: Message) -> Message:
        self._zone_of(request.parent)
        versions = sorted(rules.RUNTIME_VERSIONS)
        listed = [(version, _version_message(request.parent, version)) for version in versions]
        chosen, token = self._page(listed, request)
        return v2.ListRuntimeVersionsResponse.pb()(runtime_versions=chosen, next_page_token=token)

    def get_version(self, request: Message) -> Message:
        self._zone_of(request.name)
        if (version := id_of(request.name)) not in rules.RUNTIME_VERSIONS:
            raise not_found(request.name)
        return _version_message(request.name.partition("/runtimeVersions")[0], version)

    # Shared

    def _shown_node(self, node: Node) -> Message:
        message = node_message(node, self._world.clock())
        if "no-labels" in self._world.faults.api_bugs:
            message.labels.clear()
        return message

    def _shown_queued(self, queued: Queued) -> Message:
        message = queued_message(queued)
        if "no-labels" in self._world.faults.api_bugs:
            for spec in message.tpu.node_spec:
                spec.node.labels.clear()
        return message

    def _unreachable(self, project: str, zone: str) -> list[str]:
        """Return the locations that a list of that zone, or of all zones (`-`), leaves out."""
        zones = self._world.faults.unreachable
        return [f"projects/{project}/locations/{z}" for z in sorted(zones) if zone in ("-", z)]

    def _zone_of(self, name: str) -> tuple[str, str]:
        project, zone = zone_of(name)
        if zone != "-":
            rules.check_zone(self._world, zone)
        return project, zone

    def _page(
        self, listed: list[tuple[str, Message]], request: Message
    ) -> tuple[list[Message], str]:
        size, token = request.page_size, request.page_token
        return page(listed, size=size, max_size=self._world.page_size, token=token)


def _specs(queued: Message, parent: str, id: str) -> list[tuple[str, NodeSpec]]:
    """Return the nodes that a queued resource requests: one with its id, or several with a common prefix."""
    specs: list[tuple[str, NodeSpec]] = []
    for item in queued.tpu.node_spec:
        if item.parent.rpartition("/")[2] != parent.rpartition("/")[2]:
            raise invalid(f"node_spec.parent {item.parent!r} must name the zone of {parent!r}")
        spec = node_spec(item.node, queued_tier(queued, item.node))
        if item.WhichOneof("name_strategy") == "multislice_params":
            specs += _multislice_specs(item.multislice_params, id, spec)
        else:
            specs.append((item.node_id, spec))
    return specs


def _multislice_specs(params: Message, id: str, spec: NodeSpec) -> list[tuple[str, NodeSpec]]:
    if params.node_count < 2:
        text = f"multislice_params.node_count must be greater than 1, not {params.node_count}"
        raise invalid(text)
    prefix, shared_spec = params.node_id_prefix or id, replace(spec, multislice=True)
    return [(f"{prefix}-{k}", shared_spec) for k in range(params.node_count)]


def _valid_for(queued: Message, now: float) -> float | None:
    """Return how many seconds a request may wait; None: for ever. Write the end of that time into the message, as the
    API shows it in either form of request."""
    policy = queued.queueing_policy
    match policy.WhichOneof("start_timing_constraints"):
        case "valid_until_duration":
            nanos = policy.valid_until_duration.ToNanoseconds()
            if nanos > 0:
                policy.valid_until_time.FromNanoseconds(int(now * 1e9) + nanos)
            return nanos / 1e9
        case "valid_until_time":
            return policy.valid_until_time.ToNanoseconds() / 1e9 - now
        case _:
            return None


def _type_message(parent: str, type: str) -> Message:
    message = v2.AcceleratorType.pb()(name=f"{parent}/acceleratorTypes/{type}", type_=type)
    accelerator = accelerators.find(type)
    kind = v2.AcceleratorConfig.Type[accelerator.row.api_enum or "TYPE_UNSPECIFIED"]
    message.accelerator_configs.add(type_=kind, topology=accelerator.topology)
    return message


def _version_message(parent: str, version: str) -> Message:
    return v2.RuntimeVersion.pb()(name=f"{parent}/runtimeVersions/{version}", version=version)
