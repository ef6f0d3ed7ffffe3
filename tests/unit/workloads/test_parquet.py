"""Parquet files as text and as tokens: every row once, each row group read once, one clear error for each bad file."""

# pyarrow is typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from workloads.data.documents import in_order, open_documents
from workloads.data.rows import Rows
from workloads.data.tokens import Text, open_text
from workloads.frame.config import ConfigError


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TPUJOB_CACHE", str(tmp_path / "cache"))
    open_text.cache_clear()
    yield
    open_text.cache_clear()


def table(first: int, rows: int) -> dict[str, list[Any]]:
    """Row i has a text with its number, and up to 9 tokens that are all i."""
    sizes = np.random.default_rng(first).integers(1, 10, rows).tolist()
    numbers = range(first, first + rows)
    return {
        "url": [f"https://example.org/{i}" for i in numbers],
        "text": [f"text {i} " + "é" * (i % 7) for i in numbers],
        "input_ids": [[i] * size for i, size in zip(numbers, sizes, strict=True)],
    }


def write(path: Path, columns: dict[str, list[Any]], group: int = 10, **options: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, row_group_size=group, **options)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with 83 rows in 9 row groups of two files, which are written in different ways."""
    folder = tmp_path / "corpus"
    write(folder / "train" / "0.parquet", table(0, 50), compression="zstd")
    write(folder / "train" / "1.parquet", table(50, 33), use_dictionary=False, version="1.0")
    (folder / "README.md").write_text("no data")
    (folder / "_temporary").mkdir()
    (folder / "_temporary" / "0.parquet").write_text("not whole")
    return folder


def whole(text: Text) -> list[list[int]]:
    """Return the tokens of each document, in the order of the stream."""
    [tokens], [documents] = text.stream.read(np.zeros(1, dtype=np.int64), len(text))
    return [part.tolist() for part in np.split(tokens, np.flatnonzero(np.diff(documents)) + 1)]


def test_every_text_is_a_document_and_a_row_group_is_read_as_a_whole(folder: Path) -> None:
    documents = open_documents(str(folder))
    order = in_order(documents).tolist()
    texts = [text.decode() for text in documents.read(order)]
    assert sorted(texts) == sorted(table(0, 50)["text"] + table(50, 33)["text"])
    groups = [int(text.split()[1]) // 10 for text in texts]
    changes = sum(a != b for a, b in pairwise(groups))
    assert changes == 8, "nine groups, one after the other"
    assert groups != sorted(groups), "row groups should be mixed"
    assert texts[:10] != sorted(texts[:10], key=lambda text: int(text.split()[1]))
    text = open_text(str(folder), "bytes", 300)
    assert text.tokenizer
    assert [text.tokenizer.decode(tokens[:-1]) for tokens in whole(text)] == texts


def test_lists_of_tokens_are_taken_as_they_are(folder: Path) -> None:
    text = open_text(str(folder), "none", 100)
    lists = table(0, 50)["input_ids"] + table(50, 33)["input_ids"]
    assert sorted(whole(text)) == lists
    [stream], [documents] = text.stream.read(np.zeros(1, dtype=np.int64), len(text))
    rows: Rows = text.dataset(16).train.take(np.array([7, 2, 7]))
    for row, tokens in zip((7, 2, 7), rows["tokens"], strict=True):
        np.testing.assert_array_equal(tokens, stream[16 * row : 16 * row + 17])
    first = documents[16 * 7]
    np.testing.assert_array_equal(rows["segments"][0], documents[16 * 7 : 16 * 7 + 17] - first + 1)


@pytest.mark.parametrize(
    "type", [pa.list_(pa.uint16()), pa.large_list(pa.int64()), pa.list_(pa.int32(), 4)]
)
def test_tokens_may_be_of_any_integer_type(type: pa.DataType, tmp_path: Path) -> None:
    lists = [[i, i + 1, i + 2, i + 3] for i in range(40)]
    path = tmp_path / "set" / "0.parquet"
    path.parent.mkdir()
    pq.write_table(pa.table({"block": pa.array(lists, type)}), path, row_group_size=7)
    assert sorted(whole(open_text(str(path.parent), "none", 100))) == lists


def test_the_identity_is_that_of_the_files_wherever_they_lie(folder: Path) -> None:
    before = open_text(str(folder), "none", 100).identity
    moved = folder.rename(folder.parent / "moved")
    assert open_text(str(moved), "none", 100).identity == before
    write(moved / "train" / "1.parquet", table(51, 33))
    open_text.cache_clear()
    assert open_text(str(moved), "none", 100).identity != before


def test_what_cannot_be_used_is_one_line(folder: Path, tmp_path: Path) -> None:
    def refused(match: str, columns: dict[str, list[Any]], tokenizer: str = "none") -> None:
        place = tmp_path / f"bad-{len(list(tmp_path.iterdir()))}"
        write(place / "0.parquet", columns)
        with pytest.raises(ConfigError, match=match) as error:
            whole(open_text(str(place), tokenizer, 300))
        assert "\n" not in str(error.value)

    refused(
        r"of the columns a, b one must be called text or content, or",
        {"a": ["x"], "b": ["y"]},
        "bytes",
    )
    refused("be the only one with lists of integers", {"text": ["x"]})
    refused(
        "row group 0 of .*0.parquet has the token 300, and the model knows 300",
        {"input_ids": [[300]]},
    )
    refused(
        "row group 1 of .* has rows without tokens; leave them out",
        {"input_ids": [[1]] * 10 + [[]]},
    )
    refused("row group 0 of .* has rows without tokens", {"input_ids": [[1], None, [2]]})
    refused("its Parquet files have no rows", {"text": pa.array([], pa.string())}, "bytes")
    path = folder / "train" / "1.parquet"
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    with pytest.raises(ConfigError, match=r"1.parquet is no whole Parquet file; copy it again"):
        open_text(str(folder), "none", 100)
    path.write_bytes(content)
    part = pq.read_metadata(path).row_group(1).column(2)
    at = part.data_page_offset
    path.write_bytes(content[:at] + bytes(99) + content[at + 99 :])
    with pytest.raises(
        ConfigError, match=r"row group 1 of .*1.parquet cannot be read; copy the file again \(.+\)$"
    ):
        whole(open_text(str(folder), "none", 100))


def test_a_text_that_is_not_utf_8_names_its_row_group(tmp_path: Path) -> None:
    columns = {"text": [b"fine"] * 9 + [b"\xff"]}
    write(tmp_path / "set" / "0.parquet", columns)
    with pytest.raises(ConfigError, match=r"a row in row group 0 of .*0.parquet is not UTF-8 text"):
        open_text(str(tmp_path / "set"), "bpe", 300)


def test_without_pyarrow_the_error_names_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ConfigError, match="need the package pyarrow: python3 -m pip install"):
        open_text(str(folder))
