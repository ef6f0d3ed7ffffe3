"""Rows of tokens: all of the text, each row by its number, the same on every host and from every kind of set."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from tests.contract.data.rig import Silent
from tpujob.data.pack import Pack
from workloads.data.documents import open_documents
from workloads.data.rows import Dataset, Rows, RowSource
from workloads.data.tokens import Text, open_text
from workloads.frame.config import ConfigError

WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "lazy", "dog", "and", "finds", "none"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the folder in which this host keeps what it makes of data."""
    monkeypatch.setenv("TPUJOB_CACHE", str(tmp_path / "cache"))
    open_text.cache_clear()
    yield tmp_path / "cache" / "data"
    open_text.cache_clear()


def texts(count: int = 60) -> list[str]:
    random = np.random.default_rng(7)
    return [" ".join(random.choice(WORDS, size)) for size in random.integers(1, 90, count)]


def write(folder: Path, documents: list[str]) -> Path:
    folder.mkdir()
    for i, text in enumerate(documents):
        (folder / f"{i:04d}.txt").write_text(text)
    return folder


def packed_from(source: Path, target: Path) -> Path:
    Pack(str(source), shard_bytes=4 << 10, seed=1).run(str(target), Silent())
    return target


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "texts", texts())


@pytest.fixture
def packed(folder: Path, tmp_path: Path) -> Path:
    return packed_from(folder, tmp_path / "packed")


def every(source: RowSource) -> Rows:
    return source.take(np.arange(len(source)))


def documents_of(text: Text, dataset: Dataset) -> list[str]:
    """Return the documents in the rows, put together again; the last may be cut."""
    assert text.tokenizer
    rows = [row[:-1] for part in (dataset.train, dataset.test) for row in every(part)["tokens"]]
    stream = np.concatenate(rows)
    return [
        text.tokenizer.decode(part.tolist())
        for part in np.split(stream, np.flatnonzero(stream == text.tokenizer.end) + 1)
    ]


@pytest.mark.parametrize("tokenizer", ["bytes", "bpe"])
@pytest.mark.parametrize("place", ["folder", "packed"])
def test_the_rows_hold_every_document_once(
    tokenizer: str, place: str, request: pytest.FixtureRequest
) -> None:
    text = open_text(str(request.getfixturevalue(place)), tokenizer, 300)
    dataset = text.dataset(16)
    documents = documents_of(text, dataset)
    whole = texts()
    assert len(set(documents[:-1])) == len(documents) - 1
    assert set(documents[:-1]) <= set(whole)
    assert sum(map(len, documents)) > sum(map(len, whole)) - 100
    assert documents[:-1] != whole[: len(documents) - 1], "documents should be mixed"


def test_a_row_ends_where_the_next_begins_and_the_parts_share_no_token(folder: Path) -> None:
    dataset = open_text(str(folder)).dataset(32)
    train, test = every(dataset.train)["tokens"], every(dataset.test)["tokens"]
    assert train.dtype == np.int32
    assert train.shape[1] == 33
    assert len(test) == (len(train) + len(test)) // 20
    both = np.concatenate([train, test])
    np.testing.assert_array_equal(both[:-1, -1], both[1:, 0])


def test_segments_number_the_documents_of_a_row(folder: Path) -> None:
    text = open_text(str(folder))
    assert text.tokenizer
    rows = every(text.dataset(100).train)
    for tokens, segments in zip(rows["tokens"], rows["segments"], strict=True):
        ended = np.cumsum(tokens == text.tokenizer.end)
        np.testing.assert_array_equal(segments, 1 + np.append(0, ended[:-1]))
    assert rows["segments"].max() > 2
    assert set(text.dataset(100, segments=False).train.take(np.arange(1))) == {"tokens"}


def lists_of(text: Text) -> list[list[int]]:
    """Return the tokens of each document, in the order of the stream."""
    [tokens], [documents] = text.stream.read(np.zeros(1, dtype=np.int64), len(text))
    return [part.tolist() for part in np.split(tokens, np.flatnonzero(np.diff(documents)) + 1)]


def test_arrays_of_tokens_are_taken_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "arrays").mkdir()
    arrays = [np.arange(10 * i, 10 * i + i + 1, dtype=np.uint16) for i in range(40)]
    for i, array in enumerate(arrays):
        np.save(tmp_path / "arrays" / f"{i:02d}.npy", array)
    place = str(packed_from(tmp_path / "arrays", tmp_path / "set"))
    text = open_text(place, "none", 500)
    assert len(text) == sum(map(len, arrays))
    assert sorted(lists_of(text)) == [array.tolist() for array in arrays]
    with pytest.raises(ConfigError, match=r"record \d+ has the token \d+, and the model knows 300"):
        every(open_text(place, "none", 300).dataset(8).train)


def test_prepared_data_is_made_once_and_again_if_damaged(folder: Path, cache: Path) -> None:
    first = open_text(str(folder), "bpe", 300)
    rows = every(first.dataset(16).train)["tokens"]
    times = {path: path.stat().st_mtime_ns for path in cache.iterdir()}
    assert len(times) == 3, "a tokenizer, tokens, and where documents end"
    open_text.cache_clear()
    open_text(str(folder), "bpe", 300)
    assert {path: path.stat().st_mtime_ns for path in cache.iterdir()} == times
    tokens = next(path for path in cache.glob("tokens-*") if path.suffix != ".npy")
    tokens.write_bytes(tokens.read_bytes()[:-1])
    open_text.cache_clear()
    again = open_text(str(folder), "bpe", 300)
    np.testing.assert_array_equal(every(again.dataset(16).train)["tokens"], rows)
    assert again.identity == first.identity


def test_a_checkpoint_is_bound_to_documents_and_tokenizer(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    folder.rename(copy)
    identity = open_text(str(copy), "bpe", 300).identity
    assert open_text(str(copy), "bpe", 301).identity != identity
    assert open_text(str(copy)).identity != identity
    (copy / "0000.txt").write_text("other")
    open_text.cache_clear()
    assert open_text(str(copy), "bpe", 300).identity != identity


def test_a_tokenizer_beside_the_data_is_used(folder: Path, cache: Path) -> None:
    trained = open_text(str(folder), "bpe", 300)
    made = next(cache.glob("bpe-*.json")).read_text()
    other = folder.parent / "other"
    write(other, ["some text"] * 40)
    (other / "tokenizer.json").write_text(made)
    assert trained.tokenizer
    beside = open_text(str(other), "bpe", 1000).tokenizer
    assert beside
    assert beside.identity == trained.tokenizer.identity
    named = open_text(str(folder), str(other / "tokenizer.json")).tokenizer
    assert named
    assert named.identity == trained.tokenizer.identity
    text = "the lazy dog\n naïve \N{SNOWMAN}"
    assert named.decode(named.encode_text(text)) == text


def test_a_tokenizer_that_cuts_or_fills_up_texts_does_not(folder: Path, cache: Path) -> None:
    whole = open_text(str(folder), "bpe", 300)
    changed: Any = Tokenizer.from_file(str(next(cache.glob("bpe-*.json"))))
    changed.enable_truncation(4)
    changed.enable_padding()
    changed.save(str(folder.parent / "changed.json"))
    text = open_text(str(folder), str(folder.parent / "changed.json"))
    assert lists_of(text) == lists_of(whole)


def test_hidden_files_and_the_tokenizer_are_no_documents(folder: Path) -> None:
    before = open_documents(str(folder)).identity
    (folder / ".git").mkdir()
    for name in (".git/index", ".hidden", "tokenizer.json"):
        (folder / name).write_bytes(b"\xff")
    assert open_documents(str(folder)).identity == before


def test_text_that_comes_with_python_needs_no_download() -> None:
    text = open_text("pydoc", "bytes", 512)
    assert text.vocabulary == 512
    assert text.tokenizer
    assert len(text) > 400_000
    row = text.dataset(256).train.take(np.array([3]))["tokens"][0]
    assert len(text.tokenizer.decode(row.tolist())) > 200


def test_data_that_cannot_be_used_is_one_line(folder: Path, packed: Path, tmp_path: Path) -> None:
    def refused(match: str, *arguments: object, sequence: int = 16) -> None:
        with pytest.raises(ConfigError, match=match) as error:
            open_text(*arguments).dataset(sequence)  # type: ignore[arg-type]
        assert "\n" not in str(error.value)

    (tmp_path / "empty").mkdir()
    refused("no files", str(tmp_path / "empty"))
    refused("no folder of this host", str(tmp_path / "missing"))
    length = len(open_text(str(folder)))
    refused(f"has {length} tokens, .* need 19999", str(folder), sequence=9999)
    refused("has 257 tokens, and the model knows 256", str(folder), "bytes", 256)
    refused("300 .*model knows 299", str(folder), _tokenizer_json(folder), 299)
    refused("fewer than the 257", str(folder), "bpe", 200)
    refused("cannot be read", str(folder), str(tmp_path / "none.json"))
    (tmp_path / "odd.json").write_text("{}")
    refused(r"no tokenizer\.json", str(folder), str(tmp_path / "odd.json"))
    refused("no packed set of arrays", str(folder), "none", 300)
    refused("set vocab", str(packed), "none")
    refused(r"record 0 .* no \.npy array", str(packed), "none", 300)
    shard = max(packed.glob("*.arrayrecord"))
    shard.write_bytes(shard.read_bytes()[:-1])
    open_text.cache_clear()
    refused("copy it again", str(packed))
    (folder / "latin.txt").write_bytes("é".encode("latin-1"))
    refused(r"latin\.txt is not UTF-8 text \(byte 0\)", str(folder), "bpe", 300)


def test_a_damaged_record_is_found_when_it_is_read(packed: Path) -> None:
    shard = max(packed.glob("*.arrayrecord"), key=lambda path: path.stat().st_size)
    content = bytearray(shard.read_bytes())
    content[100:140] = bytes(40)
    shard.write_bytes(content)
    with pytest.raises(ConfigError, match="cannot be read; copy the set again"):
        every(open_text(str(packed)).dataset(16).train)


def _tokenizer_json(folder: Path) -> str:
    """One of 300 tokens."""
    tokenizer = open_text(str(folder), "bpe", 300)
    assert tokenizer.vocabulary == 300
    made = next((folder.parent / "cache" / "data").glob("bpe-*.json"))
    assert len(json.loads(made.read_text())["model"]["vocab"]) == 300
    return str(made)
