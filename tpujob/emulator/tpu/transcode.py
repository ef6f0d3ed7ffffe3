"""HTTP and JSON to messages of the API and back, by the `google.api.http` rules of its protos. No sockets, no calls.

Google's generator has written the rules of v2, those of operations and locations among them, into the REST transport of
the client library; they are read from there. The library has no such transport for v2alpha1 and v1. The rules of
v2alpha1 are those of v2 and `_ONLY_IN_V2ALPHA1` (seen in gcloud's generated client of v2alpha1, which a test compares).
"""

# The generated message classes carry no types that a checker can follow.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import unquote

from google.cloud.tpu_v2.services.tpu.transports import rest_base
from google.protobuf import json_format

from tpujob.emulator.tpu.convert import Message
from tpujob.emulator.tpu.records import ApiError

_NODE = "{name=projects/*/locations/*/nodes/*}"
_ONLY_IN_V2ALPHA1 = {
    "SimulateMaintenanceEvent": ("POST", f"/v2alpha1/{_NODE}:simulateMaintenanceEvent", "*"),
    "ListReservations": ("GET", "/v2alpha1/{parent=projects/*/locations/*}/reservations", ""),
}
#: gcloud asks version 1, of TPUs without VMs, for the locations, and for types where the command does not say `tpu-vm`
IN_V1 = ("GetLocation", "ListLocations", "GetAcceleratorType", "ListAcceleratorTypes")
#: of every Google API; none of them changes what a call does
_SYSTEM = frozenset(
    {"$alt", "alt", "$.xgafv", "access_token", "callback", "fields", "key", "oauth_token"}
    | {"prettyPrint", "quotaUser", "trace", "uploadType", "upload_protocol"}
)
#: Fields that gcloud sends and the client library does not know yet, with the values that say nothing new.
_NEWER = {"provisioningModel": ("PROVISIONING_MODEL_UNSPECIFIED", "STANDARD", "SPOT")}
_INVALID = "Invalid JSON payload received."


@dataclass(frozen=True)
class HttpRule:
    """How one call looks as HTTP."""

    version: str  #: `v2`
    call: str  #: `CreateNode`
    method: str
    uri: str  #: `/v2/{parent=projects/*/locations/*}/nodes`
    body: str  #: the field of the request that the body is; `*`: all of the request; empty: no body

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Of the path, with one group, the resource."""
        before, _, rest = self.uri.partition("{")
        template, _, after = rest.partition("=")[2].partition("}")
        # `:` begins the verb at the end of a path, and may be in the name of a project.
        segments = ["[^/]+" if part == "*" else re.escape(part) for part in template.split("/")]
        if not after.startswith("/"):
            segments[-1] = segments[-1].replace("[^/]", "[^/:]")
        return re.compile(f"{re.escape(before)}({'/'.join(segments)}){re.escape(after)}")

    def match(self, method: str, path: str) -> dict[str, str] | None:
        """The field that the path holds; None: it is another call. `path` is still percent-encoded."""
        found = self.pattern.fullmatch(path) if method == self.method else None
        field = self.uri.partition("{")[2].partition("=")[0]
        return {field: unquote(found[1])} if found else None


def rules() -> Iterator[HttpRule]:
    """Those of every call that HTTP knows, by version."""
    for name, holder in vars(rest_base._BaseTpuRestTransport).items():
        call = name.removeprefix("_Base")
        for option in holder._get_http_options() if call != name else ():
            method, uri = option["method"].upper(), option["uri"].removeprefix("/v2/")
            for version in ("v2", "v2alpha1", *(("v1",) if call in IN_V1 else ())):
                yield HttpRule(version, call, method, f"/{version}/{uri}", option.get("body", ""))
    for call, (method, uri, body) in _ONLY_IN_V2ALPHA1.items():
        yield HttpRule("v2alpha1", call, method, uri, body)


def request(
    rule: HttpRule,
    named: Mapping[str, str],
    query: Mapping[str, str],
    body: dict[str, Any],
    message_class: Any,
) -> Message:
    """The message of one HTTP request; `named` is what its path holds. Raises ApiError, in Google's words, for a field
    that the API does not know, and for a value that is none of the field's."""
    kind = message_class.DESCRIPTOR
    fields: dict[str, Any] = dict(body) if rule.body == "*" else {}
    if rule.body not in ("", "*"):
        fields[rule.body] = body
    _check(fields, kind, "")
    for name, text in query.items():
        if name not in _SYSTEM:
            _put(fields, kind, name, text)
    for name, text in named.items():
        _put(fields, kind, name, text)
    try:
        return json_format.ParseDict(fields, message_class())
    except json_format.ParseError as error:
        raise ApiError("INVALID_ARGUMENT", f"{_INVALID} {error}") from error


def response(message: Message, query: Mapping[str, str]) -> Any:
    """The JSON of an answer. Google's own REST client asks for enums as numbers."""
    numbers = "enum-encoding=int" in query.get("$alt", query.get("alt", ""))
    return json_format.MessageToDict(message, use_integers_for_enums=numbers)


def _put(fields: dict[str, Any], kind: Any, name: str, text: str) -> None:
    """Add a parameter of the path or of the query: `node.name` is a field of a field."""
    first, _, rest = name.partition(".")
    field = _field(kind, first)
    if field is None or (rest and field.message_type is None):
        what = f"Cannot bind query parameter. Field '{name}' could not be found in request message."
        raise ApiError("INVALID_ARGUMENT", f'{_INVALID} Unknown name "{name}": {what}')
    if rest:
        _put(fields.setdefault(field.name, {}), field.message_type, rest, text)
        return
    value: Any = text
    if field.type == field.TYPE_BOOL and text.lower() in ("true", "false"):  # gcloud says `True`
        value = text.lower() == "true"
    fields.pop(field.json_name, None)  # a body may have it, too
    fields[field.name] = [value] if field.is_repeated else value


def _check(fields: dict[str, Any], kind: Any, place: str) -> None:
    """Raises ApiError for a field that the message does not have. Takes out the newer ones that say nothing."""
    for name, value in list(fields.items()):
        field = _field(kind, name)
        if field is None:
            if value not in _NEWER.get(name, ()):
                at = f" at '{place}'" if place else ""
                raise ApiError(
                    "INVALID_ARGUMENT", f'{_INVALID} Unknown name "{name}"{at}: Cannot find field.'
                )
            del fields[name]
        elif field.message_type is not None:
            inside = f"{place}.{field.name}" if place else field.name
            _check_value(value, field.message_type, inside)


def _check_value(value: Any, kind: Any, place: str) -> None:
    if kind.full_name.startswith("google.protobuf."):  # has a JSON form of its own
        return
    if isinstance(value, list):
        for index, one in enumerate(value):
            _check_value(one, kind, f"{place}[{index}]")
    elif isinstance(value, dict) and not kind.GetOptions().map_entry:
        _check(value, kind, place)


def _field(kind: Any, name: str) -> Any:
    """By either of the spellings that Google accepts: `nodeId`, `node_id`. None: there is none."""
    by_json = {field.json_name: field for field in kind.fields}
    return by_json.get(name) or kind.fields_by_name.get(name)
