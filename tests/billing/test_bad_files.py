"""What is no billing export, or a damaged one: one error with file and place, and nothing is used."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.billing.bill import START, Row, blank, write_csv, write_json_lines, write_json_list
from tpujob.billing import read_into
from tpujob.domain.money.billing import Charge
from tpujob.errors import BadRequest

ROWS = [blank(START + hour * 3600, cost=1.0) for hour in range(40)]


def refused(*paths: Path) -> str:
    with pytest.raises(BadRequest) as raised:
        read_into(paths, lambda _row: None)
    return raised.value.message


def test_a_file_that_is_not_there_and_one_that_is_a_folder(tmp_path: Path) -> None:
    assert "nowhere.csv cannot be read: No such file" in refused(tmp_path / "nowhere.csv")
    assert "cannot be read: Is a directory" in refused(tmp_path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (b"name,age\nada,36\n", "is no billing export: its columns are 'name, age'"),
        (b'{"name": "ada"}\n', "is no billing export: line 1 has the columns 'name'"),
        (b'[{"name": "ada"}]', "is no billing export: row 1 has the columns 'name'"),
        (b"[]", "has no rows"),
        (b"PAR1....", "is Parquet, and neither CSV nor JSON"),
        (b"Obj\x01....", "is Avro"),
        (b"cost,\xff\xfe\n", "is no text"),
        (b"[1]", "row 1 is no JSON object"),
    ],
)
def test_a_file_of_another_kind(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "export"
    path.write_bytes(content)
    assert said in refused(path)


def test_compressed_and_cut_off(tmp_path: Path) -> None:
    whole = write_json_lines(tmp_path / "export.json.gz", ROWS * 300).read_bytes()
    path = tmp_path / "cut.json.gz"
    path.write_bytes(whole[: len(whole) // 2])
    assert "cut.json.gz is cut off or damaged after line " in refused(path)
    path.write_bytes(whole[:-8] + b"12345678")
    assert "is cut off or damaged" in refused(path)


def test_json_lines_that_break_off(tmp_path: Path) -> None:
    path = write_json_lines(tmp_path / "export.json", ROWS)
    path.write_text(path.read_text()[:-30])
    assert refused(path).endswith(
        "export.json:40: this line is no JSON; the file ends there: is it cut off?"
    )
    path.write_text("\n".join([json.dumps(ROWS[0]), "no json", json.dumps(ROWS[1]), ""]))
    assert refused(path).endswith("export.json:2: this line is no JSON")


def test_a_json_list_that_breaks_off(tmp_path: Path) -> None:
    path = write_json_list(tmp_path / "export.json", ROWS)
    path.write_text(path.read_text()[:-900])
    assert "the list of rows breaks off, or is no JSON, after row 39" in refused(path)


@pytest.mark.parametrize("column", ["currency", "labels", "export_time", "sku_description"])
def test_a_csv_without_a_column(tmp_path: Path, column: str) -> None:
    path = write_csv(tmp_path / "export.csv", ROWS, between="_")
    path.write_text(path.read_text().replace(f",{column},", ",other,", 1))
    assert f"the column `{column}` is missing" in refused(path)


def test_a_csv_in_which_each_label_repeats_the_cost(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "export.csv", ROWS, between=".")
    path.write_text(path.read_text().replace("tags", "labels.key", 1))
    assert "`labels_key` means that a cost stands in several rows" in refused(path)


def test_a_csv_with_a_line_that_is_too_short(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "export.csv", ROWS, between=".")
    text = path.read_text()
    path.write_text(text[:-40])
    assert "export.csv:41: this line has " in refused(path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cost": None}, "there is no `cost`"),
        ({"cost": "much"}, "`cost` is no number: 'much'"),
        ({"cost": float("nan")}, "`cost` is no number"),
        ({"currency": None}, "there is no `currency`"),
        ({"currency": "EUR", "currency_conversion_rate": None}, "in EUR, and there is no `currency_conv"),
        ({"currency": "EUR", "currency_conversion_rate": 0}, "`currency_conversion_rate` is no rate: '0'"),
        ({"usage_start_time": "yesterday"}, "`usage_start_time` is no time: 'yesterday'"),
        ({"export_time": None}, "there is no `export_time`"),
        ({"labels": 7}, "`labels` is no list"),
        ({"labels": ["a"]}, "`labels` is no list of keys and values"),
        ({"credits": ["a"]}, "`credits` is no list of credits"),
        ({"credits": [{"type": "DISCOUNT"}]}, "there is no `credits.amount`"),
    ],
)  # fmt: skip
def test_a_row_that_cannot_be_read(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    path = write_json_lines(tmp_path / "export.json", [*ROWS[:6], ROWS[6] | change])
    assert (message := refused(path)).startswith(f"{path}: line 7: ")
    assert said in message


def test_a_number_that_only_tells_rows_of_several_files_apart(tmp_path: Path) -> None:
    good = write_json_lines(tmp_path / "good.json", ROWS)
    bad = write_json_lines(
        tmp_path / "bad.json", [blank(START, price={"tier_start_amount": "none"})]
    )
    said = refused(good, bad)
    assert said == f"{bad}: line 1: `price_tier_start_amount` is no number: 'none'"


def test_a_label_list_that_is_no_json(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "export.csv", [*ROWS[:3], ROWS[3] | {"labels": "[{'key'"}], between="_")  # fmt: skip
    assert "export.csv: line 5: `labels` is no JSON" in refused(path)


def test_a_detailed_and_a_standard_export_of_the_same_costs(tmp_path: Path) -> None:
    detailed = write_json_lines(tmp_path / "d.json", [_named(row) for row in ROWS])
    standard = write_json_lines(tmp_path / "s.json", ROWS)
    assert "a detailed and a standard export say the same costs twice" in refused(
        detailed, standard
    )


def _named(row: Row) -> Row:
    return row | {"resource": {"name": "bucket"}}


def test_times_and_labels_in_every_form() -> None:
    row = ROWS[0]
    forms = [
        "2026-08-01 07:00:00 UTC",
        "2026-08-01T07:00:00Z",
        "2026-08-01 07:00:00",
        "1.7855676E9",
    ]
    for form in forms:
        assert _charge(row | {"usage_start_time": form}).start == START * 1e6
    for labels in (
        [{"key": "a", "value": "1"}],
        '[{"key":"a","value":"1"}]',
        '{"a": "1"}',
        {"a": "1"},
    ):
        assert _charge(row | {"labels": labels}).labels == {"a": "1"}


def _charge(row: Row) -> Charge:
    from tpujob.domain.money.billing import charge
    from tpujob.domain.money.billing.columns import flatten

    return charge(flatten(row))


def test_a_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "export.csv", ROWS, between="_")
    path.write_bytes(
        b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n").replace(b"\r\r", b"\r")
    )
    compressed = tmp_path / "export.csv.gz"
    compressed.write_bytes(gzip.compress(path.read_bytes()))
    for file in (path, compressed):
        found: list[Charge] = []
        assert read_into([file], found.append).rows == len(ROWS)
        assert sum(row.cost for row in found) == len(ROWS) * 1_000_000
