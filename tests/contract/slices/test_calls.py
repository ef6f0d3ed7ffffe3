"""Calls of Cloud TPU: none without a limit of time, none above the rate, and pauses when the cloud asks."""

from __future__ import annotations

import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from google.protobuf import any_pb2, duration_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2

from tests.contract.slices.tpu_slices import SLICE, ask, look
from tests.support.tpu_rig import PROJECT, ZONE, Cloud
from tpujob.adapters.cloud_tpu import CloudTpuSlices, Throttle
from tpujob.adapters.cloud_tpu.calls import CREATE_PATIENCE, MAX_PAUSE
from tpujob.domain.observations import Unknown
from tpujob.emulator import inject
from tpujob.errors import Refused, Transient

#: seconds that a call gets; the next only where the one before was too short to get to the silent part
BRIEF = (0.2, 2, 20)


class HandClock:
    """Time passes only by sleeping."""

    def __init__(self) -> None:
        self.time = 1000.0
        self.slept: list[float] = []

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds


def pass_by(_seconds: float) -> None:
    """No time passes by this."""


# Limits of time ------------------------------------------------------------------------------------------------------


def _look(slices: CloudTpuSlices, timeout: float) -> None:
    seen = slices.look(SLICE, timeout=timeout)
    if isinstance(seen, Unknown):
        raise Transient(seen.error)


@pytest.mark.parametrize(
    ("method", "call"),
    [
        ("GetQueuedResource", _look),
        ("ListNodes", lambda slices, timeout: slices.list_all([ZONE], timeout=timeout)),
        ("CreateQueuedResource", lambda slices, timeout: ask(slices, timeout=timeout)),
        ("GetQueuedResource", lambda slices, timeout: slices.delete(SLICE, timeout=timeout)),
        ("GetGuestAttributes", lambda slices, t: slices.guest_attributes.look(SLICE, t)),
    ],
    ids=["look", "list", "create", "delete", "guest attributes"],
)
def test_a_call_that_is_never_answered_ends_with_its_time(
    cloud: Cloud,
    slices: CloudTpuSlices,
    method: str,
    call: Callable[[CloudTpuSlices, float], object],
) -> None:
    look(slices)  # the connection is there, so that it is the call that hangs
    cloud.do(inject.api_error, method, "OK", hang_s=600)
    for timeout in BRIEF:
        with pytest.raises(Transient):
            call(slices, timeout)
        if not cloud.world.call_faults.pending:
            return  # else the time was over before the silent call
    pytest.fail(f"{method} was not called in {BRIEF[-1]} s")


def test_a_port_that_accepts_and_says_nothing_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        slices = CloudTpuSlices(PROJECT, endpoint=f"127.0.0.1:{mute.getsockname()[1]}")
        assert isinstance(slices.look(SLICE, timeout=BRIEF[0]), Unknown)
        with pytest.raises(Transient):
            slices.list_all([ZONE], timeout=BRIEF[0])
        slices.close()


# Rate ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("per_minute", [60.0, 120.0, 7.0, 1.0])
def test_no_minute_has_more_calls_than_allowed(per_minute: float) -> None:
    clock = HandClock()
    throttle = Throttle(per_minute, now=clock.now, sleep=clock.sleep)
    made: list[float] = []
    for _ in range(int(per_minute) * 3 + 3):
        throttle.take(1000)
        made.append(clock.time)
    worst = max(sum(start <= at < start + 60 for at in made) for start in made)
    assert worst <= per_minute
    assert clock.time - 1000 < 60 * 3 * 2.5, "and the rate is used"


def test_a_call_waits_at_most_its_own_time() -> None:
    clock = HandClock()
    throttle = Throttle(60, now=clock.now, sleep=clock.sleep)
    for _ in range(6):
        throttle.take(0)
    assert clock.slept == []
    with pytest.raises(Transient, match="too many calls"):
        throttle.take(0.5)
    assert clock.slept == [], "it does not wait for nothing"
    throttle.take(10)
    assert clock.slept == [pytest.approx(60 / 54)]


# Pauses --------------------------------------------------------------------------------------------------------------


class Refusing:
    """A server that answers every call with the same error and what the cloud sends along."""

    def __init__(self, code: grpc.StatusCode, message: str, along: tuple[tuple[str, Any], ...]):
        self.asked: list[bytes] = []
        self._refusal = code, message, along
        self._server = grpc.server(ThreadPoolExecutor(2), options=(("grpc.so_reuseport", 0),))
        self._server.add_generic_rpc_handlers((_Any(self._refuse),))
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    def __enter__(self) -> Refusing:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(None).wait()

    def _refuse(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        self.asked.append(request)
        code, message, along = self._refusal
        context.set_trailing_metadata(along)
        context.abort(code, message)
        raise AssertionError("abort raises")


class _Any(grpc.GenericRpcHandler):
    def __init__(self, handler: Callable[[bytes, grpc.ServicerContext], bytes]) -> None:
        self._handler = handler

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        return grpc.unary_unary_rpc_method_handler(self._handler)


def retry_info(code: int, message: str, seconds: int) -> tuple[tuple[str, Any], ...]:
    """Return the detail as Google's services send it."""
    wrapped = any_pb2.Any()
    delay = duration_pb2.Duration(seconds=seconds)
    wrapped.Pack(error_details_pb2.RetryInfo(retry_delay=delay))
    status = status_pb2.Status(code=code, message=message, details=[wrapped])
    return (("grpc-status-details-bin", status.SerializeToString()),)


def test_500_looks_at_once_share_few_calls() -> None:
    """Time stands still, so there is what may be done at once, and what a look's own 5 s allow in advance."""
    throttle = Throttle(120, now=lambda: 0.0, sleep=pass_by)
    with Refusing(grpc.StatusCode.UNAVAILABLE, "down", ()) as cloud:
        slices = CloudTpuSlices(PROJECT, endpoint=cloud.address, throttle=throttle)
        with ThreadPoolExecutor(8) as pool:
            seen = list(pool.map(lambda _: slices.look(SLICE, timeout=5), range(500)))
        assert {type(look) for look in seen} == {Unknown}
        assert 12 <= len(cloud.asked) <= 12 + 5 * 108 / 60
        slices.close()


RATE = "Quota exceeded for quota metric 'Requests' and limit 'Requests per minute'"


@pytest.mark.parametrize(
    "along",
    [retry_info(code_pb2.RESOURCE_EXHAUSTED, RATE, 12), (("retry-after", "12"),)],
    ids=["RetryInfo", "Retry-After"],
)
def test_a_rate_limit_of_the_cloud_causes_a_pause(along: tuple[tuple[str, Any], ...]) -> None:
    clock = HandClock()
    throttle = Throttle(now=clock.now, sleep=clock.sleep)
    with Refusing(grpc.StatusCode.RESOURCE_EXHAUSTED, RATE, along) as cloud:
        slices = CloudTpuSlices(PROJECT, endpoint=cloud.address, throttle=throttle)
        with pytest.raises(Transient, match="per minute"):
            ask(slices, timeout=5)
        assert slices.look(SLICE, timeout=5) == Unknown(
            "too many calls of Cloud TPU: the next one is due in 12 s"
        )
        assert len(cloud.asked) == 1, "no request meanwhile"
        assert isinstance(slices.look(SLICE, timeout=20), Unknown)
        assert (len(cloud.asked), clock.slept) == (2, [12])
        slices.close()


def test_a_permanent_refusal_causes_no_pause() -> None:
    text = f"Quota 'X' exhausted. Limit 8 in zone {ZONE}"
    along = retry_info(code_pb2.RESOURCE_EXHAUSTED, text, 12)
    with Refusing(grpc.StatusCode.RESOURCE_EXHAUSTED, text, along) as cloud:
        slices = CloudTpuSlices(PROJECT, endpoint=cloud.address)
        for _ in range(2):
            with pytest.raises(Refused):
                ask(slices, timeout=5)
        assert len(cloud.asked) == 2
        slices.close()


def test_after_a_bounded_pause_calls_come_one_by_one() -> None:
    clock = HandClock()
    throttle = Throttle(60, now=clock.now, sleep=clock.sleep)
    throttle.pause(10)
    throttle.take(100)
    throttle.take(100)
    assert clock.slept == [pytest.approx(10), pytest.approx(60 / 54)]
    throttle.pause(1e9)
    throttle.take(MAX_PAUSE + 1)


# Requests for slices -------------------------------------------------------------------------------------------------


def test_requests_for_slices_have_a_rate_of_their_own() -> None:
    """Nothing that waits for its turn holds up the caller for long, or other calls at all."""
    clock = HandClock()
    creating = Throttle(60, of="requests for slices", now=clock.now, sleep=clock.sleep)
    with Refusing(grpc.StatusCode.UNAVAILABLE, "down", ()) as cloud:
        slices = CloudTpuSlices(PROJECT, endpoint=cloud.address, creating=creating)
        for _ in range(6):
            with pytest.raises(Transient, match="down"):
                ask(slices, timeout=60)
        assert clock.slept == [], "so many at once"
        creating.take(60)
        begun = clock.time
        with pytest.raises(Transient, match="down"):
            ask(slices, timeout=60)
        assert clock.time - begun <= CREATE_PATIENCE
        creating.pause(30)
        with pytest.raises(Transient, match="too many requests for slices: the next one is due in"):
            ask(slices, timeout=60)
        assert len(cloud.asked) == 7
        assert isinstance(slices.look(SLICE, timeout=5), Unknown)
        assert len(cloud.asked) == 8
        slices.close()


@pytest.mark.parametrize("method", ["create", "look"])
def test_a_rate_limit_without_a_time_pauses_requests_for_slices(method: str) -> None:
    clock = HandClock()
    creating = Throttle(60, now=clock.now, sleep=clock.sleep)
    text = "Maximum number of CreateNode requests per minute"
    with Refusing(grpc.StatusCode.RESOURCE_EXHAUSTED, text, ()) as cloud:
        slices = CloudTpuSlices(PROJECT, endpoint=cloud.address, creating=creating)
        if method == "look":
            slices.look(SLICE, timeout=5)
        else:
            with pytest.raises(Transient, match="per minute"):
                ask(slices, timeout=60)
        with pytest.raises(Transient, match=r"due in 6\d s"):
            ask(slices, timeout=60)
        assert isinstance(slices.look(SLICE, timeout=5), Unknown)
        assert len(cloud.asked) == 2, "looks go on"
        slices.close()
