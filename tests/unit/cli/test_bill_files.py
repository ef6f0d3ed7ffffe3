"""Files of a billing export: every form has the same sums, to the micro-dollar; a damaged one is refused whole."""

import gzip
import json
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.support.bill import (
    CREDIT_TYPES,
    START,
    Row,
    Use,
    blank,
    other_rows,
    rows_of,
    write_csv,
    write_json_lines,
)
from tpujob.api import LedgerView
from tpujob.cli.commands.cost.bill import compare
from tpujob.errors import BadRequest

NO_JOBS = LedgerView(at=round((START + 60 * 86_400) * 1e6), owner="lab-x", jobs=[])
ROWS = [blank(START + hour * 3600, cost=1.0) for hour in range(40)]


def read(*paths: Path) -> dict[str, Any]:
    return compare(paths, NO_JOBS, until=NO_JOBS["at"])


def lines(result: dict[str, Any]) -> list[tuple[str, int, int, float]]:
    return [
        (line["key"], line["rows"], line["billed_micros"], line["billed_chip_hours"])
        for line in result["others"]
    ]


# Sums ----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    use = Use(
        "7", "tj-7-1-x", "v5e", "us-west4-a", True, 8, START, START + 40_000, "0.48", owner="b"
    )
    euros = {"currency": "EUR", "currency_conversion_rate": 0.8723}
    bill = [*rows_of(use), *other_rows(7, 4_000), *(row | euros for row in other_rows(8, 1_000))]
    bill += bill[::40]  # identical rows are legal
    assert {c.get("type") for row in bill for c in row["credits"]} >= set(CREDIT_TYPES)
    return bill


def _micros(row: Row) -> int:
    """Return the micro-dollars of a row; each amount is rounded to a micro-unit first, as on the invoice."""

    def rounded(value: Decimal) -> int:
        return int(value.to_integral_value(ROUND_HALF_UP))

    def dollars(*amounts: float) -> int:
        native = sum(rounded(Decimal(str(amount)) * 1_000_000) for amount in amounts)
        return rounded(native / Decimal(str(row["currency_conversion_rate"])))

    return dollars(row["cost"]) + dollars(*(credit["amount"] for credit in row["credits"]))


def test_every_row_is_counted_once_to_the_micro_dollar(rows: list[Row], tmp_path: Path) -> None:
    rows_read = read(write_json_lines(tmp_path / "export.json.gz", rows))
    assert rows_read["total"]["rows"] == len(rows)
    assert rows_read["total"]["billed_micros"] == sum(map(_micros, rows))
    for figure in ("rows", "cost_micros", "credits_micros", "billed_micros"):
        assert rows_read["total"][figure] == sum(line[figure] for line in rows_read["others"])
    assert {line["key"] for line in rows_read["others"]} == {
        "Cloud Run", "Cloud Storage", "Compute Engine", "TPU time of others", "Vertex AI", "adjustment",
        "late rows and corrections of earlier use", "other tpujob backends", "rounding error", "tax",
        "unused reservation",
    }  # fmt: skip


def test_every_form_of_the_file_says_the_same(rows: list[Row], tmp_path: Path) -> None:
    sample = rows[:1_000]
    (listed := tmp_path / "list.json").write_text(json.dumps(sample, indent=1))
    windows = write_csv(tmp_path / "windows.csv", sample)
    windows.write_bytes(b"\xef\xbb\xbf" + windows.read_bytes().replace(b"\r", b"\r\n"))
    (compressed := tmp_path / "export.csv.gz").write_bytes(gzip.compress(windows.read_bytes()))
    expected = lines(read(write_json_lines(tmp_path / "export.json", sample)))
    assert sum(rows for _, rows, *_ in expected) == len(sample)
    dots = write_csv(tmp_path / "dots.csv", sample, between=".", shuffle=3)
    for path in (listed, dots, windows, compressed):
        assert lines(read(path)) == expected, path.name


def test_rows_of_several_files_count_once(rows: list[Row], tmp_path: Path) -> None:
    sample = rows[:500] + rows[:50]  # identical rows are legal
    whole = write_json_lines(tmp_path / "whole.json", sample)
    once = lines(read(whole))
    twice = read(whole, write_csv(tmp_path / "again.csv", sample), whole)
    assert (lines(twice), twice["duplicates"]) == (once, 2 * len(sample))
    distinct = list({json.dumps(row): row for row in sample}.values())
    first = write_json_lines(tmp_path / "a.json", distinct[:300])
    second = write_json_lines(tmp_path / "b.json.gz", distinct[200:])
    whole = write_json_lines(tmp_path / "distinct.json", distinct)
    assert lines(read(first, second)) == lines(read(whole))


@pytest.mark.parametrize(
    "form",
    ["2026-08-01 07:00:00 UTC", "2026-08-01T07:00:00Z", "2026-08-01 07:00:00", "1.7855676E9"],
)
def test_times_in_every_form(tmp_path: Path, form: str) -> None:
    path = write_json_lines(tmp_path / "export.json", [ROWS[0] | {"usage_start_time": form}])
    assert read(path)["from"] == "2026-08-01T07:00:00.000Z"


def test_labels_as_a_list_and_as_its_text(tmp_path: Path) -> None:
    theirs = [{"key": "tpujob-owner", "value": "b"}]
    rows = [ROWS[0] | {"labels": theirs}, ROWS[1] | {"labels": json.dumps(theirs)}]
    rows_read = read(write_json_lines(tmp_path / "export.json", rows))
    assert lines(rows_read) == [("other tpujob backends", 2, 2_000_000, 0.0)]


def test_columns_that_the_first_row_lacks(tmp_path: Path) -> None:
    """An extract leaves out what is null."""
    use = Use("7", "tj-7-1-x", "v5e", "us-west4-a", True, 8, START, START + 3600, "0.48", named=True,
              labelled=False)  # fmt: skip
    tax = {name: ROWS[0][name] for name in ROWS[0] if name not in ("resource", "location", "usage")}
    rows_read = read(write_json_lines(tmp_path / "export.json", [tax, *rows_of(use)]))
    assert [key for key, *_ in lines(rows_read)] == ["other tpujob backends", "Cloud Storage"]


# What is refused -----------------------------------------------------------------------------------------------------


def refused(*paths: Path) -> str:
    with pytest.raises(BadRequest) as raised:
        read(*paths)
    return raised.value.message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "`cost` is missing"),
        (b" \n\n", "`cost` is missing"),
        (b"name,age\nada,36\n", "line 1: the column `cost` is missing; there are 'age, name'"),
        (b'{"name": "ada"}\n', "line 1: the column `cost` is missing; there are 'name'"),
        (b'[{"name": "ada"}]', "line 1: the column `cost` is missing; there are 'name'"),
        (b"[]", "has no rows"),
        (b"[1]", "line 1: "),
        (b"PAR1....", "`cost` is missing"),
        (b"cost,\xff\xfe\n", "can't decode byte"),
        (b'[{"cost": 1', "Expecting ',' delimiter"),
    ],
)
def test_a_file_of_another_kind(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "export"
    path.write_bytes(content)
    assert message in refused(path)


def test_a_file_that_is_damaged_or_not_there(tmp_path: Path) -> None:
    assert "nowhere.csv cannot be read: No such file" in refused(tmp_path / "nowhere.csv")
    whole = write_json_lines(tmp_path / "export.json.gz", ROWS * 300).read_bytes()
    path = tmp_path / "cut.json.gz"
    path.write_bytes(whole[: len(whole) // 2])
    assert "Compressed file ended" in refused(path)
    path.write_bytes(whole[:-8] + b"12345678")
    assert "CRC check failed" in refused(path)
    path = write_json_lines(tmp_path / "export.json", ROWS)
    path.write_text(path.read_text()[:-30])
    assert refused(path).endswith("export.json: line 40: malformed JSON")


@pytest.mark.parametrize("column", ["currency", "labels", "export_time", "sku_description"])
def test_a_csv_without_a_column(tmp_path: Path, column: str) -> None:
    path = write_csv(tmp_path / "export.csv", ROWS)
    path.write_text(path.read_text().replace(f",{column},", ",other,", 1))
    assert f"the column `{column}` is missing" in refused(path)


def test_a_csv_with_a_line_that_is_too_short(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "export.csv", ROWS)
    path.write_text(path.read_text()[:-40])
    assert "export.csv: line 41: 29 cells instead of 45" in refused(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cost": None}, "`cost` is not a number"),
        ({"cost": "much"}, "`cost` is not a number"),
        ({"cost": float("nan")}, "malformed JSON"),
        ({"currency": None}, "there is no `currency`"),
        ({"currency": "EUR", "currency_conversion_rate": None}, "`currency_conversion_rate` is not a rate"),
        ({"currency": "EUR", "currency_conversion_rate": 0}, "`currency_conversion_rate` is not a rate"),
        ({"usage_start_time": "yesterday"}, "`usage_start_time` is not a time"),
        ({"usage_end_time": "12/31/2026"}, "`usage_end_time` is not a time"),
        ({"export_time": None}, "`export_time` is not a time"),
        ({"usage": {"amount_in_pricing_units": "x"}}, "`usage.amount_in_pricing_units` is not a number"),
        ({"labels": ["tpujob-job"]}, "malformed JSON"),
        ({"labels": "[{'tpujob-job'"}, "malformed JSON"),
        ({"credits": ["a"]}, "malformed JSON"),
        ({"credits": [{"type": "DISCOUNT"}]}, "a credit has no `amount`"),
        ({"credits": [{"amount": "-1.5"}, {"amount": "abc"}]}, "a credit has no `amount`"),
    ],
)  # fmt: skip
def test_a_row_that_cannot_be_read(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = write_json_lines(tmp_path / "export.json", [*ROWS[:6], ROWS[6] | change])
    assert refused(path) == f"{path}: line 7: {message}"


def test_a_detailed_and_a_standard_export_of_the_same_costs(tmp_path: Path) -> None:
    rows = [row | {"resource": {"name": "bucket"}} for row in ROWS]
    detailed = write_json_lines(tmp_path / "d.json", rows)
    standard = write_json_lines(tmp_path / "s.json", ROWS)
    assert "give only the detailed export" in refused(detailed, standard)
