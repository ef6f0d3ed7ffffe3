"""Quota beside what jobs hold: read seldom, for all who look, and never in anybody's way for long."""

import threading
from dataclasses import replace

import pytest

from tests.flow.page import lab
from tests.support.waiting import LONG
from tests.support.world import Clock
from tpujob.api import CapacityReport
from tpujob.cli.commands.overview import capacity_page
from tpujob.doctor.quota import QuotaOverview, allowances
from tpujob.domain.model import Cause, Job
from tpujob.domain.text import rfc3339
from tpujob.errors import Refused
from tpujob.ports import Held, Limit, QuotaKind
from tpujob.service.backend import capacity
from tpujob.service.backend.capacity import Quotas

ZONE, REGION = "us-central2-b", "us-central2"
DENIED = Refused("The caller does not have permission (serviceusage.quotas.get)", cause=Cause.PERMISSION)  # fmt: skip


class Cloud:
    def __init__(self) -> None:
        self.calls, self.error = 0, DENIED
        self.fails = False
        self.open = threading.Event()
        self.open.set()

    def read(self) -> QuotaOverview:
        self.calls += 1
        self.open.wait()
        if self.fails:
            raise self.error
        return lab.quota()


@pytest.fixture
def cloud() -> Cloud:
    return Cloud()


def when_read(held: Quotas) -> None:
    reading = held._reading
    assert reading
    reading.join()


def test_one_reading_serves_all_viewers_for_some_minutes(cloud: Cloud) -> None:
    clock = Clock()
    quotas = Quotas(cloud.read, clock, first=LONG)
    for _ in range(200):
        assert quotas.look().at == clock.now()
    assert cloud.calls == 1
    clock.sleep(capacity.EVERY)
    cloud.open.clear()
    assert quotas.look().at == clock.now() - capacity.EVERY, "the old answer is shown meanwhile"
    cloud.open.set()
    when_read(quotas)
    assert quotas.look().at == clock.now()
    assert cloud.calls == 2


def test_a_reader_makes_no_other_wait(cloud: Cloud) -> None:
    cloud.open.clear()
    quotas = Quotas(cloud.read, Clock(), first=0.0)
    assert [quotas.look().found for _ in range(3)] == [None] * 3
    view = capacity.quotas_view(quotas.look(), [], 0.0)
    assert (view["at"], view["rows"], view["unknown"]) == (None, [], "")
    cloud.open.set()
    when_read(quotas)
    assert quotas.look().found
    assert cloud.calls == 1


def test_what_may_not_be_read_names_the_permission_and_who_else_can_read_it(cloud: Cloud) -> None:
    cloud.fails, clock = True, Clock()
    quotas = Quotas(cloud.read, clock, first=LONG)
    view = capacity.quotas_view(quotas.look(), [], clock.now())
    assert (view["at"], view["rows"]) == (None, []), "not known is not zero"
    assert view["unknown"] == DENIED.message
    assert "`tpujob quota`" in view["hint"]
    cloud.fails = False
    clock.sleep(capacity.EVERY)
    quotas.look()
    when_read(quotas)
    cloud.fails = True
    clock.sleep(capacity.EVERY)
    quotas.look()
    when_read(quotas)
    view = capacity.quotas_view(quotas.look(), [], clock.now())
    assert view["rows"], "what was read before is still shown, with its time"
    assert view["unknown"] == DENIED.message


def test_a_failure_that_nobody_thought_of_stops_no_page() -> None:
    def fails() -> QuotaOverview:
        raise ZeroDivisionError

    view = capacity.quotas_view(Quotas(fails, Clock(), first=LONG).look(), [], 0.0)
    assert "its log says more" in view["unknown"]


def test_a_row_has_what_jobs_hold_in_its_own_unit_and_what_it_refused() -> None:
    job = _job("v4-32")
    limits = [
        Limit("m", QuotaKind("v4", "spot"), "zone", ZONE, 64, "cores"),
        Limit("m", QuotaKind("v4", "spot"), "region", REGION, 48, "cores"),
    ]
    seen = [Held(QuotaKind("v4", "spot"), ZONE, 24)]
    reading = capacity.Looked(QuotaOverview("p", allowances(limits, [ZONE], held=seen)), lab.NOW)
    (row,) = capacity.quotas_view(reading, [job], lab.NOW)["rows"]
    assert (row["limit"], row["unit"]) == (48, "cores")
    assert row["used"] == 48, "by anybody, in cores"
    assert row["held"] == 32, "16 chips of one slice that is there"
    assert row["refused"] == 1, "one of the day; the other one was too long ago, the third no quota"


def test_a_slice_of_one_host_counts_where_there_is_one_quota_for_all_sizes() -> None:
    job = _job("v5litepod-8")
    limits = [Limit("m", QuotaKind("v5e", "spot"), "zone", ZONE, 64, "chips")]
    reading = capacity.Looked(QuotaOverview("p", allowances(limits, [ZONE])), lab.NOW)
    (row,) = capacity.quotas_view(reading, [job], lab.NOW)["rows"]
    assert row["held"] == 8


def _job(type: str) -> Job:
    """Return a job that holds a slice, and of which three requests were refused."""
    job = lab.full()[0]
    held = replace(
        job.slices[-1], type=type, zone=ZONE, pricing="spot", ready_at=lab.NOW - 60, gone_at=None
    )
    gone = replace(held, ready_at=None, gone_at=lab.NOW - 9, refused=Cause.QUOTA)
    old = replace(gone, gone_at=lab.NOW - 90_000)
    return replace(job, slices=(held, gone, old, replace(gone, refused=Cause.STOCKOUT)))


def test_the_command_prints_the_hardware_and_how_many_jobs_wait() -> None:
    report = CapacityReport(
        at=rfc3339(lab.NOW),
        day_s=capacity.DAY,
        offers=capacity.offers(lab.full(), lab.NOW),
        closed=[],
        waiting=1,
    )
    lines = capacity_page(report, 80, lab.NOW).splitlines()
    assert lines[0].split() == [
        *("Type", "Zone", "Pricing", "Held", "$/h", "Asked", "Ready", "Wait", "Refused"),
        "Preempted",
    ]
    assert len(lines) == 1 + len(report["offers"]) + 2
    assert "1 job has no slice yet." in lines
