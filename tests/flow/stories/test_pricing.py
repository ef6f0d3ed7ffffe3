"""Terms that only the table of pricings has: every rule goes by the properties of the row."""

from dataclasses import replace
from datetime import date
from decimal import Decimal

import pytest

from tests.support.estimates import compare_view
from tests.support.stage import SPEC, Stage
from tpujob.api import CompareOptions
from tpujob.doctor.quota import kind_of
from tpujob.domain.capacity import circuits
from tpujob.domain.capacity.offers import offers
from tpujob.domain.capacity.site import EVERYWHERE
from tpujob.domain.hardware import pricing
from tpujob.domain.hardware.prices import LIST, Price, Source
from tpujob.domain.model import Cause, State
from tpujob.domain.spec import parse
from tpujob.errors import BadSpec
from tpujob.ports import QuotaKind

OFF_PEAK = pricing.Pricing("off-peak", quota="spot", ends_by_itself=True)
V4 = "us-central2-b"
TPU = {"type": "v4-16", "zones": [V4], "pricing": "off-peak"}
PRICE = Price(
    *("tpu v4", "us-central2", "off-peak"),
    Decimal("1.5"),
    "chip-hour",
    Source("a page", date(2026, 11, 1)),
)
SITE = replace(EVERYWHERE, prices=LIST.over([PRICE]))


@pytest.fixture(autouse=True)
def _another_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(pricing.PRICINGS, OFF_PEAK.name, OFF_PEAK)


def test_a_row_makes_a_pricing_known(stage: Stage) -> None:
    job_id = stage.create(tpu=TPU)
    view = stage.running(job_id) and stage.api.get(job_id)
    assert view["pricing"] == "off-peak"
    assert stage.job(job_id).slices[0].pricing == "off-peak"
    assert "preempted" not in view.get("next", {"text": "preempted"})["text"]
    [row] = stage.api.list()["rows"]
    assert row["pricing"] == "off-peak"
    stage.cloud.vanish()
    job = stage.until(job_id, lambda job: job.attempts[0].cause is not None)
    assert job.attempts[0].cause is Cause.LOST_CONTACT, "its end is no preemption"
    with pytest.raises(
        BadSpec, match="allowed: spot, on-demand, reserved, flex-start, calendar, off-peak"
    ):
        stage.create(tpu={**TPU, "pricing": "off"})


def test_it_draws_from_the_quota_of_its_row(stage: Stage) -> None:
    assert kind_of("v4-16", "off-peak") == QuotaKind("v4", "spot")
    off_peak, spot = (
        offers(parse({**SPEC, "tpu": {**TPU, "pricing": name}}))[0] for name in ("off-peak", "spot")
    )
    assert circuits.names(off_peak)[1:] == circuits.names(spot)[1:], "one quota"
    assert circuits.names(off_peak)[0] != circuits.names(spot)[0], (
        "a stockout of one is none of the other"
    )
    stage.cloud.quotas = {V4: 8}
    stage.running(stage.create(tpu={**TPU, "type": "v4-8"}))
    second = stage.create(tpu={**TPU, "type": "v4-8"}, hand_on=False)
    stage.until(second, lambda job: bool(job.failed_requests) and job.state is State.QUEUED)
    [row] = stage.api.queue()["rows"]
    assert (row["id"], row["pricing"]) == (second, "off-peak")


def price_and_life(pricing: str) -> tuple[float | None, float]:
    """Return the dollars an hour, and the seconds after which half of the first slices are lost."""
    spec = {**SPEC, "tpu": {**TPU, "pricing": pricing}}
    query: CompareOptions = {"amount": 3600.0, "throughput": {"v4-16": 1.0}}
    way = compare_view(spec, query=query, site=SITE)["ways"][0]
    assert way["forecast"]
    return way["usd_per_hour"], way["forecast"]["half_seconds"]["first_life"] or 0.0


def test_an_estimate_has_its_price_and_counts_on_no_preemptions() -> None:
    (off_peak_usd, off_peak_life), (spot_usd, spot_life) = map(price_and_life, ("off-peak", "spot"))
    assert (off_peak_usd, spot_usd) == (12.0, 7.372)
    assert off_peak_life > 10 * spot_life
