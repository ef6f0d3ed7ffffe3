"""Checkpoints of a state with every kind of array, ways to damage them, and the start of a run after the damage."""

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from tpujob.contract import Reporter
from workloads.checkpoints.saving import Checkpoints
from workloads.data.rows import Dataset, Feed, InMemory
from workloads.frame.config import TrainConfig
from workloads.frame.log import ProgressLog
from workloads.frame.mesh import mesh_of
from workloads.frame.program import Program
from workloads.frame.resume import restore
from workloads.frame.workload import Batch, ByRow, Watch, Workload

#: Of the checkpoints of a `Bench`, each with a state of its own.
OLDER, NEWER = 10, 20
_ROWS, _WIDTH = 8, 64

Bits = dict[str, bytes]


class _Kept(nnx.Variable[Any]):
    """State that is not trained."""


class _Model(nnx.Module):
    """Parameters, dropout's keys and counts, and what else a model may keep."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        split = {"out_sharding": ("embed", "mlp")}
        self.first = nnx.Linear(_WIDTH, 2 * _WIDTH, rngs=rngs, kernel_metadata=split)
        self.last = nnx.Linear(2 * _WIDTH, 1, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.calls = _Kept(jnp.int32(0))
        self.half = _Kept(jnp.linspace(0, 1, 48, dtype=jnp.bfloat16))
        self.mask = _Kept(jnp.arange(_WIDTH) % 3 > 0)
        self.bytes = _Kept(jnp.arange(24, dtype=jnp.uint8).reshape(4, 6))

    def __call__(self, x: jax.Array, watch: Watch) -> jax.Array:
        self.calls[...] += 1
        h = watch(self.first(jnp.where(self.mask[...], x, 0)))
        return self.last(self.dropout(nnx.relu(h)))[:, 0]


class _Everything(Workload[TrainConfig]):
    title = "everything"

    def model(self, rngs: nnx.Rngs) -> _Model:
        return _Model(rngs)

    def loss(self, model: _Model, batch: Batch, watch: Watch) -> ByRow:
        off = model(batch["x"], watch).astype(jnp.float32)
        return ByRow(off**2, jnp.ones(len(off)))

    def metrics(self, model: _Model, batch: Batch) -> dict[str, ByRow]:
        raise NotImplementedError

    def dataset(self) -> Dataset:
        x = np.random.default_rng(7).standard_normal((64, _WIDTH), dtype=np.float32)
        return Dataset(InMemory({"x": x}), InMemory({"x": x}))


def program_on(devices: int, fsdp: int = 1, tensor: int = 1) -> Program:
    """Return the program of these checkpoints on the first so many devices."""
    config = TrainConfig(steps=100, batch=_ROWS, fsdp=fsdp, tensor=tensor)
    return Program(_Everything(config), mesh_of(config, jax.devices()[:devices]))


def bits_of(state: Any) -> Bits:
    """Return every bit of a state, by the path of its arrays."""
    leaves = jax.tree_util.tree_leaves_with_path(state)
    return {jax.tree_util.keystr(path): np.asarray(leaf).tobytes() for path, leaf in leaves}


class _Events(Reporter):
    """A reporter that keeps events in memory."""

    def __init__(self) -> None:
        self.kept: list[tuple[str, dict[str, Any]]] = []

    def event(self, kind: str, /, **fields: Any) -> None:
        self.kept.append((kind, fields))


@dataclass
class Begun:
    """The start of a run."""

    step: int
    bits: Bits
    position: int  #: in the data
    checkpoints: Checkpoints
    damaged: dict[int, str]  #: by step, the message about the damage


class Bench:
    """Two good checkpoints, and copies of them to be damaged."""

    def __init__(self, folder: Path, program: Program) -> None:
        self._folder, self._copies = folder, 0
        self.program = program
        state, good = program.first_state(), program.all_good()
        feed = self.feed(program)
        step = program.compile(program.batch(feed.example()), program.in_haste)
        made = Checkpoints(str(folder / "good" / "checkpoints"), 2, program.layout)
        self.bits: dict[int, Bits] = {}
        for number in (OLDER, NEWER):
            state, _ = step(state, good, program.batch(next(feed)))
            made.save(number, state, feed.state, program.config.identity())
            self.bits[number] = bits_of(state)
        assert made.wait() == NEWER

    @staticmethod
    def feed(program: Program) -> Feed:
        return Feed(program.workload.dataset(), _ROWS, 0, 0, 1)

    def copy(self) -> Path:
        """Return a workdir with a copy of both checkpoints."""
        self._copies += 1
        return shutil.copytree(self._folder / "good", self._folder / f"copy-{self._copies}")

    def begin(self, workdir: Path, program: Program | None = None) -> Begun:
        """Return the start of a run in that workdir."""
        program = program or self.program
        checkpoints = Checkpoints(str(workdir / "checkpoints"), 2, program.layout)
        feed = self.feed(program)
        events = _Events()
        log = ProgressLog(events, program.config, speaks=True)
        step, state = restore(checkpoints, program, feed, program.config, log)
        damaged = {f["step"]: f["message"] for kind, f in events.kept if kind == "damaged"}
        return Begun(step, bits_of(state), feed.state["position"], checkpoints, damaged)

    def check(self, workdir: Path, case: str) -> int:
        """Begin a run; return its step. Fail unless its bits are those of one of the checkpoints."""
        begun = self.begin(workdir)
        assert begun.bits == self.bits.get(begun.step), (
            f"{case}: began at step {begun.step} with other bits than were saved"
        )
        assert begun.position == begun.step // OLDER * _ROWS
        if begun.step == OLDER:
            assert begun.checkpoints.steps() == [OLDER]
            aside = Path(begun.checkpoints.aside) / str(NEWER)
            assert aside.is_dir(), f"{case}: the damaged checkpoint is gone"
            assert begun.damaged.keys() == {NEWER}
        begun.checkpoints.close()
        return begun.step


def truncate_a_shard(checkpoint: Path) -> None:
    """Cut the largest file of the arrays in half."""
    largest = max((checkpoint / "state").rglob("d/*"), key=lambda file: file.stat().st_size)
    with largest.open("r+b") as file:
        file.truncate(largest.stat().st_size // 2)


def remove_the_manifest(checkpoint: Path) -> None:
    (checkpoint / "state" / "manifest.ocdbt").unlink()


def empty_the_notes(checkpoint: Path) -> None:
    (checkpoint / "data" / "metadata").write_bytes(b"")


def remove_the_state(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint / "state")


DAMAGES: list[Callable[[Path], None]] = [
    truncate_a_shard,
    remove_the_manifest,
    empty_the_notes,
    remove_the_state,
]


def flip_a_bit(checkpoint: Path, chance: random.Random) -> str:
    """Flip one bit of a random file, whatever its size; return its place."""
    file = chance.choice(
        [f for f in sorted(checkpoint.rglob("*")) if f.is_file() and f.stat().st_size]
    )
    content = bytearray(file.read_bytes())
    place, bit = chance.randrange(len(content)), chance.randrange(8)
    content[place] ^= 1 << bit
    file.write_bytes(content)
    return f"bit {bit} of byte {place} of {file.relative_to(checkpoint)}"
