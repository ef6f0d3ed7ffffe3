"""A set in a bucket is read by ranges: a request for a record begins at the record, and is closed behind it; of Parquet
files the footer is requested, and then one column of a row group."""

# pyarrow is typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import gcsfs
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.nightly.training.test_packed import pack
from tpujob.emulator.client import storage_variables
from tpujob.emulator.storage import StorageServer, media
from workloads.data import packed
from workloads.data.documents import open_documents
from workloads.data.tokenizer import choose
from workloads.data.tokens import open_text
from workloads.frame.config import ConfigError

SET = "gs://bucket/sets/rows"


@pytest.fixture
def ranges(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Return where each answer with an object's content begins, and the size of the object."""
    answers: list[tuple[int, int]] = []
    byte_range = media.byte_range

    def recorded(header: str, size: int) -> tuple[int, int, bool]:
        start, count, partial = byte_range(header, size)
        answers.append((start, size))
        return start, count, partial

    monkeypatch.setattr(media, "byte_range", recorded)
    return answers


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StorageServer]:
    server = StorageServer(tmp_path / "storage")
    for name, value in storage_variables(server.url).items():
        monkeypatch.setenv(name, value)
    gcsfs.GCSFileSystem.clear_instance_cache()  # those of other tests lead to other servers
    yield server
    gcsfs.GCSFileSystem.clear_instance_cache()
    server.stop()


def _post(storage: StorageServer, path: str, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(storage.url + path, body, headers)).close()


def _upload(storage: StorageServer, folder: Path) -> None:
    _post(storage, "/storage/v1/b?project=p", json.dumps({"name": "bucket"}).encode())
    for file in folder.rglob("*.*"):
        name = quote(f"sets/rows/{file.relative_to(folder).as_posix()}", safe="")
        upload = f"/upload/storage/v1/b/bucket/o?uploadType=media&name={name}"
        _post(storage, upload, file.read_bytes())


def test_records_of_a_bucket_are_those_of_the_folder_and_each_is_one_request(
    tmp_path: Path, storage: StorageServer, ranges: list[tuple[int, int]]
) -> None:
    random = np.random.default_rng(0)
    for number in range(40):
        path = tmp_path / "source" / f"class-{number % 3}" / f"{number}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, random.standard_normal(50_000, dtype=np.float32))
    folder = pack(tmp_path / "source", shard_bytes=8 << 20)
    _upload(storage, folder)
    here, there = packed.open_set(str(folder)), packed.open_set(SET)
    assert there.identity == here.identity
    np.testing.assert_array_equal(there.labels, here.labels)
    np.testing.assert_array_equal(there.sizes, here.sizes)
    ranges.clear()
    assert there.read([7, 31]) == here.read([7, 31])
    [size] = {size for _, size in ranges}
    footer, first, second = sorted((start for start, _ in ranges), reverse=True)
    assert size - footer <= 1 << 20
    begins = (round(first * 40 / size), round(second * 40 / size))
    assert begins == (31, 7), "each begins at its record"

    with pytest.raises(ConfigError, match=r"gs://bucket/none has no files"):
        packed.open_set("gs://bucket/none")
    with pytest.raises(ConfigError, match=r"is in a bucket; name a tokenizer\.json of this host"):
        choose("bpe", open_documents(SET), 0)


def test_of_parquet_files_in_a_bucket_one_column_of_a_row_group_is_one_request(
    tmp_path: Path, storage: StorageServer, ranges: list[tuple[int, int]]
) -> None:
    random = np.random.default_rng(0)
    folder = tmp_path / "source"
    for number in range(2):
        tokens = [random.integers(0, 50_000, 500, dtype=np.int32) for _ in range(400)]
        columns = {"text": ["not needed " * 50] * 400, "input_ids": tokens}
        path = folder / "data" / f"{number}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), path, row_group_size=100, compression="zstd")
    _upload(storage, folder)
    ranges.clear()
    there = open_text(SET, "none", 50_000)
    assert len(ranges) == 2, "a footer of each file"
    here = open_text(str(folder), "none", 50_000)
    assert there.identity == here.identity
    rows = there.dataset(256), here.dataset(256)
    assert len(ranges) == 2, "nothing more is needed to know the rows"
    which = np.array([700, 3, 701, 4])
    first, second = (dataset.train.take(which) for dataset in rows)
    np.testing.assert_array_equal(first["tokens"], second["tokens"])
    np.testing.assert_array_equal(first["segments"], second["segments"])
    requested = sorted(start for start, _ in ranges[2:])
    assert len(requested) == 2, "one for each row group"
    parts = [
        pq.read_metadata(path).row_group(group).column(1)
        for path in folder.rglob("*.parquet")
        for group in range(4)
    ]
    starts = {part.dictionary_page_offset or part.data_page_offset for part in parts}
    assert set(requested) <= starts
