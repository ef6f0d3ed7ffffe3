"""Quotas and their use as the APIs write them: names, pages, places, what JSON leaves out, and what is unknown."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.slices.tpu_slices import fail
from tests.support import google_server as g
from tests.support.google_server import WANTS, GoogleServer, changed
from tests.support.tpu_rig import PARENT, PROJECT, ZONE, Cloud, node, queued, queued_state, until
from tests.support.waiting import LONG
from tpujob.adapters.cloud_tpu import count_usage
from tpujob.adapters.google import quota
from tpujob.adapters.google.quota import GoogleQuota, kind_of_metric
from tpujob.adapters.google.rest import GoogleRest
from tpujob.adapters.this_machine import EmulatedQuota
from tpujob.doctor.quota import QuotaOverview, chips
from tpujob.doctor.quota import overview as read
from tpujob.emulator import inject
from tpujob.emulator.control import status
from tpujob.errors import Refused, TpujobError, Transient
from tpujob.ports import ONE_HOST, Held, Limit, QuotaKind, QuotaUse


@pytest.fixture(name="rest")
def _rest(google: GoogleServer) -> Iterator[GoogleRest]:
    made = GoogleRest(g.PROJECT, endpoint=google.url)
    yield made
    made.close()


@pytest.fixture(name="overview")
def _overview(google: GoogleServer, cloud: Cloud) -> Any:
    def overview() -> QuotaOverview:
        wants = changed(WANTS, project=PROJECT)
        google.answers[g.QUOTAS.replace(g.PROJECT, PROJECT)] = google.answers[g.QUOTAS]
        endpoints = {"endpoint": google.url, "tpu_endpoint": cloud.tpu.address}
        return read(PROJECT, GoogleQuota(PROJECT, **endpoints), wants.every_zone, wants.grants)

    return overview


#: the first five were seen in public, the others are spelled after them
METRICS = {
    "tpu.googleapis.com/tpu-v5s-litepod-preemptible": QuotaKind("v5e", "spot"),
    "tpu.googleapis.com/tpu-v5s-litepod-serving": QuotaKind("v5e", "on-demand", ONE_HOST),
    "tpu.googleapis.com/tpu-v4s-preemptible": QuotaKind("v4", "spot"),
    "tpu.googleapis.com/tpu-v6e": QuotaKind("v6e", "on-demand"),
    "TPUV4sPreemptiblePodPerProjectPerZoneForTPUAPI": QuotaKind("v4", "spot"),
    "TPUV5sPreemptibleLitepodServingPerProjectPerZoneForTPUAPI": QuotaKind("v5e", "spot", ONE_HOST),
    "tpu.googleapis.com/tpu-v5p-preemptible": QuotaKind("v5p", "spot"),
    "tpu.googleapis.com/tpu-v5p-reserved": QuotaKind("v5p", "reserved"),
    "tpu.googleapis.com/preemptible-tpu-v2": QuotaKind("v2", "spot", ONE_HOST),
    "tpu.googleapis.com/tpu-v3-pod": QuotaKind("v3", "on-demand"),
    "tpu.googleapis.com/tpu-v9x-preemptible": None,
    "tpu.googleapis.com/tpu-7x": None,
    "tpu.googleapis.com/queued-resources": None,
    "tpu.googleapis.com/v2-requests": None,
    "": None,
}


@pytest.mark.parametrize("metric", METRICS)
def test_quota_metrics_name_their_generation_and_place(metric: str) -> None:
    assert kind_of_metric(metric) == METRICS[metric]


def test_all_pages_are_read_and_no_value_is_0(google: GoogleServer, rest: GoogleRest) -> None:
    v4 = "tpu.googleapis.com/tpu-v4s-preemptible"
    limits = quota.limits(rest, g.PROJECT)
    pages = [entry for entry in google.asked if entry.path == g.QUOTAS]
    assert [entry.params.get("pageToken") for entry in pages] == [None, ["3"]]
    assert [entry for entry in limits if entry.metric == v4] == [
        Limit(v4, QuotaKind("v4", "spot"), "zone", "", 0, "cores"),
        Limit(v4, QuotaKind("v4", "spot"), "zone", g.ZONE, 64, "cores"),
        Limit(v4, QuotaKind("v4", "spot"), "region", "", None, "cores"),
    ]
    assert limits[-1] == Limit("tpu.googleapis.com/requests", None, "project", "", 600)


def test_unknown_units_and_places_are_tolerated(google: GoogleServer, rest: GoogleRest) -> None:
    """An unknown unit is a limit of the project; one for a narrower thing than a place is passed over."""
    strange = g.metric("tpu-v4s", "TPU v4 thingies", {g.ZONE: 8})
    strange["consumerQuotaLimits"] += [
        {"unit": "1/{project}/{moon}", "quotaBuckets": [g.bucket(5), g.bucket(4, moon="io")]},
        {"unit": "1/{project}/{zone}", "supportedLocations": ["a", "b"]},
        {"unit": "1/{project}/{zone}", "quotaBuckets": [g.bucket(3, zone=g.ZONE, user="ada")]},
        {},
    ]
    google.answers[g.QUOTAS] = {"metrics": [strange, {"metric": "x"}, {}]}
    limits = quota.limits(rest, g.PROJECT)
    assert [(limit.scope, limit.place, limit.limit, limit.unit) for limit in limits] == [
        ("zone", "", 0, "cores"),
        ("zone", g.ZONE, 8, "cores"),
        ("region", "", None, "cores"),
        ("project", "", 5, "cores"),
    ]


def test_a_list_without_an_end_is_an_error(google: GoogleServer, rest: GoogleRest) -> None:
    google.answers[g.QUOTAS] = {"metrics": [], "nextPageToken": "again"}
    with pytest.raises(Transient, match="a list of more than"):
        quota.limits(rest, g.PROJECT)


def held(cloud: Cloud, *zones: str) -> QuotaUse:
    return count_usage(PROJECT, zones, timeout=LONG, endpoint=cloud.tpu.address)


def test_chips_in_use_are_counted_once_whoever_made_them(cloud: Cloud) -> None:
    client, alpha = cloud.client(), cloud.alpha()
    client.create_node(parent=PARENT, node_id="by-hand", node=node("v4-8"))
    client.create_node(
        parent=PARENT, node_id="serving", node=node("v6e-8", scheduling_config={"spot": True})
    )
    client.create_queued_resource(queued("lost", "v4-32"))
    until(lambda: queued_state(client, "lost") == "ACTIVE", "the slice that is to be lost ACTIVE")
    alpha.delete_node(name=f"{PARENT}/nodes/lost")
    until(lambda: queued_state(client, "lost") == "SUSPENDED", "its queued resource SUSPENDED")
    used = held(cloud, ZONE, "europe-west4-a")
    assert not used.missed
    assert sorted(used.held, key=str) == [
        Held(QuotaKind("v4", "on-demand"), ZONE, 4),
        Held(QuotaKind("v4", "spot"), ZONE, 16),
        Held(QuotaKind("v6e", "spot"), ZONE, 8),
    ]


def test_every_slice_of_one_request_counts(cloud: Cloud) -> None:
    request = queued("many", "v4-32")
    spec = request["queued_resource"]["tpu"]["node_spec"][0]
    del spec["node_id"]
    spec["multislice_params"] = {"node_count": 3}
    cloud.client().create_queued_resource(request)
    assert [use.chips for use in held(cloud, ZONE).held] == [16, 16, 16]


def test_a_zone_that_cannot_be_listed_is_named(cloud: Cloud) -> None:
    cloud.do(inject.unreachable, "europe-west4-a")
    used = held(cloud, ZONE, "europe-west4-a")
    assert list(used.missed) == ["europe-west4-a"]
    assert "the list is not complete" in used.missed["europe-west4-a"]
    used = held(cloud, "us-central2-z")
    assert "is not found or access is unauthorized" in used.missed["us-central2-z"]
    fail(cloud, "ListQueuedResources", "UNAVAILABLE")
    assert list(held(cloud, ZONE).missed) == [ZONE]


def test_limits_use_and_grants_come_together(cloud: Cloud, overview: Any) -> None:
    cloud.client().create_node(
        parent=PARENT, node_id="mine", node=node("v4-16", scheduling_config={"spot": True})
    )
    view = overview()
    assert (view.of, view.notes) == (PROJECT, [])
    v4, v6e = view.rows
    assert [v4[key] for key in ("limit", "unit", "used", "granted_chips")] == [64, "cores", 16, 32]
    assert [v6e[key] for key in ("zone_limit", "region_limit", "limit")] == [64, 16, 16]
    assert v6e["used"] == 0
    assert [limit.metric for limit in view.others] == [
        "tpu.googleapis.com/qps/create",
        "tpu.googleapis.com/requests",
    ]


def test_zones_that_could_not_be_counted_are_one_note(cloud: Cloud, overview: Any) -> None:
    fail(cloud, "ListQueuedResources", "UNAVAILABLE", message="try again")
    view = overview()
    assert view.notes == [f"what is held in {ZONE}: listing {ZONE}: try again"]
    assert [row["used"] for row in view.rows] == [None, None]


@pytest.mark.parametrize("where", ["Google Cloud", "the emulator"])
def test_the_emulator_answers_as_google_does(
    google: GoogleServer, cloud: Cloud, overview: Any, where: str
) -> None:
    """Limit and use are in the quota's own unit, for all holders together."""
    spot = node("v4-16", scheduling_config={"spot": True})
    cloud.client().create_node(parent=PARENT, node_id="mine", node=spot)
    google.answers[g.QUOTAS] = {"metrics": [g.metric("tpu-v4s-preemptible", "cores", {ZONE: 24})]}
    inject.quota(cloud.world, ZONE, "v4", 24, "spot")
    emulated = EmulatedQuota(status(cloud.world, None))
    view = overview() if where == "Google Cloud" else read("", emulated, emulated.zones)
    (row,) = [entry for entry in view.rows if entry["zone"] == ZONE]
    assert (row["type"], row["pricing"], row["part"]) == ("v4", "spot", "")
    assert (row["known"], row["limit"], row["used"], row["unit"]) == (True, 24, 16, "cores")
    assert chips(row) == 12


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        (g.DENIED, Refused, "The caller does not have permission (serviceusage.quotas.get)"),
        (g.UNAVAILABLE, Transient, "serviceusage.googleapis.com: The service is"),
    ],
)
def test_without_limits_there_is_nothing_to_show(
    google: GoogleServer, overview: Any, answer: Any, kind: type[TpujobError], message: str
) -> None:
    google.answers[g.QUOTAS] = answer
    with pytest.raises(kind, match=re.escape(message)):
        overview()
