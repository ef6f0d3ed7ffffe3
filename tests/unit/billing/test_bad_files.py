"""What is no billing export, or a damaged one: one error with file and place, and nothing is used."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.billing.bill import START, Row, blank, write_csv, write_json_lines
from tpujob.billing import Reconciled, reconcile
from tpujob.errors import BadRequest

NOW = round((START + 86_400) * 1e6)
ROWS = [blank(START + hour * 3600, cost=1.0) for hour in range(40)]


def read(*paths: Path) -> Reconciled:
    return reconcile(paths, {}, [], "lab-x", NOW, until=NOW)


def refused(*paths: Path) -> str:
    with pytest.raises(BadRequest) as raised:
        read(*paths)
    return raised.value.message


def test_a_file_that_is_not_there_and_one_that_is_a_folder(tmp_path: Path) -> None:
    assert "nowhere.csv cannot be read: No such file" in refused(tmp_path / "nowhere.csv")
    assert "cannot be read: Is a directory" in refused(tmp_path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "`cost` is missing"),
        (b" \n\n", "`cost` is missing"),
        (b"name,age\nada,36\n", "line 1: the column `cost` is missing; there are 'age, name'"),
        (b'{"name": "ada"}\n', "line 1: the column `cost` is missing; there are 'name'"),
        (b'[{"name": "ada"}]', "row 1: the column `cost` is missing; there are 'name'"),
        (b"[]", "has no rows"),
        (b"PAR1....", "`cost` is missing"),
        (b"cost,\xff\xfe\n", "can't decode byte"),
        (b'[{"cost": 1', "the list of rows breaks off, or is not JSON"),
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
    assert "the file is cut off or damaged" in refused(path)
    path.write_bytes(whole[:-8] + b"12345678")
    assert "the file is cut off or damaged" in refused(path)


def test_json_lines_that_break_off(tmp_path: Path) -> None:
    path = write_json_lines(tmp_path / "export.json", ROWS)
    path.write_text(path.read_text()[:-30])
    assert refused(path).endswith("export.json: line 40: malformed JSON")
    path.write_text("\n".join([json.dumps(ROWS[0]), "no json", json.dumps(ROWS[1]), ""]))
    assert refused(path).endswith("export.json: line 2: malformed JSON")


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
    assert "export.csv: line 41: 29 cells instead of 45" in refused(path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cost": None}, "there is no cost"),
        ({"cost": "much"}, "`cost` is not a number"),
        ({"cost": float("nan")}, "malformed JSON"),
        ({"currency": None}, "there is no currency"),
        ({"currency": "EUR", "currency_conversion_rate": None}, "there is no currency_conversion_rate"),
        ({"currency": "EUR", "currency_conversion_rate": 0}, "`currency_conversion_rate` is not a rate"),
        ({"usage_start_time": "yesterday"}, "'yesterday' is not a time"),
        ({"export_time": None}, "there is no export_time"),
        ({"labels": ["tpujob-job"]}, "`labels` is not a list of objects"),
        ({"credits": ["a"]}, "`credits` is not a list of objects"),
        ({"credits": [{"type": "DISCOUNT"}]}, "a credit has no `amount`"),
    ],
)  # fmt: skip
def test_a_row_that_cannot_be_read(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    path = write_json_lines(tmp_path / "export.json", [*ROWS[:6], ROWS[6] | change])
    assert (message := refused(path)).startswith(f"{path}: line 7: ")
    assert said in message


def test_a_label_list_that_is_no_json(tmp_path: Path) -> None:
    rows = [*ROWS[:3], ROWS[3] | {"labels": "[{'tpujob-job'"}]
    path = write_csv(tmp_path / "export.csv", rows, between="_")
    assert "export.csv: line 5: `labels` is not JSON" in refused(path)


def test_a_detailed_and_a_standard_export_of_the_same_costs(tmp_path: Path) -> None:
    detailed = write_json_lines(tmp_path / "d.json", [_named(row) for row in ROWS])
    standard = write_json_lines(tmp_path / "s.json", ROWS)
    assert "a detailed and a standard export have the same costs" in refused(detailed, standard)


def _named(row: Row) -> Row:
    return row | {"resource": {"name": "bucket"}}


@pytest.mark.parametrize(
    "form",
    ["2026-08-01 07:00:00 UTC", "2026-08-01T07:00:00Z", "2026-08-01 07:00:00", "1.7855676E9"],
)
def test_times_in_every_form(tmp_path: Path, form: str) -> None:
    path = write_json_lines(tmp_path / "export.json", [ROWS[0] | {"usage_start_time": form}])
    assert read(path).start == START * 1e6


@pytest.mark.parametrize(
    "labels",
    [
        [{"key": "tpujob-owner", "value": "b"}],
        '[{"key":"tpujob-owner","value":"b"}]',
        '{"tpujob-owner": "b"}',
        {"tpujob-owner": "b"},
    ],
)
def test_labels_in_every_form(tmp_path: Path, labels: object) -> None:
    row = ROWS[0] | {"labels": labels, "export_time": "2026-09-01T00:00:00Z"}
    (line,) = read(write_json_lines(tmp_path / "export.json", [row])).others
    assert line.category == "other tpujob backends"


def test_a_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "export.csv", ROWS, between="_")
    path.write_bytes(
        b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n").replace(b"\r\r", b"\r")
    )
    compressed = tmp_path / "export.csv.gz"
    compressed.write_bytes(gzip.compress(path.read_bytes()))
    for file in (path, compressed):
        found = read(file).billed
        assert (found.rows, found.gross) == (len(ROWS), len(ROWS) * 1_000_000)
