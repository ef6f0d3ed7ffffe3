"""Files for TensorBoard and W&B, as real writers wrote them: `scalars/` has them, each with the writer's version."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest

from tpujob.agent.scalars import ScalarFiles, Scalars
from tpujob.agent.scalars.tail import Tail
from tpujob.agent.scalars.tensorboard import EventFile
from tpujob.agent.scalars.wandb import RunFile
from tpujob.agent.upload import FoundReader, ProgressReader
from tpujob.protocol.report import FoundDocument

FILES = Path(__file__).parent / "scalars"
TENSORBOARDX = FILES / "tensorboardX-2.6.5.tfevents"
TENSORFLOW = FILES / "tensorflow-2.21.0.tfevents"
WANDB = FILES / "wandb-0.31.0.wandb"
STEPS = [*range(1, 41)]


def every(file: Tail) -> list[Scalars]:
    rows: list[Scalars] = []
    while new := file.read():
        rows += new
    return rows


def values(rows: list[Scalars], name: str) -> dict[int, float]:
    return {row.step: row.values[name] for row in rows if name in row.values}


def test_simple_scalars_of_tensorboardx() -> None:
    """Between them are a text, a histogram and an image."""
    rows = every(EventFile(str(TENSORBOARDX)))
    losses, rates = values(rows, "Loss/train"), values(rows, "lr")
    assert [*losses] == [*STEPS, 41]
    assert [*losses.values()] == pytest.approx([4 / step for step in STEPS] + [0.05])
    assert [*rates.values()] == pytest.approx([1e-3 * step for step in STEPS])
    assert {name for row in rows for name in row.values} == {"Loss/train", "lr"}
    assert all(row.at > 1.7e9 for row in rows)


def test_tensors_without_dimensions_of_tensorflow() -> None:
    """Beside them are a histogram and a text, which are tensors, too."""
    rows = every(EventFile(str(TENSORFLOW)))
    assert [*values(rows, "epoch_loss").values()] == pytest.approx([4 / step for step in STEPS])
    assert (values(rows, "count"), values(rows, "double")) == ({40: 7.0}, {40: 0.25})
    assert {name for row in rows for name in row.values} == {"epoch_loss", "count", "double"}


def test_the_history_of_an_offline_run_of_wandb() -> None:
    """One of its records is longer than a block of the log."""
    rows = every(RunFile(str(WANDB)))
    losses = values(rows, "train/loss")
    assert [*losses] == [*range(1, 13)]
    assert [*losses.values()] == pytest.approx([4 / step for step in STEPS[:10]] + [0.05, 0.04])
    assert values(rows, "nested.deep") == {step: float(step) for step in STEPS[:10]}
    assert all(math.isnan(value) for value in values(rows, "bad").values())
    assert {name for row in rows for name in row.values} == {
        "train/loss",
        "lr",
        "nested.deep",
        "bad",
    }


@pytest.mark.parametrize(
    ("kind", "source"), [(EventFile, TENSORBOARDX), (EventFile, TENSORFLOW), (RunFile, WANDB)]
)
def test_a_file_that_grows_gives_each_row_once(
    kind: type[Tail], source: Path, tmp_path: Path
) -> None:
    data, path = source.read_bytes(), tmp_path / "file"
    file, rows = kind(str(path)), []
    for end in range(0, len(data) + 997, 997):
        path.write_bytes(data[:end])
        rows += file.read()
    assert repr(rows) == repr(every(kind(str(source)))), "NaN differs from itself"


class Folder:
    """A program's folder, and the notes about its files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.notes: list[str] = []
        self.files = ScalarFiles(str(path), 0.0, self.notes.append)

    def put(self, source: Path, name: str, cut: int | None = None) -> Path:
        place = self.path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(source.read_bytes()[:cut])
        return place


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "work")


def test_files_are_found_and_those_that_are_none_are_left_out_once(folder: Folder) -> None:
    folder.put(TENSORBOARDX, "runs/a/events.out.tfevents.1.vm")
    folder.put(WANDB, "wandb/offline-run-1/run-1.wandb")
    folder.put(TENSORBOARDX, ".venv/events.out.tfevents.1.vm")
    folder.put(TENSORBOARDX, "broken/run-2.wandb")
    damaged = folder.put(WANDB, "damaged/run-3.wandb")
    data = bytearray(damaged.read_bytes())
    data[60] ^= 1
    damaged.write_bytes(data)
    (folder.path / "latest").symlink_to(folder.path / "runs")
    names = {name for row in folder.files.look() for name in row.values}
    assert {"Loss/train", "offline-run-1/train/loss"} <= names
    assert not folder.files.look()
    assert sorted(note for note in folder.notes if "left out" in note) == [
        "scalars: broken/run-2.wandb is left out: it is no run of W&B, or one of an unknown version",
        "scalars: damaged/run-3.wandb is left out: a record does not have its checksum",
    ]
    assert sum("are shown, and decide nothing" in note for note in folder.notes) == 2


def test_files_of_an_earlier_attempt_are_not_read(folder: Folder) -> None:
    old = folder.put(TENSORBOARDX, "runs/events.out.tfevents.1.vm")
    os.utime(old, (1e9, 1e9))
    files = ScalarFiles(str(folder.path), 1.1e9, folder.notes.append)
    assert not files.look()
    assert not folder.notes


def found_in(
    rows: list[Scalars], output: FoundDocument | None = None
) -> tuple[ProgressReader, FoundDocument]:
    progress = ProgressReader("none")
    FoundReader(progress).read(output, rows)
    shown = progress.facts["found"]
    assert shown is not None
    return progress, shown


def test_scalars_are_curves_and_facts_that_were_found_and_no_report(folder: Folder) -> None:
    folder.put(WANDB, "run-1.wandb")
    progress, shown = found_in(folder.files.look())
    assert (shown["step"], shown["steps"], shown["loss"]) == (12, None, 0.04)
    assert shown["metrics"] == {"lr": 0.01, "nested.deep": 10.0, "bad": "NaN"}
    assert (progress.facts.get("step"), progress.facts["metrics"]) == (None, {})
    curves = json.loads(progress.series.line())
    column = 2 + curves["names"].index("train/loss")
    assert [row[0] for row in curves["rows"]] == [*range(1, 13)]
    assert [row[column] for row in curves["rows"]][:2] == [4.0, 2.0]


def test_the_output_says_how_many_steps_there_are_and_a_file_has_the_curve(folder: Folder) -> None:
    folder.put(TENSORBOARDX, "events.out.tfevents.1.vm")
    progress = ProgressReader("none")
    found = FoundReader(progress)
    output = FoundDocument(step=3, steps=500, loss=9.0, step_s=None, metrics={})
    found.read(output, [])
    found.read(FoundDocument(**{**output, "step": 12}), folder.files.look())
    shown = progress.facts["found"]
    assert shown is not None
    assert (shown["step"], shown["steps"], shown["loss"]) == (12, 500, 9.0)
    rows = json.loads(progress.series.line())["rows"]
    assert [row[0] for row in rows] == [*STEPS, 41], "the file has the steps from the first one on"


def test_a_step_takes_the_mean_time_since_the_first_that_was_found() -> None:
    rows = [Scalars(step, 100.0 + 2 * step, {"loss": 1.0}) for step in (10, 20, 30)]
    progress = ProgressReader("none")
    found = FoundReader(progress)
    for row in rows:
        found.read(None, [row])
    shown = progress.facts["found"]
    assert shown is not None
    assert shown["step_s"] == 2.0
    found.read(None, [Scalars(5, 300.0, {"loss": 1.0})])
    assert progress.facts["found"] == shown | {"loss": 1.0}, "an epoch's number is no step"
