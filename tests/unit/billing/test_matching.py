"""Bills of simulated slices beside the ledger: whose each row is, and what differs."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.billing.bill import (
    DAY,
    HOUR,
    START,
    Row,
    Use,
    blank,
    labels,
    rows_of,
    write_json_lines,
)
from tpujob.billing import JobLine, LedgerSlice, Reconciled
from tpujob.billing import reconcile as reconcile_files
from tpujob.cli.commands.cost.reconcile import explain_gap

NOW = round((START + 60 * DAY) * 1e6)
UNTIL = round((START + 27 * DAY) / DAY) * round(DAY * 1e6)
RATES = {
    "v2": "0.3825",
    "v3": "0.66",
    "v4": "0.9215",
    "v5e": "0.24493",
    "v5p": "0.8357",
    "v6e": "0.54421",
}
ZONES = {"v2": "us-central1-a", "v3": "europe-west4-a", "v4": "us-central2-b", "v5e": "us-central1-a",
         "v5p": "us-east5-a", "v6e": "us-east1-d"}  # fmt: skip

USE = Use(
    "000042",
    "tj-000042-1-lab-x",
    "v4",
    "us-central2-b",
    True,
    8,
    START + HOUR,
    START + 11.5 * HOUR,
    "0.9215",
)


def ledger(use: Use, **more: Any) -> LedgerSlice:
    granted = use.promotion == "1"
    rate = round(float(use.usd_per_chip_hour) * use.chips * 1e6)
    one = LedgerSlice(
        use.job, use.slice, use.generation, use.zone, use.spot, use.chips, round(use.start * 1e6),
        round(use.end * 1e6), rate, granted,
    )  # fmt: skip
    return one._replace(**more)


def ledgers(uses: Sequence[Use]) -> list[LedgerSlice]:
    """Without those that were free."""
    return [ledger(use) for use in uses if not use.spot or use.end - use.start >= 60]


def reconcile(
    slices: Sequence[LedgerSlice], rows: Sequence[Row], *, until: int | None = UNTIL, **close: Any
) -> Reconciled:
    jobs = {one.job: f"job-{one.job}" for one in slices}
    with tempfile.TemporaryDirectory() as folder:
        export = write_json_lines(Path(folder, "export.json"), rows)
        return reconcile_files([export], jobs, slices, "lab-x", NOW, until=until, **close)


def only(found: Reconciled) -> JobLine:
    (line,) = found.jobs
    return line


def others(found: Reconciled) -> dict[str, int]:
    return {line.category: line.billed.net for line in found.others}


def beside(*rows: Row) -> list[Row]:
    """With a row of somebody's storage, from the first hour on, so that the period begins there."""
    return [blank(START, cost=1.0), *rows]


# Acceptance ----------------------------------------------------------------------------------------------------------


def _simulated(count: int, seed: int, **more: Any) -> list[Use]:
    """Slices of every generation and pricing, with grants, one in ten preempted within its first minute."""
    some, found = random.Random(seed), []
    for number in range(count):
        generation = some.choice(list(RATES))
        spot, granted = some.random() < 0.6, some.random() < 0.2
        start = START + some.random() * 25 * DAY
        length = some.random() * 59 if spot and some.random() < 0.2 else some.uniform(120, 2 * DAY)
        multi = some.choice((1, 1, 1, 4))
        use = Use(
            f"{number // 2 + 1:06d}", f"tj-{number // 2 + 1:06d}-{number % 2 + 1}-lab-x", generation,
            ZONES[generation], spot, some.choice((4, 8, 16, 64)) * multi, start, start + length,
            RATES[generation] if spot else "3.22", "1" if granted else "0",
        )  # fmt: skip
        found.append(replace(use, **more))
    return found


@pytest.mark.parametrize("told", [{}, {"labelled": False, "named": True}])
def test_200_attempts_are_billed_as_the_ledger_says(told: dict[str, Any]) -> None:
    uses = _simulated(200, seed=11, **told)
    found = reconcile(ledgers(uses), beside(*(r for u in uses for r in rows_of(u))))
    assert len(found.jobs) > 90
    for line in found.jobs:
        assert abs(line.gap) <= max(0.005 * line.estimate, 20), line
        assert abs(line.billed.gross - line.list) <= 0.005 * line.list + 20
        assert line.by_usage + line.by_rate + line.by_credits == line.gap
        assert not line.differs(0.005)
    assert abs(found.tpu.gap) <= 0.001 * found.tpu.estimate
    assert found.tpu.list > found.tpu.estimate > 0, "grants are in it"
    assert others(found) == {"stored bytes": 1_000_000}


def test_without_labels_and_names_hours_are_shared_by_what_can_have_been_used() -> None:
    uses = _simulated(200, seed=12, labelled=False)
    found = reconcile(ledgers(uses), beside(*_merged(uses)))
    assert sum(line.billed.net for line in (*found.jobs, *found.others)) == found.billed.net
    assert abs(found.tpu.billed.gross - found.tpu.list) <= 0.001 * found.tpu.list
    for line in found.jobs:
        assert abs(line.billed.usage - line.chip_time // 3600) <= 0.005 * line.chip_time / 3600 + 9
    assert {how for line in found.jobs for how in line.matched} == {"hour"}


def _merged(uses: Sequence[Use]) -> list[Row]:
    """As the export adds up what has no label: one row for each SKU, zone and hour."""
    found: dict[tuple[str, str, str], Row] = {}
    for row in (row for use in uses for row in rows_of(use)):
        key = (row["sku"]["description"], row["location"]["zone"], row["usage_start_time"])
        whole = found.setdefault(
            key,
            row
            | {
                "cost": 0.0,
                "credits": [],
                "usage": row["usage"] | {"amount_in_pricing_units": 0.0},
            },
        )
        whole["cost"] += row["cost"]
        whole["credits"] = whole["credits"] + row["credits"]
        whole["usage"]["amount_in_pricing_units"] += row["usage"]["amount_in_pricing_units"]
    return list(found.values())


# Why it differs ------------------------------------------------------------------------------------------------------


def test_a_slice_that_was_handed_on_is_billed_to_each_job_for_its_own_time() -> None:
    first = replace(USE, labelled=False, named=True, end=START + 5 * HOUR)
    second = replace(first, job="000043", start=first.end, end=START + 9 * HOUR)
    found = reconcile(ledgers([first, second]), beside(*rows_of(first), *rows_of(second)))
    assert {line.job for line in found.jobs} == {"000042", "000043"}
    for line in found.jobs:
        assert abs(line.gap) <= 20, line


def test_a_slice_that_lived_on_after_it_was_seen_to_be_gone() -> None:
    found = reconcile([ledger(USE, gone=round((USE.end - HOUR) * 1e6))], beside(*rows_of(USE)))
    line = only(found)
    assert line.by_usage == pytest.approx(8 * 921_500, abs=20)
    assert abs(line.by_rate) < 20
    assert line.by_credits == 0
    assert line.differs(0.01)
    assert not line.differs(0.2), "a larger tolerance"


def test_a_spot_price_that_moved() -> None:
    line = only(reconcile([ledger(USE)], beside(*rows_of(replace(USE, usd_per_chip_hour="0.8")))))
    assert line.by_rate == pytest.approx(-0.1215 * 84 * 1e6, abs=50)
    assert abs(line.by_usage) < 50


def test_the_parts_of_the_sum_of_all_jobs_are_the_sums_of_their_parts() -> None:
    """One job on demand was used for longer; one spot job beside it had a dearer rate."""
    longer = replace(USE, spot=False, usd_per_chip_hour="3.22")
    dearer = replace(USE, job="000043", slice="tj-000043-1-lab-x", usd_per_chip_hour="1.01")
    found = reconcile(
        [
            ledger(longer, gone=round((longer.end - HOUR) * 1e6)),
            ledger(replace(dearer, usd_per_chip_hour="0.9215")),
        ],
        beside(*rows_of(longer), *rows_of(dearer)),
    )
    total = found.tpu
    assert found.billed.net == total.billed.net + sum(line.billed.net for line in found.others)
    for part in ("by_usage", "by_rate", "by_credits", "gap"):
        assert getattr(total, part) == sum(getattr(line, part) for line in found.jobs)
    assert total.by_usage == pytest.approx(8 * 3.22e6, abs=50)
    assert total.by_rate == pytest.approx(0.0885 * 84 * 1e6, abs=50)
    assert explain_gap(total, 0.01) == "+8.000 chip-hours"


def test_a_grant_that_the_ledger_does_not_know_and_one_that_the_bill_does_not() -> None:
    paid = only(reconcile([ledger(USE)], beside(*rows_of(replace(USE, promotion="1")))))
    assert abs(paid.by_credits + paid.list) < 20
    unpaid = only(reconcile([ledger(USE, granted=True)], beside(*rows_of(USE))))
    assert abs(unpaid.by_credits - unpaid.list) < 20
    assert unpaid.estimate == 0


def test_what_the_bill_lacks_is_a_gap() -> None:
    line = only(reconcile([ledger(USE)], beside()))
    assert line.gap == -line.estimate == line.by_usage
    assert line.matched == set()


def test_a_price_that_the_ledger_does_not_know_is_not_compared() -> None:
    line = only(reconcile([ledger(USE, rate=None)], beside(*rows_of(USE))))
    assert line.unpriced == line.chip_time > 0
    assert not line.differs(0.01)


def test_a_correction_replaces_what_it_corrects() -> None:
    rows = list(rows_of(USE))
    wrong = rows[3] | {"cost": 100.0}
    later = {
        "invoice": {"month": "202609"},
        "adjustment_info": {"id": "c", "type": "USAGE_CORRECTION"},
    }
    back = (
        wrong
        | later
        | {"cost": -100.0, "usage": {**wrong["usage"], "amount_in_pricing_units": -2.0}}
    )
    found = reconcile([ledger(USE)], beside(*rows[:3], *rows[4:], wrong, back, rows[3] | later))
    assert abs(only(found).gap) < 20


# Whose it is ---------------------------------------------------------------------------------------------------------


def test_labels_of_others_and_of_removed_jobs() -> None:
    other = replace(USE, owner="another")
    removed = replace(USE, job="000099")
    found = reconcile([ledger(USE)], beside(*rows_of(other), *rows_of(removed)))
    assert set(others(found)) == {"other tpujob backends", "slices of removed jobs", "stored bytes"}
    assert only(found).billed.rows == 0


def test_a_slice_of_a_lost_store_is_not_the_new_job_of_that_id() -> None:
    old = replace(USE, slice="tj-000042-1-old", named=True)
    found = reconcile([ledger(USE)], beside(*rows_of(replace(USE, named=True)), *rows_of(old)))
    line = only(found)
    assert abs(line.gap) < 20
    assert line.matched == {"name"}
    assert others(found)["slices not in the ledger"] == pytest.approx(line.estimate, abs=20)


def test_a_disk_with_our_label_is_no_tpu_time() -> None:
    ours = labels({"tpujob-job": "000042", "tpujob-owner": "lab-x"})
    disk = blank(START, cost=2.0, labels=ours, sku={"description": "Storage PD Capacity"})
    found = reconcile([ledger(USE)], [disk, *rows_of(USE)])
    assert others(found) == {"disks and addresses of slices": 2_000_000}


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("tj-000042-1-lab-x", True),
        ("tj-000042-1-lab-x-3", True),  # one node of several
        ("tj-000042-1-another", False),
        ("tj-000042-2-lab-x", False),
    ],
)
def test_the_name_of_a_resource(name: str, ours: bool) -> None:
    rows = list(rows_of(replace(USE, labelled=False, named=True, slice=name)))
    found = reconcile([ledger(USE)], beside(*rows))
    assert (only(found).matched == {"name"}) is ours
    assert ("other tpujob backends" in others(found)) is not ours


def test_more_than_our_slices_can_have_used_is_others() -> None:
    theirs = replace(USE, chips=24, labelled=False)  # 8 chips of it are ours
    line = only(found := reconcile([ledger(USE)], beside(*rows_of(theirs))))
    assert abs(line.gap) < 20
    assert others(found)["TPU time of others"] == pytest.approx(2 * line.estimate, abs=50)


@pytest.mark.parametrize(
    "other", [{"spot": False}, {"zone": "us-central1-a"}, {"generation": "v6e"}]
)
def test_time_of_another_kind_is_not_ours(other: dict[str, Any]) -> None:
    rows = rows_of(replace(USE, labelled=False, **other))
    found = reconcile([ledger(USE)], beside(*rows))
    assert only(found).billed.rows == 0


# The period ----------------------------------------------------------------------------------------------------------


def test_use_of_the_last_48_hours_is_not_settled() -> None:
    early = replace(USE, job="000001", slice="tj-000001-1-lab-x")
    fresh = replace(USE, start=START + 9 * DAY, end=START + 9 * DAY + 5 * HOUR)
    rows = beside(*rows_of(early), *list(rows_of(fresh))[:2])
    found = reconcile([ledger(early), ledger(fresh)], rows, until=None)
    assert only(found).job == "000001"
    assert found.unsettled.rows == 2
    assert found.unsettled_estimate == ledger(fresh).cost(0, NOW)
    assert found.newest / 1e6 == pytest.approx(START + 9 * DAY + 17 * HOUR)
    assert found.end / 1e6 <= START + 9 * DAY - 24 * HOUR
    settled = reconcile([ledger(early), ledger(fresh)], rows)
    assert settled.unsettled.rows == 0
    assert len(settled.jobs) == 2


def test_late_rows_do_not_stretch_the_period() -> None:
    before = replace(USE, job="000001", start=START - 5 * DAY, end=START - 4 * DAY)
    late = [row | {"invoice": {"month": "202608"}} for row in list(rows_of(before))[:1]]
    found = reconcile([ledger(before), ledger(USE)], beside(*late, *rows_of(USE)))
    assert only(found).job == "000042"
    assert found.before.rows == 1
    assert found.earlier_estimate == ledger(before).cost(0, NOW)


def test_a_period_may_be_named() -> None:
    since = round((START + DAY) / DAY) * round(DAY * 1e6)
    later = replace(USE, job="000001", start=START + 3 * DAY, end=START + 3 * DAY + HOUR)
    found = reconcile(
        [ledger(USE), ledger(later)], beside(*rows_of(USE), *rows_of(later)), since=since
    )
    assert only(found).job == "000001"
    assert found.before.rows == len(list(rows_of(USE))) + 1
