"""Counts the TPU quota that a project holds, by the nodes and queued resources that the Cloud TPU API lists."""
# The client library's generated classes carry no types that a checker can follow.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import math
from collections.abc import Iterator, Sequence
from typing import Any

from tpujob.adapters.cloud_tpu.calls import Api
from tpujob.adapters.cloud_tpu.lists import Lists, ZoneList
from tpujob.adapters.cloud_tpu.messages import node_seen, queued_seen, raw
from tpujob.doctor.quota import kind_of
from tpujob.domain.hardware import accelerators
from tpujob.domain.hardware.pricing import find_pricing
from tpujob.errors import BadSpec, TpujobError
from tpujob.lib.tries import Deadline
from tpujob.ports import Held, QuotaKind, QuotaUse


def count_usage(
    project: str, zones: Sequence[str], *, timeout: float, endpoint: str = ""
) -> QuotaUse:
    """Count the quota that all users of the project hold in these zones, by resources in any state. Suspended, failed
    and preempted resources hold quota until they are deleted (seen in public: marin#87). That waiting requests do is
    inferred (live: usage-held). Never raises for the API's errors. `endpoint`: `host:port` of an emulator."""
    api = Api(project, endpoint=endpoint)
    try:
        results = Lists(api).zones(zones, Deadline(timeout))
    finally:
        api.close()
    return QuotaUse(
        held=[
            held
            for zone, resources in results.items()
            if isinstance(resources, ZoneList)
            for held in _held_in_zone(zone, resources)
        ],
        missed={
            zone: error.message for zone, error in results.items() if isinstance(error, TpujobError)
        },
    )


def _held_in_zone(zone: str, resources: ZoneList) -> Iterator[Held]:
    """Yield what the zone's queued resources hold, and the nodes that belong to none."""
    for queued in resources.queued:
        pricing = queued_seen(queued).pricing
        for spec in queued.tpu.node_spec:
            for _ in range(max(1, spec.multislice_params.node_count)):
                yield from _held_by_node(spec.node, zone, pricing)
    for node in resources.nodes:
        if not node.queued_resource:
            yield from _held_by_node(node, zone, node_seen(node).pricing)


def _held_by_node(node: Any, zone: str, pricing: str) -> Iterator[Held]:
    """Yield what a node of this type holds; nothing for an invalid type."""
    if node.accelerator_type:
        try:
            chips = accelerators.find(node.accelerator_type).chips
            yield Held(kind_of(node.accelerator_type, pricing), zone, chips)
        except BadSpec:
            return
    elif node.accelerator_config.topology:
        config = raw(node).accelerator_config
        chips = math.prod(map(int, config.topology.split("x")))
        enums = config.DESCRIPTOR.fields_by_name["type_"].enum_type.values_by_number
        for generation in accelerators.GENERATIONS.values():
            if config.type_ in enums and enums[config.type_].name == generation.api_enum:
                yield Held(QuotaKind(generation.name, find_pricing(pricing).quota), zone, chips)
