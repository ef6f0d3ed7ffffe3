"""Two providers offer one type in one zone: each is an offer of its own, with its own image, quota and refusals."""

from dataclasses import replace

import pytest

from tests.support.stage import SPEC, Stage
from tests.support.world import Cloud
from tpujob.domain.capacity import circuits
from tpujob.domain.capacity.entries import wanted
from tpujob.domain.capacity.offers import Offer, offers
from tpujob.domain.hardware import accelerators
from tpujob.domain.hardware.generations import CLOUD_TPU
from tpujob.domain.model import State
from tpujob.domain.spec import parse

ENGINE, ZONE = "compute-engine", "us-central2-b"
TPU = {"type": "v4-16", "zones": [ZONE]}


@pytest.fixture(autouse=True)
def _another_row(monkeypatch: pytest.MonkeyPatch) -> None:
    first = accelerators.find("v4-16")
    row = replace(first.row, provider=ENGINE, system_image="ubuntu-2404-tpu")
    both = (first, replace(first, row=row))
    monkeypatch.setitem(accelerators.OFFERED, "v4-16", both)  # pyright: ignore[reportArgumentType]


def two(**tpu: object) -> tuple[Offer, ...]:
    return offers(parse({**SPEC, "tpu": {**TPU, **tpu}}))


def test_each_provider_is_an_offer_with_its_own_image() -> None:
    assert [(o.zone, o.provider, o.system_image) for o in two()] == [
        (ZONE, CLOUD_TPU, "tpu-ubuntu2204-base"),
        (ZONE, ENGINE, "ubuntu-2404-tpu"),
    ]


def test_a_runtime_version_is_requested_of_cloud_tpu_alone() -> None:
    [only] = two(runtime_version="tpu-vm-v4-base")
    assert (only.provider, only.system_image) == (CLOUD_TPU, "tpu-vm-v4-base")


def test_the_refusals_and_quotas_of_one_provider_are_none_of_the_other() -> None:
    tpu, engine = two()
    assert {*circuits.names(tpu)}.isdisjoint(circuits.names(engine))
    assert (wanted(tpu).pool, wanted(engine).pool) == (
        f"{ZONE}/v4/spot",
        f"{ZONE}/v4/spot at {ENGINE}",
    )
    assert wanted(tpu) != wanted(engine), "no slice is handed on between them"


def test_a_stockout_at_one_provider_is_followed_by_a_request_to_the_other(stage: Stage) -> None:
    engine = Cloud(stage.clock, stage.faults)
    engine.machines = stage.cloud.machines  # its hosts are reached as those of the first
    stage.clouds[ENGINE] = engine
    stage.reconciler = stage.new_backend()
    stage.cloud.full = {ZONE}
    job = stage.running(stage.create(tpu=TPU))
    assert job.slice
    assert (job.slice.provider, job.slice.system_image) == (ENGINE, "ubuntu-2404-tpu")
    assert engine.created == [job.slice.name]
    assert stage.cloud.created == []
    engine.full = {ZONE}
    waiting = stage.create(tpu=TPU)
    refused = stage.until(waiting, lambda job: len(job.failed_requests) == 2)
    assert refused.state is State.QUEUED
    assert [s.provider for s in refused.failed_requests] == [CLOUD_TPU, ENGINE]
