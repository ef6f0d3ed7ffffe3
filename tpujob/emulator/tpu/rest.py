"""The REST face of the Cloud TPU API: the calls of `server.py` over HTTP and JSON, for gcloud and clients of REST."""

# The generated message classes carry no types that a checker can follow.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import asyncio
from typing import Any

from tpujob.emulator.http_messages import Handler, Request, Response, json_response
from tpujob.emulator.http_server import HttpThread
from tpujob.emulator.tpu import transcode
from tpujob.emulator.tpu.records import ApiError
from tpujob.emulator.tpu.server import carry_out, message_class, next_fault, services
from tpujob.emulator.tpu.world import World

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


class RestServer:
    """Serves a world from the constructor to `stop`. `url` has no slash at its end."""

    def __init__(self, world: World, port: int = 0) -> None:
        self._http = HttpThread(handler(world), port, name="tpu-rest")
        self.url = self._http.url

    def stop(self) -> None:
        self._http.stop()


def handler(world: World) -> Handler:
    """Answers one request. Errors have Google's body for them."""
    calls = {
        (version, call): method
        for version, served in _by_version(services(world)).items()
        for call, method in served.items()
    }
    rules = list(transcode.rules())

    async def answer(request: Request) -> Response:
        try:
            if not request.of_this_machine:
                raise ApiError("PERMISSION_DENIED", "Only programs of this machine are served.")
            for rule in rules:
                named = rule.match(request.method, request.path)
                if named is not None:
                    return await carried_out(rule, named, request)
            raise ApiError("NOT_FOUND", "Method not found.")
        except ApiError as error:
            return _error(error)

    async def carried_out(
        rule: transcode.HttpRule, named: dict[str, str], request: Request
    ) -> Response:
        if (rule.version, rule.call) not in calls:
            raise ApiError("UNIMPLEMENTED", f"{rule.call} is not emulated.")
        method, request_class = calls[rule.version, rule.call]
        body = await _body(request) if rule.body else {}
        wanted = transcode.request(rule, named, request.query, body, message_class(request_class))
        fault = next_fault(world, rule.call)
        if fault.delay_s:
            await asyncio.sleep(fault.delay_s)
        message = carry_out(world, method, wanted, fault)
        return json_response(transcode.response(message, request.query))

    return answer


def _by_version(served: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The calls of each version; operations and locations are the same in all."""
    shared = {
        **served["google.longrunning.Operations"],
        **served["google.cloud.location.Locations"],
    }
    v2 = {**served["google.cloud.tpu.v2.Tpu"], **shared}
    return {
        "v1": {call: v2[call] for call in transcode.IN_V1},
        "v2": v2,
        "v2alpha1": {**served["google.cloud.tpu.v2alpha1.Tpu"], **shared},
    }


async def _body(request: Request) -> dict[str, Any]:
    try:
        return await request.json_object()
    except ValueError as error:
        text = f"Invalid JSON payload received. {error}"
        raise ApiError("INVALID_ARGUMENT", text) from error


def _error(error: ApiError) -> Response:
    status = _HTTP_STATUS[error.code]
    body = {"code": status, "message": error.message, "status": error.code}
    return json_response({"error": body}, status)
