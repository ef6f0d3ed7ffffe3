"""Terms that only the table of pricings has: every rule goes by the properties of the row."""

from dataclasses import replace
from datetime import date
from decimal import Decimal

import pytest

from tests.support.estimates import compare_view
from tests.support.stage import SPEC, Stage
from tpujob.cli.render.listing import listing
from tpujob.doctor.quota import QuotaKind, kind_of
from tpujob.domain.capacity import circuits
from tpujob.domain.capacity.offers import offers
from tpujob.domain.capacity.site import EVERYWHERE
from tpujob.domain.hardware import pricing
from tpujob.domain.hardware.prices import LIST, Price, Source
from tpujob.domain.model import Cause, State
from tpujob.domain.spec import parse
from tpujob.errors import BadSpec

FLEX = pricing.Pricing("flex-start", quota="spot", ends_by_itself=True)
V4 = "us-central2-b"
TPU = {"type": "v4-16", "zones": [V4], "pricing": "flex-start"}
SITE = replace(
    EVERYWHERE,
    prices=LIST.over(
        [
            Price("tpu v4", "us-central2", "flex-start", Decimal("1.5"), "chip-hour", Source("a page", date(2026, 11, 1)))  # fmt: skip
        ]
    ),
)


@pytest.fixture(autouse=True)
def _another_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(pricing._BY_NAME, FLEX.name, FLEX)


def test_a_row_makes_a_pricing_known(stage: Stage) -> None:
    job_id = stage.create(tpu=TPU)
    view = stage.running(job_id) and stage.api.get(job_id)
    assert view["pricing"] == "flex-start"
    assert stage.job(job_id).slices[0].pricing == "flex-start"
    assert "preempted" not in view["next"]["text"]
    [row] = stage.api.list()["jobs"]
    assert row["pricing"] == "flex-start"
    stage.cloud.machines.clear()
    job = stage.until(job_id, lambda job: job.attempts[0].cause is not None)
    assert job.attempts[0].cause is Cause.LOST_CONTACT, "its end is no preemption"
    with pytest.raises(BadSpec, match="allowed: spot, on-demand, reserved, flex-start"):
        stage.create(tpu={**TPU, "pricing": "flex"})


def test_it_draws_from_the_quota_of_its_row(stage: Stage) -> None:
    assert kind_of("v4-16", "flex-start") == QuotaKind("v4", "spot")
    flex, spot = (
        offers(parse({**SPEC, "tpu": {**TPU, "pricing": name}}))[0]
        for name in ("flex-start", "spot")
    )
    assert circuits.names(flex)[1:] == circuits.names(spot)[1:], "one quota"
    assert circuits.names(flex)[0] != circuits.names(spot)[0], "a stockout of one is none of the other"
    stage.cloud.hosts, stage.cloud.quotas = 1, {V4: 8}
    first = stage.running(stage.create(tpu={**TPU, "type": "v4-8"}))
    second = stage.create(tpu={**TPU, "type": "v4-8"}, hand_on=False)
    stage.until(second, lambda job: bool(job.failed_requests) and job.state is State.QUEUED)
    [entry] = [e for e in stage.api.queue()["entries"] if e["job"] == second]
    assert entry["pricing"] == "flex-start"
    assert f"{V4}/v4/spot" in stage.api.get(second)["why"], first


def test_an_estimate_has_its_price_and_the_lives_of_slices_that_are_not_preempted() -> None:
    hours = {"hours": 100.0}
    both = [
        compare_view({**SPEC, "tpu": {**TPU, "pricing": name}}, hours, site=SITE)["ways"][0]
        for name in ("flex-start", "spot")
    ]
    assert [way["usd_per_hour"] for way in both] == [12.0, 7.372]
