"""What a program has finished writing reaches the bucket within seconds, and a log does not cost more for it."""

import functools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import orbax.checkpoint
import pytest

from tests.support.agent_host import KEY
from tests.support.simulation.sim import Sim
from tests.support.virtual_threads import virtual
from tpujob.agent.storage import StorageError
from tpujob.agent.upload import outputs as module
from tpujob.agent.upload.output_list import OutputList
from tpujob.agent.upload.outputs import Outputs

checkpoint_manager: Any = orbax.checkpoint.CheckpointManager
standard_save: Any = orbax.checkpoint.args.StandardSave
SOON = 20  #: seconds in which the bucket has what is whole, if nothing was sent a minute before


class Bucket:
    """A storage that counts its writes."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.puts: list[str] = []

    def put(self, path: str, data: bytes, metadata: Any = None) -> None:
        self.puts.append(path)
        self.objects[path] = data

    def put_file(self, path: str, file: str, md5: str) -> None:
        self.put(path, Path(file).read_bytes())

    def delete(self, path: str) -> None:
        del self.objects[path]

    def objects_below(self) -> set[str]:
        return {path.removeprefix("gs://b/out/") for path in self.objects if path != "gs://b/list"}


class Program:
    """A program with the output folder `out`, in virtual time. It writes by `every`, `write` and by hand."""

    def __init__(self, sim: Sim, work: Path) -> None:
        self.sim, self.out, self.bucket = sim, work / "out", Bucket()
        self.out.mkdir()
        storage: Any = self.bucket
        listed = OutputList(storage, "gs://b/list", KEY, ["1"])
        self.notes: list[str] = []
        self.outputs = Outputs(storage, str(work), ["out"], "gs://b", listed, self.notes.append)
        wake: Any = SimpleNamespace(up=lambda: None)
        self.outputs.follow(wake)
        self.after(1)

    def after(self, seconds: float) -> None:
        self.sim.run_until(self.sim.now + seconds)

    def write(self, name: str, text: str = "weights", mode: str = "w") -> None:
        path = self.out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open(mode) as file:
            file.write(text)
        os.utime(path, (self.sim.now, self.sim.now))

    def every(self, seconds: float, do: Callable[[], object]) -> None:
        """Do this now, and again and again."""

        def repeat() -> None:
            while True:
                do()
                self.sim.sleep(seconds)

        self.sim.spawn(repeat)

    @property
    def kept(self) -> set[str]:
        """The files in the bucket."""
        return self.bucket.objects_below()

    def sent(self, name: str) -> int:
        """How often a file was sent."""
        return self.bucket.puts.count(f"gs://b/out/{name}")


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    sim = Sim(0)
    with virtual(sim, module):
        yield Program(sim, tmp_path)
        sim.stop()


def test_a_checkpoint_of_orbax_is_kept_once_it_has_its_final_name(program: Program) -> None:
    folder = program.out / "run" / "checkpoints"
    program.every(2, functools.partial(program.write, "run/tb/events.out.tfevents.1.h", "x", "a"))
    with checkpoint_manager(folder) as manager:
        for step in (50, 100):
            manager.save(step, args=standard_save({"w": numpy.ones(8)}))
            manager.wait_until_finished()
            if step == 100:
                (folder / "100").rename(folder / "100.orbax-checkpoint-tmp")
    program.after(SOON)
    written = {str(p.relative_to(program.out)) for p in folder.rglob("*") if p.is_file()}
    assert program.kept == {name for name in written if "/50/" in name}
    assert any(name.endswith("_CHECKPOINT_METADATA") for name in program.kept)
    (folder / "100.orbax-checkpoint-tmp").rename(folder / "100")
    shutil.rmtree(folder / "50")
    program.after(60 + SOON)
    assert {name.split("/")[2] for name in program.kept} == {"100"}, "deleted there, too"


@pytest.mark.parametrize("name", ["ckpt.pt", "exp/deep/last.ckpt"])
def test_a_file_that_is_rewritten_in_place_is_kept_each_time(program: Program, name: str) -> None:
    log = os.path.join(os.path.dirname(name), "train.log")
    program.every(1, functools.partial(program.write, log, "a line\n", "a"))
    for step in (250, 1000, 15000):
        program.write(name, f"weights of {step}, of another size than before")
        program.after(60 + SOON)
        assert program.bucket.objects[f"gs://b/out/{name}"].startswith(b"weights of %d," % step)
    assert program.sent(name) == 3


def test_a_folder_is_kept_whole_or_not_yet(program: Program) -> None:
    """Transformers write a checkpoint in place; its last file is trainer_state.json."""
    program.write("checkpoint-50/config.json")
    program.write("checkpoint-50/global_step50/rank0.pt")
    for _ in range(12):
        program.write("checkpoint-50/model.safetensors", "a part", "a")
        program.after(5)
    assert not {name for name in program.kept if "global_step" not in name}
    program.write("checkpoint-50/trainer_state.json")
    program.after(60 + SOON)
    assert len(program.kept) == 4


@pytest.mark.parametrize(
    "name", ["ckpt.pt.tmp", "tmp-checkpoint-5/model", "tmp8s3kx/model", "model.incomplete"]
)
def test_what_has_a_temporary_name_waits_for_its_own(program: Program, name: str) -> None:
    program.write(name)
    program.after(200)
    assert program.kept == set()
    (program.out / name).rename(program.out / "ckpt.pt")
    program.after(SOON)
    assert program.kept == {"ckpt.pt"}


@pytest.mark.parametrize("name", ["events.jsonl", "run/events.out.tfevents.17.host", "loss", "a/o"])
@pytest.mark.parametrize("seconds", [1, 30])
def test_a_file_that_grows_costs_no_further_uploads(
    program: Program, name: str, seconds: int
) -> None:
    program.every(seconds, functools.partial(program.write, name, "step 1 loss 2.5\n", "a"))
    program.after(3600)
    assert program.sent(name) <= 13, "one every five minutes"
    assert len(program.bucket.puts) <= 3 * 13


def test_large_numbers_of_files_cost_a_limited_number_of_operations(program: Program) -> None:
    steps = iter(range(10**6))

    def save() -> None:
        shutil.rmtree(program.out)
        step = next(steps)
        for n in range(100):
            program.write(f"{step}/{n}")

    program.every(30, save)
    program.after(1200)
    sent = [path for path in program.bucket.puts if path != "gs://b/list"]
    assert 1000 <= len(sent) <= 1200 + 4 * 100, "one a second, and every file each five minutes"


def test_large_checkpoints_take_a_fifth_of_the_time(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = program.bucket.put_file

    def slow(path: str, file: str, md5: str) -> None:
        program.sim.sleep(30)
        put(path, file, md5)

    monkeypatch.setattr(program.bucket, "put_file", slow)
    sizes = iter(range(10**6))
    program.every(20, lambda: program.write("ckpt.pt", f"{next(sizes)} weights"))
    program.after(3600)
    assert 20 <= program.sent("ckpt.pt") <= 3600 / 5 / 30 + 12


def test_nothing_is_kept_early_while_numbers_are_not_finite(program: Program) -> None:
    program.outputs.freeze(True)
    program.write("ckpt.pt")
    program.after(200)
    assert program.kept == set()
    program.outputs.freeze(False)
    program.after(60 + SOON)
    assert program.kept == {"ckpt.pt"}


def test_a_failed_upload_of_whole_files_is_tried_again(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = program.bucket.put_file
    monkeypatch.setattr(program.bucket, "put_file", refuse)
    program.write("ckpt.pt")
    program.after(SOON)
    assert program.notes == ["outputs cannot be kept in the bucket: HTTP 503: busy"]
    monkeypatch.setattr(program.bucket, "put_file", put)
    program.after(60 + SOON)
    assert program.kept == {"ckpt.pt"}
    assert program.notes == ["outputs cannot be kept in the bucket: HTTP 503: busy"]


def refuse(*_: object) -> None:
    raise StorageError("HTTP 503: busy", 503)
