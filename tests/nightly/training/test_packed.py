"""Packed sets as rows of a workload: `tpujob data pack` makes them, Grain reads them."""

import io
import json
from pathlib import Path

import numpy as np
import pytest

from tests.contract.data.rig import Silent
from tpujob.data.pack import Pack
from workloads.data import packed
from workloads.data.bundled import digits
from workloads.data.rows import Rows, RowSource
from workloads.frame.config import ConfigError
from workloads.mlp import MlpConfig
from workloads.mlp.model import MlpWorkload


def npy(folder: Path, x: np.ndarray, y: np.ndarray) -> Path:
    """`class/number.npy`."""
    for i, (row, label) in enumerate(zip(x, y, strict=True)):
        path = folder / f"digit-{label}" / f"{i:05d}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, row.reshape(8, 8))
    return folder


def pack(source: Path, shard_bytes: int = 64 << 10) -> Path:
    target = source.with_name(source.name + "-packed")
    Pack(str(source), shard_bytes=shard_bytes, seed=1).run(str(target), Silent())
    return target


def every(source: RowSource) -> Rows:
    return source.take(np.arange(len(source)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits that the workload tests on otherwise, packed."""
    place = tmp_path_factory.mktemp("digits")
    rows = every(digits().test)
    packed = pack(npy(place / "source", rows["x"], rows["y"]))
    assert len(list(packed.glob("*.arrayrecord"))) > 1
    return packed


def test_every_row_is_trained_on_or_tested_and_has_its_class(folder: Path) -> None:
    dataset = packed.dataset(str(folder))
    rows, test = every(dataset.train), every(dataset.test)
    x = np.concatenate([rows["x"], test["x"]])
    y = np.concatenate([rows["y"], test["y"]])
    expected = every(digits().test)
    assert dataset.classes == 10
    assert len(test["y"]) == 360 // 5
    assert x.dtype == np.float32

    def in_order(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        both = np.column_stack([x, y])
        return both[np.lexsort(both.T)]

    np.testing.assert_array_equal(in_order(x, y), in_order(expected["x"], expected["y"]))


def test_what_cannot_be_read_is_one_line(folder: Path, tmp_path: Path) -> None:
    def copy(name: str) -> Path:
        made = tmp_path / name
        made.mkdir()
        for file in folder.iterdir():
            (made / file.name).write_bytes(file.read_bytes())
        return made

    short = copy("short")
    shard = min(short.glob("*.arrayrecord"))
    shard.write_bytes(shard.read_bytes()[:-1])
    newer = copy("newer")
    manifest = json.loads((newer / "manifest.json").read_bytes())
    (newer / "manifest.json").write_text(json.dumps(manifest | {"version": 2}))
    pack(npy(tmp_path / "few", np.zeros((2, 64)), np.zeros(2, dtype=int)))
    for name in ("flat/a", *(f"text/a/{letter}" for letter in "abcde")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"no array")
    pack(tmp_path / "flat")
    pack(tmp_path / "text")
    for place, words in (
        (short, "copy it again"),
        (newer, "version 1"),
        (tmp_path / "flat-packed", "no folders"),
        (tmp_path / "few-packed", "too few"),
        (tmp_path / "missing", "missing is no folder of this host; copy it"),
        (tmp_path, "no manifest.json"),
    ):
        with pytest.raises(ConfigError, match=words):
            packed.dataset(str(place))
    with pytest.raises(ConfigError, match=r"record \d .* is no \.npy array"):
        packed.dataset(str(tmp_path / "text-packed"))


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.uint8).reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(6, dtype=">i4"),
        np.float64(3.5),
    ],
)
def test_any_array_of_numbers_can_be_a_record(array: np.ndarray) -> None:
    file = io.BytesIO()
    np.save(file, array)
    np.testing.assert_array_equal(packed.read_array(file.getvalue(), 0), array)
    for record in (
        file.getvalue()[:-1],
        file.getvalue()[:9],
        b"",
        b"\x93NUMPY\x01\x00",
        b"x" * 100,
    ):
        with pytest.raises(ConfigError, match="record 8 "):
            packed.read_array(record, 8)
    objects = io.BytesIO()
    np.save(objects, np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ConfigError):
        packed.read_array(objects.getvalue(), 0)


def test_a_checkpoint_is_bound_to_the_set_not_to_its_place(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "manifest.json").write_bytes((folder / "manifest.json").read_bytes())
    first, second = (MlpConfig(data=str(place)).identity() for place in (folder, tmp_path))
    assert first == second != MlpConfig().identity()
    monkeypatch.setenv("TPUJOB_DATA", str(folder))  # as the agent does for `data:` in a job file
    assert MlpConfig().identity() == first
    assert len(MlpWorkload(MlpConfig()).dataset().test) == 360 // 5
