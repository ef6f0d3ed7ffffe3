"""The gRPC service google.cloud.tpu.v2alpha1.Tpu, as a translation of v2's.

Its messages have other field numbers, so they are translated by name. Fields with another name in v2 are renamed;
fields that v2 lacks are dropped.
"""

# The generated message classes carry no types that a checker can follow.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from dataclasses import replace

from google.cloud.tpu_v2.types import cloud_tpu as v2
from google.cloud.tpu_v2alpha1.types import cloud_tpu as v2alpha1
from google.longrunning import operations_pb2
from google.protobuf import json_format

from tpujob.emulator.cloud import interruptions
from tpujob.emulator.cloud.records import NewerFields, id_of, invalid
from tpujob.emulator.tpu.convert import Message, convert_version, operation_message
from tpujob.emulator.tpu.served_world import ServedWorld
from tpujob.emulator.tpu.v2 import Handler, TpuV2

_MAINTENANCE_S = 60.0


class TpuV2Alpha1:
    def __init__(self, world: ServedWorld) -> None:
        self._world = world
        self._v2 = TpuV2(world, "v2alpha1")

    def methods(self) -> dict[str, tuple[Handler, Message]]:
        """Return handler and type of request, by name of the call."""
        translated = {
            name: (_translated(handler, request), getattr(v2alpha1, request.__name__))
            for name, (handler, request) in self._v2.methods().items()
        }
        own = {
            "GetNode": (self.get_node, v2alpha1.GetNodeRequest),
            "CreateNode": (self.create_node, v2alpha1.CreateNodeRequest),
            "CreateQueuedResource": (self.create_queued, v2alpha1.CreateQueuedResourceRequest),
            "SimulateMaintenanceEvent": (self.maintain, v2alpha1.SimulateMaintenanceEventRequest),
            "ListReservations": (self.list_reservations, v2alpha1.ListReservationsRequest),
        }
        return {**translated, **own}

    def get_node(self, request: Message) -> Message:
        shown = self._v2.get_node(convert_version(request, v2.GetNodeRequest.pb()))
        message = convert_version(shown, v2alpha1.Node.pb())
        node = self._world.get_node(request.name)
        if node.upcoming:
            announced = interruptions.upcoming(*node.upcoming)
            json_format.ParseDict(announced, message.upcoming_maintenance)
        return message

    def create_node(self, request: Message) -> Message:
        translated = convert_version(request, v2.CreateNodeRequest.pb())
        return self._v2.create_node(translated, request_id=request.request_id)

    def create_queued(self, request: Message, newer: NewerFields | None = None) -> Message:
        """Translate the tier: `best_effort` is v2's spot; `guaranteed.reserved` without a name is reservation `-`.
        `newer`: only over REST."""
        newer = newer or NewerFields()
        requested = request.queued_resource
        translated = convert_version(request, v2.CreateQueuedResourceRequest.pb())
        queued = translated.queued_resource
        if requested.WhichOneof("tier") == "best_effort" or newer.model == "SPOT":
            queued.spot.SetInParent()
        if newer.model == "RESERVATION_BOUND" and not queued.reservation_name:
            raise invalid(
                "Cloud TPU received a bad request. RESERVATION_BOUND needs a reservation_name"
            )
        if requested.guaranteed.reserved and not queued.reservation_name:
            queued.reservation_name = f"{request.parent}/reservations/-"
        if newer.pricing == "calendar":
            newer = replace(newer, reservation=id_of(queued.reservation_name))
        return self._v2.create_queued(translated, newer)

    def maintain(self, request: Message) -> Message:
        node = self._world.get_node(request.name)
        interruptions.maintain(self._world, node, _MAINTENANCE_S)
        started = self._world.start_operation("simulateMaintenanceEvent", node.name, "v2alpha1")
        self._world.finish(started.name, response=node)
        return operation_message(started)

    def list_reservations(self, _request: Message) -> Message:
        return v2alpha1.ListReservationsResponse.pb()()


def _translated(handler: Handler, request_class: Message) -> Handler:
    def call(request: Message) -> Message:
        response = handler(convert_version(request, request_class.pb()))
        if isinstance(response, operations_pb2.Operation):
            return response
        return convert_version(response, getattr(v2alpha1, response.DESCRIPTOR.name).pb())

    return call
