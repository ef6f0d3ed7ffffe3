"""Bills of simulated slices beside the ledger: whose each row is, and what differs."""

import random
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.bill import (
    DAY,
    HOUR,
    START,
    Row,
    Use,
    blank,
    labels,
    ledger_of,
    ledger_slice,
    rows_of,
    write_json_lines,
)
from tpujob.cli.commands.cost.bill import compare
from tpujob.cli.commands.cost.reconcile import explain_gap
from tpujob.domain.text import rfc3339

NOW = START + 60 * DAY
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

Slices = Sequence[tuple[str, dict[str, Any]]]


def reconcile(
    slices: Slices, rows: Sequence[Row], *, until: int | None = UNTIL, **options: Any
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        export = write_json_lines(Path(folder, "export.json"), rows)
        return compare([export], ledger_of(slices, NOW), until=until, **options)


def only(result: dict[str, Any]) -> dict[str, Any]:
    (line,) = result["jobs"]
    return line


def others(result: dict[str, Any]) -> dict[str, int]:
    return {line["key"]: line["billed_micros"] for line in result["others"]}


def beside(*rows: Row) -> list[Row]:
    """Return the rows, and one of another's storage in the first hour, so that the period begins there."""
    return [blank(START, cost=1.0), *rows]


# Acceptance ----------------------------------------------------------------------------------------------------------


def _simulated(count: int, seed: int, **changes: Any) -> list[Use]:
    """Slices of every generation and pricing, with grants, one in ten preempted within its first minute."""
    rng, uses = random.Random(seed), list[Use]()
    for number in range(count):
        generation = rng.choice(list(RATES))
        spot, granted = rng.random() < 0.6, rng.random() < 0.2
        start = START + rng.random() * 25 * DAY
        length = rng.random() * 59 if spot and rng.random() < 0.2 else rng.uniform(120, 2 * DAY)
        multi = rng.choice((1, 1, 1, 4))
        use = Use(
            f"{number // 2 + 1:06d}", f"tj-{number // 2 + 1:06d}-{number % 2 + 1}-lab-x", generation,
            ZONES[generation], spot, rng.choice((4, 8, 16, 64)) * multi, start, start + length,
            RATES[generation] if spot else "3.22", "1" if granted else "0",
        )  # fmt: skip
        uses.append(replace(use, **changes))
    return uses


def _ledger(uses: Sequence[Use]) -> Slices:
    """Without those that were free."""
    return [ledger_slice(use) for use in uses if not use.spot or use.end - use.start >= 60]


@pytest.mark.parametrize("export", [{}, {"labelled": False, "named": True}])
def test_200_attempts_are_billed_as_the_ledger_says(export: dict[str, Any]) -> None:
    uses = _simulated(200, seed=11, **export)
    rows = beside(*(row for use in uses for row in rows_of(use)))
    result = reconcile(_ledger(uses), rows, tolerance=0.005)
    assert len(result["jobs"]) > 90
    for line in result["jobs"]:
        assert abs(line["gap_micros"]) <= max(0.005 * line["estimate_micros"], 20), line
        assert abs(line["cost_micros"] - line["list_micros"]) <= 0.005 * line["list_micros"] + 20
        parts = sum(line[f"by_{part}_micros"] for part in ("usage", "rate", "credits"))
        assert parts == line["gap_micros"]
        assert not line["differs"]
    total = result["all_jobs"]
    assert abs(total["gap_micros"]) <= 0.001 * total["estimate_micros"]
    assert total["list_micros"] > total["estimate_micros"] > 0, "grants are in it"
    assert others(result) == {"Cloud Storage": 1_000_000}


def test_without_labels_and_names_hours_are_shared_by_what_can_have_been_used() -> None:
    uses = _simulated(200, seed=12, labelled=False)
    merged: dict[tuple[str, ...], Row] = {}  # as the export adds up what has no label
    for row in (row for use in uses for row in rows_of(use)):
        key = (row["sku"]["description"], row["location"]["zone"], row["usage_start_time"])
        whole = merged.setdefault(
            key, row | {"cost": 0.0, "credits": [], "usage": {"amount_in_pricing_units": 0.0}}
        )
        whole["cost"] += row["cost"]
        whole["credits"] = whole["credits"] + row["credits"]
        whole["usage"]["amount_in_pricing_units"] += row["usage"]["amount_in_pricing_units"]
    result = reconcile(_ledger(uses), beside(*merged.values()))
    assert result["total"]["rows"] == 1 + len(merged)
    spent = sum(row["cost"] for row in merged.values())
    assert result["total"]["cost_micros"] == pytest.approx(1e6 + spent * 1e6, abs=len(merged))
    total = result["all_jobs"]
    assert abs(total["cost_micros"] - total["list_micros"]) <= 0.001 * total["list_micros"]
    for line in result["jobs"]:
        ours = line["ledger_chip_hours"]
        assert abs(line["billed_chip_hours"] - ours) <= 0.005 * ours + 9e-6
    assert {line["found_by"] for line in result["jobs"]} == {"hour"}


# Why it differs ------------------------------------------------------------------------------------------------------


def test_a_slice_that_was_handed_on_is_billed_to_each_job_for_its_own_time() -> None:
    first = replace(USE, labelled=False, named=True, end=START + 5 * HOUR)
    second = replace(first, job="000043", start=first.end, end=START + 9 * HOUR)
    result = reconcile(_ledger([first, second]), beside(*rows_of(first), *rows_of(second)))
    assert {line["key"] for line in result["jobs"]} == {"000042", "000043"}
    for line in result["jobs"]:
        assert abs(line["gap_micros"]) <= 20, line


HOUR_OF_USE = 8 * 921_500
LIST = round(10.5 * HOUR_OF_USE)


@pytest.mark.parametrize(
    ("ledger", "billed", "usage", "rate", "credits"),
    [
        pytest.param({"gone": round((USE.end - HOUR) * 1e6)}, {}, HOUR_OF_USE, 0, 0, id="seen to be gone too early"),
        pytest.param({}, {"usd_per_chip_hour": "0.8"}, 0, round(-0.1215 * 84e6), 0, id="spot price moved"),
        pytest.param({}, {"promotion": "1"}, 0, 0, -LIST, id="grant that the ledger does not know"),
        pytest.param({"granted": True}, {}, 0, 0, LIST, id="grant that the bill does not know"),
        pytest.param({}, None, -LIST, 0, 0, id="not on the bill"),
    ],
)  # fmt: skip
def test_why_a_job_differs(
    ledger: dict[str, Any], billed: dict[str, Any] | None, usage: int, rate: int, credits: int
) -> None:
    rows = [] if billed is None else rows_of(replace(USE, **billed))
    line = only(reconcile([ledger_slice(USE, **ledger)], beside(*rows)))
    assert line["by_usage_micros"] == pytest.approx(usage, abs=50)
    assert line["by_rate_micros"] == pytest.approx(rate, abs=50)
    assert line["by_credits_micros"] == pytest.approx(credits, abs=50)
    assert line["differs"]
    largest = max(
        {"usage": usage, "rate": rate, "credits": credits}.items(), key=lambda p: abs(p[1])
    )[0]
    assert explain_gap(line).startswith(f"{largest} ")


def test_a_difference_within_the_tolerance() -> None:
    slices = [ledger_slice(USE, gone=round((USE.end - HOUR) * 1e6))]
    line = only(reconcile(slices, beside(*rows_of(USE)), tolerance=0.2))
    assert not line["differs"]
    assert explain_gap(line) == ""


def test_the_parts_of_the_sum_of_all_jobs_are_the_sums_of_their_parts() -> None:
    """One job on demand was used for longer; one spot job beside it had a dearer rate."""
    longer = replace(USE, spot=False, usd_per_chip_hour="3.22")
    dearer = replace(USE, job="000043", slice="tj-000043-1-lab-x", usd_per_chip_hour="1.01")
    slices = [
        ledger_slice(longer, gone=round((longer.end - HOUR) * 1e6)),
        ledger_slice(replace(dearer, usd_per_chip_hour="0.9215")),
    ]
    result = reconcile(slices, beside(*rows_of(longer), *rows_of(dearer)))
    total = result["all_jobs"]
    for part in ("by_usage_micros", "by_rate_micros", "by_credits_micros", "gap_micros"):
        assert total[part] == sum(line[part] for line in result["jobs"])
    assert total["by_usage_micros"] == pytest.approx(8 * 3.22e6, abs=50)
    assert total["by_rate_micros"] == pytest.approx(0.0885 * 84 * 1e6, abs=50)
    assert explain_gap(total) == "usage +$25.76"


def test_a_price_that_the_ledger_does_not_know_is_not_compared() -> None:
    line = only(reconcile([ledger_slice(USE, micros_per_hour=None)], beside(*rows_of(USE))))
    assert line["unpriced_chip_hours"] == line["ledger_chip_hours"] > 0
    assert not line["differs"]


def test_a_correction_replaces_what_it_corrects() -> None:
    rows = list(rows_of(USE))
    wrong = rows[3] | {"cost": 100.0}
    later = {
        "invoice": {"month": "202609"},
        "adjustment_info": {"id": "c", "type": "USAGE_CORRECTION"},
    }
    unused = {**wrong["usage"], "amount_in_pricing_units": -2.0}
    back = wrong | later | {"cost": -100.0, "usage": unused}
    rows = [*rows[:3], *rows[4:], wrong, back, rows[3] | later]
    assert abs(only(reconcile([ledger_slice(USE)], beside(*rows)))["gap_micros"]) < 20


# Whose it is ---------------------------------------------------------------------------------------------------------


def test_labels_of_others_and_of_removed_jobs() -> None:
    rows = beside(*rows_of(replace(USE, owner="another")), *rows_of(replace(USE, job="000099")))
    result = reconcile([ledger_slice(USE)], rows)
    assert set(others(result)) == {
        "other tpujob backends",
        "slices of removed jobs",
        "Cloud Storage",
    }
    assert only(result)["rows"] == 0


def test_a_job_of_which_the_ledger_has_no_slice() -> None:
    result = reconcile([("000042", {})], beside(*rows_of(USE)))
    assert explain_gap(only(result)).startswith("usage +$77.4")


def test_a_slice_of_a_lost_store_is_not_the_new_job_of_that_id() -> None:
    old = replace(USE, slice="tj-000042-1-old", named=True)
    rows = beside(*rows_of(replace(USE, named=True)), *rows_of(old))
    line = only(result := reconcile([ledger_slice(USE)], rows))
    assert abs(line["gap_micros"]) < 20
    assert line["found_by"] == "name"
    assert others(result)["slices not in the ledger"] == pytest.approx(LIST, abs=20)


def test_a_disk_with_our_label_is_no_tpu_time() -> None:
    ours = labels({"tpujob-job": "000042", "tpujob-owner": "lab-x"})
    disk = blank(START, cost=2.0, labels=ours, sku={"description": "Storage PD Capacity"})
    result = reconcile([ledger_slice(USE)], [disk, *rows_of(USE)])
    assert others(result) == {"disks and addresses of slices": 2_000_000}


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("tj-000042-1-lab-x", True),
        ("tj-000042-1-lab-x-3", True),  # one node of several
        ("tj-000042-1-another", False),
        ("tj-000042-2-lab-x", False),
    ],
)
@pytest.mark.parametrize("column", ["name", "global_name"])
def test_the_name_of_a_resource(name: str, column: str, ours: bool) -> None:
    rows = list(rows_of(replace(USE, labelled=False, named=True, slice=name)))
    rows = [row | {"resource": {column: row["resource"][column]}} for row in rows]
    result = reconcile([ledger_slice(USE)], beside(*rows))
    assert (only(result)["found_by"] == "name") is ours
    assert ("other tpujob backends" in others(result)) is not ours


def test_more_than_our_slices_can_have_used_is_others() -> None:
    theirs = replace(USE, chips=24, labelled=False)  # 8 chips of it are ours
    line = only(result := reconcile([ledger_slice(USE)], beside(*rows_of(theirs))))
    assert abs(line["gap_micros"]) < 20
    assert others(result)["TPU time of others"] == pytest.approx(2 * LIST, abs=50)


@pytest.mark.parametrize(
    "other", [{"spot": False}, {"zone": "us-central1-a"}, {"generation": "v6e"}]
)
def test_time_of_another_kind_is_not_ours(other: dict[str, Any]) -> None:
    rows = rows_of(replace(USE, labelled=False, **other))
    assert only(reconcile([ledger_slice(USE)], beside(*rows)))["rows"] == 0


# The period ----------------------------------------------------------------------------------------------------------


def test_use_of_the_last_48_hours_is_not_settled() -> None:
    early = replace(USE, job="000001", slice="tj-000001-1-lab-x")
    fresh = replace(USE, start=START + 9 * DAY, end=START + 9 * DAY + 5 * HOUR)
    rows = beside(*rows_of(early), *list(rows_of(fresh))[:2])
    result = reconcile(_ledger([early, fresh]), rows, until=None)
    assert only(result)["key"] == "000001"
    assert others(result)["not settled: newer use"] == 2 * HOUR_OF_USE
    assert result["unsettled_estimate_micros"] == 5 * HOUR_OF_USE
    assert result["newest_export"] == rfc3339(START + 9 * DAY + 17 * HOUR)
    assert result["until"] == "2026-08-09T00:00:00.000Z"
    settled = reconcile(_ledger([early, fresh]), rows)
    assert "not settled: newer use" not in others(settled)
    assert len(settled["jobs"]) == 2


def test_late_rows_do_not_stretch_the_period() -> None:
    before = replace(USE, job="000001", start=START - 5 * DAY, end=START - 4 * DAY)
    late = [row | {"invoice": {"month": "202608"}} for row in list(rows_of(before))[:1]]
    result = reconcile(_ledger([before, USE]), beside(*late, *rows_of(USE)))
    assert only(result)["key"] == "000042"
    assert others(result)["late rows and corrections of earlier use"] == HOUR_OF_USE


def test_a_period_may_be_named() -> None:
    since = round((START + DAY) / DAY) * round(DAY * 1e6)
    later = replace(USE, job="000001", start=START + 3 * DAY, end=START + 3 * DAY + HOUR)
    result = reconcile(_ledger([USE, later]), beside(*rows_of(USE), *rows_of(later)), since=since)
    assert only(result)["key"] == "000001"
    (earlier,) = (line for line in result["others"] if line["key"].startswith("late rows"))
    assert earlier["rows"] == len(list(rows_of(USE))) + 1
