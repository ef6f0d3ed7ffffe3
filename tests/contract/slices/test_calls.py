"""How Cloud TPU is called: no call without a limit of time, and none above the rate."""

from __future__ import annotations

import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.contract.slices.tpu_slices import SLICE, ask, look
from tests.support.tpu_rig import PROJECT, ZONE, Cloud
from tpujob.adapters.cloud_tpu import CloudTpuSlices, Throttle
from tpujob.domain.observations import Unknown
from tpujob.emulator import inject
from tpujob.errors import Transient

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
        if not cloud.world.faults.calls:
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


def test_500_looks_at_once_share_few_calls(cloud: Cloud) -> None:
    """Time stands still, so there is what may be done at once, and what a look's own 5 s allow in advance."""
    made: list[str] = []
    slices = CloudTpuSlices(
        PROJECT,
        endpoint=cloud.tpu.address,
        throttle=Throttle(120, now=lambda: 0.0, sleep=lambda _: None),
        count=lambda method, _: made.append(method),
    )
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: slices.look(SLICE, timeout=5), range(500)))
    assert 12 <= len(made) <= 12 + 5 * 108 / 60
    slices.close()
