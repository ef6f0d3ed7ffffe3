"""How one call to Cloud TPU is made: connection, time limit, pages, and the library's errors turned into ours."""

# The client library's generated classes carry no types that a checker can follow.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

from tpujob.adapters.cloud_tpu_tables import call_cause
from tpujob.errors import Refused, TpujobError, Transient

_CHANNEL_OPTIONS = (
    ("grpc.enable_http_proxy", 0),
    # gRPC's own 120 s would keep us blind for two minutes after the emulator is back.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)


class Deadline:
    """What is left of a call's time, given to each of the requests it makes."""

    def __init__(self, timeout: float) -> None:
        self._ends = time.monotonic() + timeout

    def call(self) -> dict[str, Any]:
        """The arguments that bound one request: its time, and no repeats by the library."""
        left = self._ends - time.monotonic()
        if left <= 0:
            raise Transient("Cloud TPU did not answer in time")
        return {"retry": None, "timeout": left}


class Missing(Refused):
    """NOT_FOUND."""


class Exists(Refused):
    """ALREADY_EXISTS."""


@contextlib.contextmanager
def translated(doing: str) -> Generator[None]:
    """Turn the library's errors into ours."""
    from google.api_core.exceptions import GoogleAPICallError
    from google.auth.exceptions import GoogleAuthError

    try:
        yield
    except GoogleAPICallError as error:
        raise _meaning(doing, _code_name(error), str(error.message)) from error
    except GoogleAuthError as error:
        text = f"{doing}: no credentials for Google Cloud: {error}"
        raise Transient(text, hint="gcloud auth application-default login") from error
    except ValueError as error:
        if "closed channel" not in str(error):
            raise
        raise Transient(f"{doing}: the connection was closed meanwhile") from error


def _meaning(doing: str, code: str, message: str) -> TpujobError:
    cause, hint = call_cause(code, message)
    if code == "UNAVAILABLE" and message.startswith("failed to connect to all addresses"):
        message = "Cloud TPU does not answer"  # the library goes on with sockets and error numbers
    said = f"{doing}: {message}"
    if cause is None:
        return Transient(said, hint=hint)
    kind = {"NOT_FOUND": Missing, "ALREADY_EXISTS": Exists}.get(code, Refused)
    return kind(said, cause=cause, hint=hint)


def _code_name(error: Any) -> str:
    return error.grpc_status_code.name if error.grpc_status_code is not None else "UNKNOWN"


def connect(endpoint: str) -> Any:
    from google.cloud import tpu_v2

    if not endpoint:
        return tpu_v2.TpuClient()
    import grpc
    from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport

    # An endpoint given to the client itself is spoken to in TLS, so the channel is made here.
    channel = grpc.insecure_channel(endpoint, options=_CHANNEL_OPTIONS)
    return tpu_v2.TpuClient(transport=TpuGrpcTransport(channel=channel))


def pages_of(
    call: Callable[..., Any], request: dict[str, Any], deadline: Deadline
) -> Iterator[Any]:
    token = ""
    while True:
        page = call({**request, "page_token": token}, **deadline.call())
        yield page
        token = page.next_page_token
        if not token:
            return
