"""Slices with fields that the library lacks are requested over REST, by the same rules as over gRPC."""

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from tests.contract.slices import tpu_slices
from tests.contract.slices.tpu_slices import fail
from tests.support import http
from tests.support.google_server import Error, GoogleServer
from tests.support.records import a_slice
from tests.support.tpu_rig import PARENT, PROJECT, Cloud, until
from tests.support.waiting import LONG
from tpujob.adapters.cloud_tpu import CloudTpuSlices, Throttle
from tpujob.domain.model import Cause, Slice
from tpujob.domain.observations import Present, SliceState, Unknown
from tpujob.emulator import inject
from tpujob.errors import Refused, TpujobError, Transient

SLICE = a_slice(
    name="tj-000007-1",
    type="v6e-16",
    system_image="v2-alpha-tpuv6e",
    pricing="flex-start",
    run_for=3600,
)
ask, look = partial(tpu_slices.ask, slice=SLICE), partial(tpu_slices.look, slice=SLICE)


def wait_for(slices: CloudTpuSlices, state: SliceState, slice: Slice = SLICE) -> Present:
    return tpu_slices.wait_for(slices, state, slice)


class Rig:
    """Adapters of one emulated cloud, and the calls that they made."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud, self.calls = cloud, Counter[str]()
        self._made: list[CloudTpuSlices] = []

    def slices(self, **options: Any) -> CloudTpuSlices:
        fields: dict[str, Any] = {"rest_endpoint": self.cloud.rest().url} | options
        made = CloudTpuSlices(
            PROJECT,
            endpoint=self.cloud.tpu.address,
            count=lambda method, outcome: self.calls.update([f"{method} {outcome}"]),
            **fields,
        )
        self._made.append(made)
        return made

    def close(self) -> None:
        for made in self._made:
            made.close()


@pytest.fixture
def rig(cloud: Cloud) -> Iterator[Rig]:
    made = Rig(cloud)
    yield made
    made.close()


def shown(cloud: Cloud, version: str, name: str = SLICE.name) -> Any:
    path = f"/{version}/{PARENT}/queuedResources/{name}"
    return http.ask(cloud.rest().url, "GET", path, {}, None, timeout=LONG)[2]


def test_a_flex_start_slice_lives_as_others_do(rig: Rig) -> None:
    slices = rig.slices()
    ask(slices)
    ask(slices)
    before = time.time()
    ready = wait_for(slices, SliceState.READY)
    assert ready.ends_at == pytest.approx(before + 3600, abs=LONG)
    (owned,) = slices.list_all([SLICE.zone], timeout=LONG)
    assert (owned.name, owned.job_id, owned.pricing) == (SLICE.name, "000007", "flex-start")
    document = shown(rig.cloud, "v2alpha1")
    assert document["provisioningModel"] == "FLEX_START"
    assert document["runDuration"] == {"maxRunDuration": "3600s"}
    ours, plain = document["tpu"]["nodeSpec"], shown(rig.cloud, "v2")["tpu"]["nodeSpec"]
    assert ours == plain, "the rest is as the library writes it"
    slices.delete(SLICE, timeout=LONG)
    tpu_slices.gone(slices, SLICE)
    assert rig.calls["create_queued_resource done"] == 2


def test_a_multislice_is_requested_by_the_names_of_that_version(rig: Rig) -> None:
    three, slices = replace(SLICE, tpu_slices=3), rig.slices()
    tpu_slices.ask(slices, three)
    assert wait_for(slices, SliceState.READY, three).ends_at
    (owned,) = slices.list_all([SLICE.zone], timeout=LONG)
    assert owned.tpu_slices == 3


def test_the_end_of_the_run_is_a_loss_with_its_limit_in_the_detail(rig: Rig) -> None:
    slices, short = rig.slices(), replace(SLICE, run_for=1)
    tpu_slices.ask(slices, short)
    seen = wait_for(slices, SliceState.PREEMPTED, short)
    assert seen.detail in [
        f"the queued resource, for at most 1 s, is {state}" for state in ("SUSPENDING", "SUSPENDED")
    ]


def test_a_calendar_slice_is_bound_to_its_reservation_and_ends_with_it(rig: Rig) -> None:
    slices = rig.slices()
    bound = replace(SLICE, pricing="calendar", run_for=None, reservation="october")
    with pytest.raises(Refused, match=r"reservations/october' was not found"):
        tpu_slices.ask(slices, bound)
    rig.cloud.do(inject.add, "reservation", "october", for_s=3.0)
    ends_at = rig.cloud.world.reservation_ends["october"]
    tpu_slices.ask(slices, bound)
    assert wait_for(slices, SliceState.READY, bound).ends_at == pytest.approx(ends_at, abs=0.01)
    document = shown(rig.cloud, "v2alpha1")
    assert document["provisioningModel"] == "RESERVATION_BOUND"
    assert document["reservationName"].endswith("/reservations/october")
    wait_for(slices, SliceState.PREEMPTED, bound)
    assert "reservations/october" not in rig.cloud.world.named


def test_a_zone_without_flex_start_slices_refuses_the_type_for_good(rig: Rig) -> None:
    slices = rig.slices()
    old = replace(SLICE, type="v4-8", system_image="tpu-ubuntu2204-base")

    def refused() -> Refused | None:
        try:
            tpu_slices.ask(slices, old)
        except Refused as error:
            return error
        return None

    error = until(refused, "the operation failed")
    assert error is not None
    assert error.cause is Cause.BAD_SPEC
    assert "no flex-start slices of the type: name others in tpu.zones" in error.message


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("RESOURCE_EXHAUSTED", "Quota 'TPUV4s' exhausted. Limit 32 in zone us-central2-b"),
        ("RESOURCE_EXHAUSTED", "There is no more capacity in the zone"),
        ("PERMISSION_DENIED", "The caller does not have permission"),
        ("INVALID_ARGUMENT", "CloudTpu received an invalid AcceleratorType"),
        ("FAILED_PRECONDITION", "constraints/compute.vmExternalIpAccess violated"),
        ("UNAUTHENTICATED", "Request had invalid authentication credentials"),
        ("UNAVAILABLE", "try again"),
        ("INTERNAL", "an internal error"),
    ],
)
def test_an_error_means_the_same_over_either_way(rig: Rig, code: str, message: str) -> None:
    errors: list[TpujobError] = []
    slices = rig.slices()
    for slice in (SLICE, replace(SLICE, pricing="spot", run_for=None)):
        fail(rig.cloud, "CreateQueuedResource", code, message=message)
        with pytest.raises(TpujobError) as caught:
            tpu_slices.ask(slices, slice)
        errors.append(caught.value)
    rest, grpc = errors
    assert (type(rest), rest.message, vars(rest)) == (type(grpc), grpc.message, vars(grpc))


def test_a_name_that_another_owner_uses_is_refused(rig: Rig) -> None:
    ask(rig.slices(owner="someone"))
    with pytest.raises(Refused, match="someone else uses the name"):
        ask(rig.slices())


def test_an_error_decides_nothing(rig: Rig) -> None:
    slices = rig.slices()
    ask(slices)
    fail(rig.cloud, "GetQueuedResource", "UNAVAILABLE", message="try again")
    assert look(slices) == Unknown(f"reading {SLICE.name}: try again")
    assert isinstance(look(slices), Present)
    assert rig.calls["get_queued_resource transient"] == 1


def test_a_call_over_rest_ends_in_time(rig: Rig) -> None:
    slices = rig.slices()
    rig.cloud.do(inject.api_error, "CreateQueuedResource", "OK", hang_s=60)
    late = (
        "did not answer within|no answer in time"  # the latter if nothing was left for the request
    )
    with pytest.raises(Transient, match=f"requesting {SLICE.name}: .*({late})"):
        ask(slices, timeout=0.5)


def test_requests_over_rest_take_part_in_the_rate(rig: Rig) -> None:
    throttle = Throttle(1)
    slices = rig.slices(creating=throttle)
    ask(slices)
    with pytest.raises(Transient, match="too many"):
        tpu_slices.ask(slices, replace(SLICE, name="tj-000007-2"))


def test_a_pause_that_the_cloud_demands_is_made(rig: Rig, google: GoogleServer) -> None:
    slept: list[float] = []
    throttle = Throttle(sleep=slept.append, now=lambda: 0.0)
    path = f"tpu.googleapis.com/v2alpha1/{PARENT}/queuedResources"
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s"}
    error = {"status": "UNAVAILABLE", "message": "slow down", "details": [info]}
    google.answers[path] = Error(503, {"error": error})
    slices = rig.slices(rest_endpoint=google.url, throttle=throttle)
    request = partial(ask, slices)
    with pytest.raises(Transient, match="slow down"):
        request()
    with pytest.raises(Transient, match="slow down"):
        request()
    assert slept == [7.0]
