"""From the messages of the Cloud TPU API to our records of them."""
# The client library's generated classes carry no types that a checker can follow.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from typing import Any

from tpujob.adapters.cloud_tpu.request import MARKS
from tpujob.adapters.cloud_tpu.slice_state import NodeSeen, QueuedSeen
from tpujob.domain.model import Endpoint


def id_of(name: str) -> str:
    """The last part of a resource's name."""
    return name.rpartition("/")[2]


def raw(message: Any) -> Any:
    """Return the message without the library's wrapper, which is slow and warns of new enum values."""
    return type(message).pb(message) if hasattr(type(message), "pb") else message


def queued_seen(queued: Any) -> QueuedSeen:
    """`queued`, and `node` below: with the library's wrapper, or without."""
    queued = raw(queued)
    specs = queued.tpu.node_spec
    error = queued.state.failed_data.error
    return QueuedSeen(
        state=_word(queued.state, "state"),
        initiator=_word(queued.state, "state_initiator"),
        error_code=error.code,
        error=error.message,
        marks=_marks(specs[0].node) if specs else {},
        created_at=_seconds(queued.create_time),
        type=specs[0].node.accelerator_type if specs else "",
        # one spec for all nodes, as requested, or one spec for each, as gcloud reads an answer
        nodes=max(1, sum(max(1, one.multislice_params.node_count) for one in specs)),
        pricing=_pricing(
            spot=queued.HasField("spot"),
            reserved=bool(queued.reservation_name)
            or any(one.node.scheduling_config.reserved for one in specs),
        ),
    )


def node_seen(node: Any) -> NodeSeen:
    node = raw(node)
    return NodeSeen(
        state=_word(node, "state"),
        endpoints=tuple(
            Endpoint(host, one.ip_address, one.access_config.external_ip)
            for host, one in enumerate(node.network_endpoints)
        ),
        health=_word(node, "health"),
        described=", ".join(s for s in (node.health_description, _symptom(node)) if s),
        marks=_marks(node),
        created_at=_seconds(node.create_time),
        type=node.accelerator_type,
        pricing=_pricing(
            spot=node.scheduling_config.spot or node.scheduling_config.preemptible,
            reserved=node.scheduling_config.reserved,
        ),
    )


def _marks(node: Any) -> dict[str, str]:
    """Return its owner and job, by its labels; where the answer has none, by its metadata."""
    return {
        mark: value for mark in MARKS if (value := node.labels.get(mark) or node.metadata.get(mark))
    }


def _symptom(raw: Any) -> str:
    """Return the newest symptom: old ones are kept in the list."""
    if not raw.symptoms:
        return ""
    newest = max(raw.symptoms, key=lambda one: _seconds(one.create_time))
    kind = _word(newest, "symptom_type")
    return " ".join(s for s in (kind, f"on {newest.worker_id}" if newest.worker_id else "") if s)


def _pricing(*, spot: bool, reserved: bool) -> str:
    return "spot" if spot else "reserved" if reserved else "on-demand"


def _seconds(timestamp: Any) -> float:
    return timestamp.ToNanoseconds() / 1e9


def _word(message: Any, field: str) -> str:
    """The name of an enum field's value; a value newer than the library is its number."""
    value = getattr(message, field)
    known = message.DESCRIPTOR.fields_by_name[field].enum_type.values_by_number
    return known[value].name if value in known else str(value)
