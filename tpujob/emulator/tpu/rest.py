"""The REST face of the Cloud TPU API: the calls of `server.py` over HTTP and JSON, for gcloud and clients of REST."""

# The generated message classes carry no types that a checker can follow.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import asyncio
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any
from urllib.parse import unquote

from google.cloud.tpu_v2.services.tpu.transports import rest_base
from google.protobuf import json_format
from starlette.responses import Response

from tpujob.emulator.cloud.records import ApiError, invalid
from tpujob.emulator.http_server import Handler, Request, json_response
from tpujob.emulator.tpu import newer
from tpujob.emulator.tpu.convert import Message
from tpujob.emulator.tpu.served_world import ServedWorld
from tpujob.emulator.tpu.server import carry_out, message_class, next_fault, services

#: the HTTP status of each gRPC status (documented: google/rpc/code.proto), but for one
_HTTP_STATUS = {
    "CANCELLED": 499,
    "UNKNOWN": 500,
    "INVALID_ARGUMENT": 400,
    "DEADLINE_EXCEEDED": 504,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "PERMISSION_DENIED": 403,
    "UNAUTHENTICATED": 401,
    "RESOURCE_EXHAUSTED": 429,
    "FAILED_PRECONDITION": 400,
    "ABORTED": 409,
    "OUT_OF_RANGE": 400,
    "UNIMPLEMENTED": 400,  # not 501: gcloud repeats that for half a minute
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
    "DATA_LOSS": 500,
}


#: an optional beginning of paths, for clients of many APIs on one server
HOST_PREFIX = "/tpu.googleapis.com"


def handler(world: ServedWorld) -> Handler:
    """Return the function that answers one request. Errors have Google's JSON for errors."""
    calls = {
        (version, call): method
        for version, served in _by_version(services(world)).items()
        for call, method in served.items()
    }
    rules = list(http_rules())

    async def answer(request: Request) -> Response:
        try:
            if not request.is_from_this_machine:
                raise ApiError("PERMISSION_DENIED", "Only programs of this machine are served.")
            for rule in rules:
                path_fields = rule.match(request.method, request.path.removeprefix(HOST_PREFIX))
                if path_fields is not None:
                    return await call_rule(rule, path_fields, request)
            raise ApiError("NOT_FOUND", "Method not found.")
        except ApiError as error:
            return _error(error)

    async def call_rule(rule: HttpRule, path_fields: dict[str, str], request: Request) -> Response:
        if (rule.version, rule.call) not in calls:
            raise ApiError("UNIMPLEMENTED", f"{rule.call} is not emulated.")
        method, request_class = calls[rule.version, rule.call]
        body = await _body(request) if rule.body else {}
        if (rule.version, rule.call) == ("v2alpha1", "CreateQueuedResource"):
            method = partial(method, newer=newer.take(body))
        parsed = read_request(
            rule, path_fields, request.query_params, body, message_class(request_class)
        )
        fault = next_fault(world, rule.call)
        if fault.delay_s:
            await asyncio.sleep(fault.delay_s)
        message = carry_out(world, method, parsed, fault)
        answered = message_json(message, request.query_params)
        if rule.version == "v2alpha1":
            with world.lock:
                newer.show(world, answered)
        return json_response(answered)

    return answer


def _by_version(served: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the calls of each version; operations and locations are the same in all versions."""
    shared = {
        **served["google.longrunning.Operations"],
        **served["google.cloud.location.Locations"],
    }
    v2 = {**served["google.cloud.tpu.v2.Tpu"], **shared}
    return {
        "v1": {call: v2[call] for call in IN_V1},
        "v2": v2,
        "v2alpha1": {**served["google.cloud.tpu.v2alpha1.Tpu"], **shared},
    }


async def _body(request: Request) -> dict[str, Any]:
    try:
        return await request.json_object()
    except ValueError as error:
        raise invalid(f"{_INVALID} {error}") from error


def _error(error: ApiError) -> Response:
    status = _HTTP_STATUS[error.code]
    body = {"code": status, "message": error.message, "status": error.code}
    return json_response({"error": body}, status)


# HTTP and JSON to messages of the API and back: no sockets, no calls -------------------------------------------------


_NODE = "{name=projects/*/locations/*/nodes/*}"
_ONLY_IN_V2ALPHA1 = {
    "SimulateMaintenanceEvent": ("POST", f"/v2alpha1/{_NODE}:simulateMaintenanceEvent", "*"),
    "ListReservations": ("GET", "/v2alpha1/{parent=projects/*/locations/*}/reservations", ""),
}
#: calls that gcloud makes to version 1, for TPUs without VMs: locations, and types where a command lacks `tpu-vm`
IN_V1 = ("GetLocation", "ListLocations", "GetAcceleratorType", "ListAcceleratorTypes")
#: parameters of every Google API, without an effect on the call
_SYSTEM = frozenset(
    {"$alt", "alt", "$.xgafv", "access_token", "callback", "fields", "key", "oauth_token"}
    | {"prettyPrint", "quotaUser", "trace", "uploadType", "upload_protocol"}
)
#: Fields of gcloud in calls that `newer.py` does not know, with the values that change nothing.
_NEWER = {"provisioningModel": ("PROVISIONING_MODEL_UNSPECIFIED", "STANDARD", "SPOT")}
_INVALID = "Invalid JSON payload received."


@dataclass(frozen=True)
class HttpRule:
    """The HTTP form of one call."""

    version: str  #: `v2`
    call: str  #: `CreateNode`
    method: str
    uri: str  #: `/v2/{parent=projects/*/locations/*}/nodes`
    body: str  #: the request's field that the body holds; `*`: the whole request; empty: no body

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The pattern of the path, with one group, the resource."""
        before, _, rest = self.uri.partition("{")
        template, _, after = rest.partition("=")[2].partition("}")
        # `:` begins the verb at the end of a path, and may be in the name of a project.
        segments = ["[^/]+" if part == "*" else re.escape(part) for part in template.split("/")]
        if not after.startswith("/"):
            segments[-1] = segments[-1].replace("[^/]", "[^/:]")
        return re.compile(f"{re.escape(before)}({'/'.join(segments)}){re.escape(after)}")

    def match(self, method: str, path: str) -> dict[str, str] | None:
        """Return the field that the path holds; None for another call. `path` is still percent-encoded."""
        match = self.pattern.fullmatch(path) if method == self.method else None
        field = self.uri.partition("{")[2].partition("=")[0]
        return {field: unquote(match[1])} if match else None


def http_rules() -> Iterator[HttpRule]:
    """Yield the rules of every call with an HTTP form, by version."""
    for name, holder in vars(rest_base._BaseTpuRestTransport).items():
        call = name.removeprefix("_Base")
        for option in holder._get_http_options() if call != name else ():
            method, uri = option["method"].upper(), option["uri"].removeprefix("/v2/")
            for version in ("v2", "v2alpha1", *(("v1",) if call in IN_V1 else ())):
                yield HttpRule(version, call, method, f"/{version}/{uri}", option.get("body", ""))
    for call, (method, uri, body) in _ONLY_IN_V2ALPHA1.items():
        yield HttpRule("v2alpha1", call, method, uri, body)


def read_request(
    rule: HttpRule,
    path_fields: Mapping[str, str],
    query: Mapping[str, str],
    body: dict[str, Any],
    message_class: Any,
) -> Message:
    """Return the message of one HTTP request; `path_fields` is the part that its path holds. Raise ApiError for an
    unknown field and for an invalid value."""
    kind = message_class.DESCRIPTOR
    fields: dict[str, Any] = _without_newer(body)
    if rule.body != "*":
        fields = {rule.body: fields} if rule.body else {}
    for name, text in query.items():
        if name not in _SYSTEM:
            _put(fields, kind, name, text)
    for name, text in path_fields.items():
        _put(fields, kind, name, text)
    try:
        return json_format.ParseDict(fields, message_class())
    except json_format.ParseError as error:
        # without the list of all fields, in a second line
        raise invalid(f"{_INVALID} {str(error).partition(chr(10))[0]}") from error


def message_json(message: Message, query: Mapping[str, str]) -> Any:
    """Return the JSON of a response. Google's own REST client requests enums as numbers."""
    numbers = "enum-encoding=int" in query.get("$alt", query.get("alt", ""))
    return json_format.MessageToDict(message, use_integers_for_enums=numbers)


def _put(fields: dict[str, Any], kind: Any, name: str, text: str) -> None:
    """Add a parameter of the path or of the query: `node.name` is a field of a field."""
    first, _, rest = name.partition(".")
    field = _field(kind, first)
    if field is None or (rest and field.message_type is None):
        hint = f"Cannot bind query parameter. Field '{name}' could not be found in request message."
        raise invalid(f'{_INVALID} Unknown name "{name}": {hint}')
    if rest:
        _put(fields.setdefault(field.name, {}), field.message_type, rest, text)
        return
    value: Any = text
    if field.type == field.TYPE_BOOL and text.lower() in ("true", "false"):  # gcloud says `True`
        value = text.lower() == "true"
    fields.pop(field.json_name, None)  # a body may have it, too
    fields[field.name] = [value] if field.is_repeated else value


def _without_newer(value: Any) -> Any:
    """Return a value of JSON without newer fields that change nothing."""
    if isinstance(value, list):
        return [_without_newer(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {k: _without_newer(v) for k, v in value.items() if v not in _NEWER.get(k, ())}


def _field(kind: Any, name: str) -> Any:
    """Return the field by either spelling that Google accepts: `nodeId`, `node_id`. None: no such field."""
    by_json = {field.json_name: field for field in kind.fields}
    return by_json.get(name) or kind.fields_by_name.get(name)
