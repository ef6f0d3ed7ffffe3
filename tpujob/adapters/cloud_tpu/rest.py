"""Queued resources with fields that Google's client library lacks, over REST: with the limits, the deadlines and the
meaning of errors of `calls.py`.

The fields are v2alpha1's, by Google's discovery document: `provisioningModel`, `runDuration`, and of a node
`schedulingConfig.terminationTimestamp`. All other calls go through the library, also of such a queued resource, which
it reads without them.
"""
# The client library's generated classes carry no types that a checker can follow.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import contextlib
import threading
from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import Any

from tpujob.adapters.cloud_tpu.calls import Api, Method
from tpujob.adapters.cloud_tpu.messages import queued_seen
from tpujob.adapters.cloud_tpu.slice_state import QueuedSeen
from tpujob.adapters.google import identity
from tpujob.adapters.google.rest import GoogleRest, object_in, objects
from tpujob.errors import Transient
from tpujob.lib.tries import Deadline

HOST, VERSION = "tpu.googleapis.com", "v2alpha1"


class QueuedByRest:
    """Reads and requests queued resources, counted and limited as the other calls of `api`. Thread-safe."""

    def __init__(self, api: Api, project: str, *, endpoint: str = "") -> None:
        """`endpoint`: of an emulator; see GoogleRest. The first call loads credentials."""
        self._api, self._project, self._endpoint = api, project, endpoint
        self._lock = threading.Lock()
        self._rest: GoogleRest | None = None

    def create(
        self, request: Mapping[str, Any], newer: Mapping[str, Any], deadline: Deadline, doing: str
    ) -> Any:
        """Send a request of `request.py` with these fields in JSON besides; return the operation. Raises as `Api.call`
        does."""
        from google.cloud.tpu_v2.types import QueuedResource
        from google.longrunning.operations_pb2 import Operation
        from google.protobuf import json_format

        message = QueuedResource.pb(QueuedResource(request["queued_resource"]))
        params = {
            "queuedResourceId": request["queued_resource_id"],
            "requestId": request["request_id"],
        }
        with self._call("create_queued_resource", deadline, doing) as rest:
            answer = rest.call(
                "POST",
                HOST,
                f"{VERSION}/{request['parent']}/queuedResources",
                params=params,
                body={**_renamed(json_format.MessageToDict(message)), **newer},
                timeout=deadline.left(doing=doing),
            )
        shown = {key: answer[key] for key in ("name", "done", "error") if key in answer}
        return json_format.ParseDict(shown, Operation(), ignore_unknown_fields=True)

    def get(self, name: str, deadline: Deadline, doing: str) -> QueuedSeen:
        """Return a queued resource with its maximum run duration. Raises as `Api.call` does."""
        from google.cloud.tpu_v2.types import QueuedResource
        from google.protobuf import json_format
        from google.protobuf.duration_pb2 import Duration

        with self._call("get_queued_resource", deadline, doing) as rest:
            answer = rest.call("GET", HOST, f"{VERSION}/{name}", timeout=deadline.left(doing=doing))
        message = QueuedResource.pb()()
        json_format.ParseDict(_renamed(answer), message, ignore_unknown_fields=True)
        limit = object_in(answer, "runDuration").get("maxRunDuration")
        max_run = json_format.ParseDict(limit, Duration()).ToNanoseconds() / 1e9 if limit else None
        return replace(queued_seen(message), max_run=max_run)

    def node_ends_at(self, name: str, deadline: Deadline, doing: str) -> float | None:
        """Return when the cloud takes back a node; None: it tells no time. Raises as `Api.call` does."""
        from google.protobuf import json_format
        from google.protobuf.timestamp_pb2 import Timestamp

        with self._call("get_node", deadline, doing) as rest:
            answer = rest.call("GET", HOST, f"{VERSION}/{name}", timeout=deadline.left(doing=doing))
        at = object_in(answer, "schedulingConfig").get("terminationTimestamp")
        return json_format.ParseDict(at, Timestamp()).ToNanoseconds() / 1e9 if at else None

    def close(self) -> None:
        """Close the connections; a later call opens others."""
        with self._lock:
            rest, self._rest = self._rest, None
        if rest is not None:
            rest.close()

    @contextlib.contextmanager
    def _call(self, method: Method, deadline: Deadline, doing: str) -> Generator[GoogleRest]:
        """Yield the client for one call, when one is allowed. Raises as `Api.call` does."""
        with self._api.allowed(method, deadline, doing):
            try:
                yield self._client()
            except Transient as error:
                raise Transient(f"{doing}: {error.message}", hint=error.hint) from error

    def _client(self) -> GoogleRest:
        with self._lock:
            if self._rest is None:
                credentials, _ = (None, "") if self._endpoint else identity.default("a slice")
                self._rest = GoogleRest(
                    self._project, credentials, endpoint=self._endpoint, error_of=_error_of
                )
            return self._rest


def _error_of(status: int, error: Mapping[str, Any]) -> Exception:
    """Return the error that the library would raise for the `google.rpc.Status` in an answer."""
    from google.api_core.exceptions import from_grpc_status, from_http_status
    from google.protobuf import json_format
    from google.rpc.error_details_pb2 import RetryInfo
    from grpc import StatusCode

    message = str(error.get("message", ""))
    code = StatusCode.__members__.get(str(error.get("status")))
    if code is None:
        return from_http_status(status, message)
    details = [
        json_format.ParseDict({"retryDelay": detail["retryDelay"]}, RetryInfo())
        for detail in objects(error, "details")
        if "retryDelay" in detail
    ]
    return from_grpc_status(code, message, details=details)


_OTHER_NAME = {"multisliceParams": "multiNodeParams", "multiNodeParams": "multisliceParams"}


def _renamed(value: Any) -> Any:
    """Return JSON of v2 with the names of v2alpha1, and the reverse."""
    if isinstance(value, dict):
        return {_OTHER_NAME.get(key, key): _renamed(inner) for key, inner in value.items()}
    return [_renamed(inner) for inner in value] if isinstance(value, list) else value
