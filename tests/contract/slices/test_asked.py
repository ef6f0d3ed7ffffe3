"""The request for a slice on Cloud TPU: every option, as the emulated API shows it afterwards."""

import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from google.cloud import tpu_v2

from tests.contract.slices.tpu_slices import KEY, SLICE, ask, fail, look, wait_for
from tests.support.tpu_rig import PROJECT, ZONE, Cloud, node_name, queued_name, until
from tests.support.waiting import LONG
from tpujob.adapters.cloud_tpu import CloudTpuSlices, Options
from tpujob.adapters.cloud_tpu.request import queued_request
from tpujob.domain.model import Cause
from tpujob.domain.observations import Present, SliceState
from tpujob.emulator import inject
from tpujob.errors import Transient

FULL = Options(
    network="lab",
    subnetwork="lab-a",
    external_ips=False,
    secure_boot=True,
    tags=("tpu", "inside"),
    service_account="train@p.iam.gserviceaccount.com",
    labels={"team": "vision", "tpujob-owner": "me"},
    reservation="ours",
    wait=3600,
)


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    made = Cloud()
    for kind, name in (
        ("network", "lab"),
        ("subnetwork", "lab-a"),
        ("service-account", "train@p.iam.gserviceaccount.com"),
        ("service-account", "ada@p.iam.gserviceaccount.com"),
        ("reservation", "ours"),
    ):
        inject.add(made.world, kind, name)
    yield made
    made.stop()


def asked_with(cloud: Cloud, options: Options, pricing: str = "spot") -> tpu_v2.QueuedResource:
    """The queued resource, once its node is there."""
    slices = CloudTpuSlices(PROJECT, endpoint=cloud.tpu.address, options=options)
    slice = replace(SLICE, pricing=pricing)
    try:
        ask(slices, slice)
        wait_for(slices, SliceState.READY, slice)
    finally:
        slices.close()
    return cloud.client().get_queued_resource(name=queued_name(SLICE.name))


def test_every_option_reaches_the_node_and_none_overrides_our_marks(cloud: Cloud) -> None:
    queued = asked_with(cloud, FULL)
    node = cloud.client().get_node(name=node_name(SLICE.name))
    network = node.network_config
    assert (network.network, network.subnetwork) == ("lab", "lab-a")
    assert not network.enable_external_ips
    assert not any(e.access_config.external_ip for e in node.network_endpoints)
    assert list(node.tags) == ["tpu", "inside"]
    assert node.shielded_instance_config.enable_secure_boot
    assert node.service_account.email == "train@p.iam.gserviceaccount.com"
    assert list(node.service_account.scope) == ["https://www.googleapis.com/auth/cloud-platform"]
    waits = queued.queueing_policy.valid_until_time - queued.create_time
    assert waits.total_seconds() == pytest.approx(3600, abs=1)
    marks = {"tpujob": "1", "tpujob-job": "000007", "tpujob-owner": "local"}
    assert dict(node.labels) == {"team": "vision", **marks}
    assert marks.items() <= dict(node.metadata).items(), "answers may drop labels"
    assert node.metadata["ssh-keys"] == f"tpujob:{KEY}"


@pytest.mark.parametrize(("user", "account"), [("ada@example.org", "ada"), ("", "train")])
def test_programs_of_some_users_have_own_accounts(cloud: Cloud, user: str, account: str) -> None:
    options = replace(FULL, accounts={"ada@example.org": "ada@p.iam.gserviceaccount.com"})
    slices = CloudTpuSlices(PROJECT, endpoint=cloud.tpu.address, options=options)
    try:
        slices.create(SLICE, job_id="000007", public_key=KEY, timeout=LONG, user=user)
        wait_for(slices, SliceState.READY)
    finally:
        slices.close()
    node = cloud.client().get_node(name=node_name(SLICE.name))
    assert node.service_account.email == f"{account}@p.iam.gserviceaccount.com"


def test_without_options_the_project_decides(cloud: Cloud) -> None:
    queued = asked_with(cloud, Options())
    node = cloud.client().get_node(name=node_name(SLICE.name))
    assert node.network_config.enable_external_ips
    raw = tpu_v2.QueuedResource.pb(queued)
    assert not raw.HasField("queueing_policy")
    assert not raw.tpu.node_spec[0].node.HasField("service_account")
    assert not raw.tpu.node_spec[0].node.HasField("shielded_instance_config")


HERE = f"projects/{PROJECT}/locations/{ZONE}"

#: pricing, reservation of the site, and the fields that gcloud 528 sends for it, as recorded: `queued-resources create`
#: with --spot, nothing, --reserved, --reservation-host-project
FIELDS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("spot", "ours", {"spot": {}}),
    ("on-demand", "ours", {}),
    ("reserved", "", {"reservation_name": f"{HERE}/reservations/-"}),
    ("reserved", "ours", {"reservation_name": f"{HERE}/reservations/ours"}),
    (
        "reserved",
        f"projects/other/locations/{ZONE}/reservations/-",
        {"reservation_name": f"projects/other/locations/{ZONE}/reservations/-"},
    ),
    (
        "reserved",
        "projects/other/reservations/theirs",
        {"reservation_name": f"projects/other/locations/{ZONE}/reservations/theirs"},
    ),
)


@pytest.mark.parametrize(("pricing", "reservation", "fields"), FIELDS)
def test_the_price_is_asked_for_as_gcloud_asks(
    pricing: str, reservation: str, fields: dict[str, Any]
) -> None:
    slice = replace(SLICE, pricing=pricing)
    options = Options(reservation=reservation)
    request = queued_request(
        slice, options, project=PROJECT, owner="local", job_id="000007", public_key=KEY
    )["queued_resource"]
    (spec,) = request.pop("tpu")["node_spec"]
    assert request == fields
    assert "scheduling_config" not in spec["node"]


def test_a_request_that_waits_too_long_fails_as_a_stockout(cloud: Cloud) -> None:
    cloud.do(inject.stockout, ZONE)
    options = Options(wait=0.05)
    slices = CloudTpuSlices(PROJECT, endpoint=cloud.tpu.address, options=options)
    ask(slices)
    seen = wait_for(slices, SliceState.FAILED)
    assert seen.cause is Cause.STOCKOUT
    slices.close()


def test_a_repeat_after_a_lost_answer_is_one_request(cloud: Cloud) -> None:
    """The id depends on the slice alone, so another backend of the same owner repeats it too."""
    fail(cloud, "CreateQueuedResource", "UNAVAILABLE", "post")
    for number in range(2):
        slices = CloudTpuSlices(PROJECT, endpoint=cloud.tpu.address)
        if number == 0:
            with pytest.raises(Transient):
                ask(slices)
        else:
            ask(slices)
            assert isinstance(look(slices), Present)
        slices.close()
    (request_id,) = cloud.world.requests
    assert uuid.UUID(request_id).version == 5
    until(lambda: len(cloud.world.nodes) == 1, "one node")
    assert len(cloud.world.queued) == 1
