"""Fields of v2alpha1 that Google's client library lacks, so that REST alone has them, by Google's discovery document.

Documented: FLEX_START has a maximum run duration, of at most 7 days; afterwards the service suspends the queued
resource. RESERVATION_BOUND, of calendar reservations, names one. That other requests are refused, and the texts of
that, are inferred.
"""

from collections.abc import Iterator
from typing import Any

from google.protobuf import json_format
from google.protobuf.duration_pb2 import Duration

from tpujob.domain.text import rfc3339
from tpujob.emulator.cloud.records import NewerFields, Queued, invalid
from tpujob.emulator.tpu.served_world import ServedWorld

_MODELS = ("PROVISIONING_MODEL_UNSPECIFIED", "STANDARD", "SPOT", "RESERVATION_BOUND", "FLEX_START")
_LONGEST_RUN = 7 * 86400.0
_BAD = "Invalid JSON payload received."


def take(body: dict[str, Any]) -> NewerFields:
    """Remove the fields from a queued resource that is requested, and return them. Raise ApiError."""
    fields = {key: body.pop(key) for key in ("provisioningModel", "runDuration") if key in body}
    model: Any = fields.get("provisioningModel", _MODELS[0])
    run: Any = fields.get("runDuration", {})
    if model not in _MODELS:
        raise invalid(f"{_BAD} Invalid value at 'queued_resource.provisioning_model': {model!r}")
    if not isinstance(run, dict) or run.keys() - {"maxRunDuration"}:
        raise invalid(f"{_BAD} Invalid value at 'queued_resource.run_duration': {run!r}")
    max_run_s = _seconds(fields["runDuration"]["maxRunDuration"]) if run else None
    if model == "FLEX_START" and not 0 < (max_run_s or 0) <= _LONGEST_RUN:
        raise invalid(
            "Cloud TPU received a bad request. FLEX_START needs a run_duration.max_run_duration of at most 7 days"
        )
    return NewerFields(fields, model, max_run_s)


def show(world: ServedWorld, answer: dict[str, Any]) -> None:
    """Add the fields to the queued resources and nodes of an answer. The caller holds the world's lock."""
    for document in _resources(answer):
        name = document.get("name", "")
        if queued := world.queued.get(name):
            document.update(queued.newer.fields)
        elif (node := world.nodes.get(name)) and (
            ends_at := _ends_at(world.queued.get(node.queued))
        ):
            scheduling = document.setdefault("schedulingConfig", {})
            scheduling["terminationTimestamp"] = rfc3339(ends_at)


def _resources(answer: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield answer
    yield answer.get("response", {})
    yield from answer.get("queuedResources", ())
    yield from answer.get("nodes", ())


def _ends_at(queued: Queued | None) -> float | None:
    return queued.ends_at if queued else None


def _seconds(text: Any) -> float:
    try:
        return json_format.ParseDict(text, Duration()).ToNanoseconds() / 1e9
    except json_format.ParseError as error:
        raise invalid(f"{_BAD} {error}") from error
