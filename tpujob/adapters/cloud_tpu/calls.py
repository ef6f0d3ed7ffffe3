"""Calls to the Cloud TPU API: connection, time limit, rate, pages, and the translation of the library's errors.

Every call of these adapters goes through `Api`, so that each has a time limit: the library sets none.
"""
# The client library's generated classes carry no types that a checker can follow.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any, Literal

from tpujob.adapters.calling import Count, Missing, counted, status_of, uncounted
from tpujob.adapters.cloud_tpu import errors
from tpujob.errors import Refused, TpujobError, Transient
from tpujob.lib.tries import Deadline

#: share of a minute's calls that may be made at once
BURST = 0.1
#: the longest pause, in seconds, that the cloud may demand; a longer demand is cut to this
MAX_PAUSE = 900.0
#: seconds without a request for a slice after a refusal for the rate of requests that demands no pause: quotas of rates
#: are for a minute
RATE_PAUSE = 60.0
#: the longest wait, in seconds, until a slice may be requested; the caller has other work meanwhile
CREATE_PATIENCE = 2.0


class Throttle:
    """A rate limit on calls per minute. Thread-safe; the callers of one project should share an instance."""

    def __init__(
        self,
        per_minute: float = 0.0,
        *,
        of: str = "calls of Cloud TPU",
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`per_minute`: calls; 0: no limit but the pauses that the cloud demands. `of`: names the calls in errors."""
        self._of = of
        burst = max(1.0, per_minute * BURST)
        self._gap = 60 / max(per_minute - burst, 1.0) if per_minute else 0.0
        self._ahead = (burst - 1) * self._gap  # seconds by which calls may run ahead of the rate
        self._now, self._sleep = now, sleep
        self._lock = threading.Lock()
        self._booked = now()  # when the rate allows the next call, bursts aside

    def take(self, at_most: float) -> None:
        """Wait until one more call is allowed. Raises Transient at once, and does not count a call, when that would
        take more than `at_most` seconds."""
        with self._lock:
            now = self._now()
            booked = max(self._booked, now)
            wait = booked - self._ahead - now
            if wait > at_most:
                raise Transient(f"too many {self._of}: the next one is due in {wait:.0f} s")
            self._booked = booked + self._gap
        if wait > 0:
            self._sleep(wait)

    def pause(self, seconds: float) -> None:
        """Allow no call for so many seconds, and no burst afterwards."""
        with self._lock:
            until = self._now() + min(seconds, MAX_PAUSE) + self._ahead
            self._booked = max(self._booked, until)


def creates(per_minute: float = 0.0) -> Throttle:
    """Return the limit on requests for slices, which the API counts apart from other calls."""
    return Throttle(per_minute, of="requests for slices")


#: the methods of the API that are called
Method = Literal[
    "get_queued_resource",
    "get_node",
    "get_guest_attributes",
    "list_queued_resources",
    "list_nodes",
    "create_queued_resource",
    "delete_queued_resource",
    "delete_node",
    "list_accelerator_types",
]

_CHANNEL_OPTIONS = (
    ("grpc.enable_http_proxy", 0),
    # gRPC's default of 120 s would hide for two minutes that the emulator is up again
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)


class Exists(Refused):
    """The resource exists already."""


class ZoneClosed(Refused):
    """The project may not use this zone."""


class Api:
    """The Cloud TPU API behind one connection, which the first call opens. Thread-safe."""

    def __init__(
        self,
        project: str,
        *,
        endpoint: str = "",
        throttle: Throttle | None = None,
        creating: Throttle | None = None,
        count: Count = uncounted,
    ) -> None:
        """`endpoint`: the gRPC address of an emulator, such as `unix:/path` or `host:port`; empty: Google's.
        `creating`: limits the requests for slices, beside `throttle`."""
        self._count = count
        self._project = project
        self._endpoint = endpoint
        self._throttle = throttle or Throttle()
        self._creating = creating or creates()
        self._lock = threading.Lock()
        self._client: Any = None

    def parent(self, zone: str) -> str:
        """Return the prefix of the names of a zone's resources."""
        return f"projects/{self._project}/locations/{zone}"

    def node(self, zone: str, id: str) -> str:
        return f"{self.parent(zone)}/nodes/{id}"

    def call(self, method: Method, request: dict[str, Any], deadline: Deadline, doing: str) -> Any:
        """Send one request and return the answer. `doing`: begins the message of an error. Raises Missing, Exists,
        ZoneClosed, Refused or Transient."""
        with self.allowed(method, deadline, doing):
            call = getattr(self._get_client(), method)
            # the library would retry until the time is up; here the caller decides
            return call(request, retry=None, timeout=deadline.left(doing=doing))

    @contextlib.contextmanager
    def allowed(self, method: Method, deadline: Deadline, doing: str) -> Generator[None]:
        """Wait until one more call is allowed, for the block that makes it; count it, and translate its error. Raises
        as `call` does."""
        if method == "create_queued_resource":
            self._creating.take(min(CREATE_PATIENCE, deadline.left(doing=doing)))
        self._throttle.take(deadline.left(doing=doing))
        with counted(self._count, method), self._translated(doing):
            yield

    def pages(
        self, method: Method, request: dict[str, Any], deadline: Deadline, doing: str
    ) -> Iterator[Any]:
        """Yield every page of a list. Raises as `call` does."""
        token = ""
        while True:
            page = self.call(method, {**request, "page_token": token}, deadline, doing)
            yield page
            token = page.next_page_token
            if not token:
                return

    def close(self) -> None:
        """Close the connection, if there is one; a later call opens another."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.transport.close()

    def _get_client(self) -> Any:
        with self._lock:
            if self._client is None:
                self._client = _connect(self._endpoint)
            return self._client

    @contextlib.contextmanager
    def _translated(self, doing: str) -> Generator[None]:
        """Translate the library's errors to ours, and start the pause that the cloud demands."""
        from google.api_core.exceptions import GoogleAPICallError
        from google.auth.exceptions import GoogleAuthError

        try:
            yield
        except GoogleAPICallError as error:
            code, message = status_of(error), str(error.message)
            ours = refusal(doing, code, message)
            if isinstance(ours, Transient):
                demanded = _demanded_pause(error)
                self._throttle.pause(demanded)
                if not demanded and errors.meaning_of_call(code, message).rate:
                    self._creating.pause(RATE_PAUSE)
            raise ours from error
        except GoogleAuthError as error:
            text = f"no credentials for Google Cloud: {error} ({errors.LOGIN_HINT})"
            raise Transient(f"{doing}: {text}") from error
        except ValueError as error:
            if "closed channel" not in str(error):
                raise
            raise Transient(f"{doing}: the connection was closed") from error


def refusal(doing: str, code: str, message: str) -> TpujobError:
    """Return our error for a gRPC status and its message."""
    meaning = errors.meaning_of_call(code, message)
    if code == "UNAVAILABLE" and message.startswith("failed to connect to all addresses"):
        message = "Cloud TPU does not answer"  # gRPC's text is about sockets
    text = f"{doing}: {errors.with_hint(message, meaning)}"
    if meaning.cause is None:
        return Transient(text)
    kind = {"NOT_FOUND": Missing, "ALREADY_EXISTS": Exists}.get(code, Refused)
    kind = ZoneClosed if meaning.zone_closed else kind
    return kind(text, cause=meaning.cause, scope=meaning.scope, limit=meaning.limit)


def _demanded_pause(error: Any) -> float:
    """Return the seconds that the cloud demands us to wait, in `google.rpc.RetryInfo` or the header `retry-after`."""
    for detail in error.details or ():
        if getattr(detail, "DESCRIPTOR", None) and detail.DESCRIPTOR.name == "RetryInfo":
            return detail.retry_delay.ToNanoseconds() / 1e9
    call = error.response
    trailers = call.trailing_metadata() if hasattr(call, "trailing_metadata") else ()
    for key, value in trailers or ():
        if key == "retry-after" and str(value).isdecimal():
            return float(value)
    return 0.0


def _connect(endpoint: str) -> Any:
    from google.cloud.tpu_v2 import TpuClient
    from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport

    if not endpoint:
        return TpuClient()
    import grpc

    # the client would use TLS for any endpoint, so the channel is made here
    channel = grpc.insecure_channel(endpoint, options=_CHANNEL_OPTIONS)
    transport: Any = TpuGrpcTransport(channel=channel)
    return TpuClient(transport=transport)
