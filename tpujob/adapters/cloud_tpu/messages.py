"""Parses messages of the Cloud TPU API into records of ours."""
# The client library's generated classes carry no types that a checker can follow.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from typing import Any

from tpujob.adapters.cloud_tpu.request import MARKS
from tpujob.adapters.cloud_tpu.slice_state import NodeSeen, QueuedSeen
from tpujob.domain.model import Endpoint
from tpujob.protocol import PRICING_LABEL


def id_of(name: str) -> str:
    """Return the last part of a resource's name."""
    return name.rpartition("/")[2]


def raw(message: Any) -> Any:
    """Return the message without the library's wrapper, which is slow and warns of new enum values."""
    return type(message).pb(message) if hasattr(type(message), "pb") else message


def queued_seen(queued: Any) -> QueuedSeen:
    """Parse a queued resource, with the library's wrapper or without."""
    queued = raw(queued)
    specs = queued.tpu.node_spec
    error = queued.state.failed_data.error
    marks = _marks(specs[0].node) if specs else {}
    return QueuedSeen(
        state=_enum_name(queued.state, "state"),
        initiator=_enum_name(queued.state, "state_initiator"),
        error_code=error.code,
        error=error.message,
        marks=marks,
        created_at=_seconds(queued.create_time),
        type=specs[0].node.accelerator_type if specs else "",
        # one spec for all nodes, as requested, or a spec for each, as gcloud expects in answers
        nodes=max(1, sum(max(1, spec.multislice_params.node_count) for spec in specs)),
        pricing=marks.get(PRICING_LABEL)
        or _pricing(
            spot=queued.HasField("spot"),
            reserved=bool(queued.reservation_name)
            or any(spec.node.scheduling_config.reserved for spec in specs),
        ),
    )


def node_seen(node: Any) -> NodeSeen:
    """Parse a node, with the library's wrapper or without."""
    node = raw(node)
    marks = _marks(node)
    return NodeSeen(
        state=_enum_name(node, "state"),
        endpoints=tuple(
            Endpoint(host, address.ip_address, address.access_config.external_ip)
            for host, address in enumerate(node.network_endpoints)
        ),
        health=_enum_name(node, "health"),
        described=", ".join(filter(None, (node.health_description, _newest_symptom(node)))),
        marks=marks,
        created_at=_seconds(node.create_time),
        type=node.accelerator_type,
        pricing=marks.get(PRICING_LABEL)
        or _pricing(
            spot=node.scheduling_config.spot or node.scheduling_config.preemptible,
            reserved=node.scheduling_config.reserved,
        ),
    )


def _marks(node: Any) -> dict[str, str]:
    """Return the marks of a node, from its labels; from its metadata where the answer has no labels."""
    return {
        mark: value for mark in MARKS if (value := node.labels.get(mark) or node.metadata.get(mark))
    }


def _newest_symptom(node: Any) -> str:
    """Return the newest symptom, because the list keeps old ones; empty: none."""
    if not node.symptoms:
        return ""
    newest = max(node.symptoms, key=lambda symptom: _seconds(symptom.create_time))
    kind = _enum_name(newest, "symptom_type")
    return f"{kind} on {newest.worker_id}" if newest.worker_id else kind


def _pricing(*, spot: bool, reserved: bool) -> str:
    return "spot" if spot else "reserved" if reserved else "on-demand"


def _seconds(timestamp: Any) -> float:
    return timestamp.ToNanoseconds() / 1e9


def _enum_name(message: Any, field: str) -> str:
    """Return the name of an enum field's value; the number of a value that is newer than the library."""
    value = getattr(message, field)
    names = message.DESCRIPTOR.fields_by_name[field].enum_type.values_by_number
    return names[value].name if value in names else str(value)
