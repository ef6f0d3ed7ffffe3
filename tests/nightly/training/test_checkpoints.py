"""Checkpoints that were damaged: passed over by all hosts alike, set aside, and never gone on from with other bits."""

# JAX is typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import aiohttp
import gcsfs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from etils import epath
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec

from tests.support import checkpoint_rig
from tests.support.checkpoint_rig import (
    DAMAGES,
    NEWER,
    OLDER,
    Bench,
    bits_of,
    flip_a_bit,
    program_on,
)
from tests.support.workload_rig import Job
from workloads.checkpoints import stored
from workloads.checkpoints.checksums import Checksums
from workloads.checkpoints.saving import Checkpoints
from workloads.checkpoints.stored import Damaged, StoredCheckpoints
from workloads.frame.config import ConfigError

#: tests/bench/README.md flips more bits
FLIPS = int(os.environ.get("TPUJOB_FLIPS", "24"))

SMALL = ("--hidden=64,32", "--batch=16", "--keep=3", "--log-every=1000", "--checkpoint-every=10")

damages = pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Checkpoints that four devices made, two of which share each row and each part of the parameters."""
    return Bench(tmp_path_factory.mktemp("bench"), program_on(4, fsdp=2, tensor=2))


@damages
def test_a_damaged_checkpoint_is_set_aside(bench: Bench, damage: Callable[[Path], None]) -> None:
    workdir = bench.copy()
    damage(workdir / "checkpoints" / str(NEWER))
    assert bench.check(workdir, damage.__name__) == OLDER


def test_a_flipped_bit_anywhere_is_harmless_or_seen(bench: Bench) -> None:
    chance = random.Random(FLIPS)
    seen: list[int] = []
    for _ in range(FLIPS):
        workdir = bench.copy()
        place = flip_a_bit(workdir / "checkpoints" / str(NEWER), chance)
        seen.append(bench.check(workdir, place))
    assert set(seen) == {OLDER, NEWER}, "so many flips are of both kinds"


def test_a_flipped_bit_in_the_numbers_alone_is_seen_by_their_checksum(bench: Bench) -> None:
    """A file whose own format notices nothing, as one that is not compressed."""
    leaves = jax.tree.leaves(bench.program.first_state())
    sums = Checksums(leaves)
    before = sums.read(sums(leaves)).arrays
    chance = np.random.default_rng(1)
    for number, leaf in enumerate(leaves):
        flipped = np.array(leaf)
        raw = flipped.reshape(-1).view(np.uint8)
        raw[chance.integers(len(raw))] ^= 1 << (0 if leaf.dtype == bool else chance.integers(8))
        changed = [*leaves]
        changed[number] = jax.device_put(flipped, leaf.sharding)
        after = sums.read(sums(changed)).arrays
        assert [path for path in before if before[path] != after[path]] == [str(number)]


@pytest.mark.parametrize(
    ("devices", "fsdp", "tensor"), [(1, 1, 1), (2, 1, 2), (2, 2, 1), (4, 4, 1), (4, 1, 1)]
)
def test_another_mesh_restores_each_bit(bench: Bench, devices: int, fsdp: int, tensor: int) -> None:
    workdir = bench.copy()
    begun = bench.begin(workdir, program_on(devices, fsdp, tensor))
    assert begun.step == NEWER, begun.damaged
    assert begun.bits == bench.bits[NEWER]


def test_the_model_is_read_without_the_optimizer_and_changes_no_file(bench: Bench) -> None:
    folder = bench.copy() / "checkpoints"
    (folder / "30").mkdir()  # a save that is under way
    stored = StoredCheckpoints(str(folder), nnx.State({0: bench.program.layout[0]}))
    assert stored.steps() == [NEWER, OLDER]
    read = stored.state(NEWER, stored.notes(NEWER))
    model = {path: bits for path, bits in bench.bits[NEWER].items() if path.startswith("[0]")}
    assert bits_of(read) == model
    assert (folder / "30").is_dir()
    assert StoredCheckpoints(str(folder / "none"), bench.program.layout).steps() == []


def test_every_bit_of_the_notes_is_checked(bench: Bench, tmp_path: Path) -> None:
    """Feed position, settings and checksums: any flip is refused, or changes nothing but how the JSON looks."""
    read = stored._read_notes  # pyright: ignore[reportPrivateUsage]
    good = bench.copy() / "checkpoints" / str(NEWER) / "data" / "metadata"
    content, expected = good.read_bytes(), read(epath.Path(good))
    flipped = epath.Path(tmp_path / "notes")
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1 << (place % 8)
        flipped.write_bytes(bytes(changed))
        try:
            notes = read(flipped)
        except (ValueError, TypeError, KeyError, AttributeError):
            continue
        assert notes == expected, f"byte {place}: {content[max(0, place - 20) : place + 20]!r}"


def test_the_step_of_a_checkpoint_that_was_set_aside_can_be_saved_again(bench: Bench) -> None:
    workdir, state = bench.copy(), bench.program.first_state()
    for again in range(2):
        DAMAGES[0](workdir / "checkpoints" / str(NEWER))
        begun = bench.begin(workdir)
        assert begun.step == OLDER
        begun.checkpoints.save(NEWER, state, {"position": 2}, bench.program.config.identity())
        assert begun.checkpoints.wait() == NEWER
        aside = {path.name for path in Path(begun.checkpoints.aside).iterdir()}
        names = [f"{NEWER}", f"{NEWER}-2"][: again + 1]
        assert aside == {*names, *(f"{name}.txt" for name in names)}
    text = (Path(begun.checkpoints.aside) / f"{NEWER}-2.txt").read_text()
    assert text.startswith(f"step {NEWER}: it cannot be read: "), text
    assert bench.begin(workdir).bits == bits_of(state)


def test_if_all_are_damaged_nothing_is_moved_and_a_person_decides(bench: Bench) -> None:
    workdir = bench.copy()
    checkpoint_rig.remove_the_state(workdir / "checkpoints" / str(OLDER))
    checkpoint_rig.empty_the_notes(workdir / "checkpoints" / str(NEWER))
    with pytest.raises(ConfigError) as refused:
        bench.begin(workdir)
    text = str(refused.value)
    assert text.startswith(f"no checkpoint in {workdir}/checkpoints can be gone on from"), text
    assert "step 20: it cannot be read: JSONDecodeError" in text
    assert "step 10: it cannot be read: FileNotFoundError" in text
    assert (workdir / "checkpoints" / str(NEWER)).is_dir()


def test_a_checkpoint_of_another_model_is_refused(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_rig, "_WIDTH", 32)
    with pytest.raises(ConfigError) as refused:
        bench.begin(bench.copy(), program_on(1))
    assert str(refused.value).startswith(
        "the checkpoint of step 20 is of another model: 0/first/bias/value is float32[128] in it and float32[64] here"
    )


@pytest.mark.parametrize(
    "error",
    [
        PermissionError(13, "denied"),
        ConnectionResetError(),
        ValueError("UNAVAILABLE: Error reading gs://bucket: connection refused"),
        # of gcsfs, which reads the notes: 403, 503, and a connection that ends in the middle
        OSError("Forbidden: https://storage.googleapis.com/download/storage/v1/b/bucket"),
        gcsfs.retry.HttpError({"code": 503, "message": "Backend Error"}),
        aiohttp.ClientPayloadError("Response payload is not completed"),
    ],
)
def test_a_storage_that_cannot_be_reached_is_no_damage(error: Exception) -> None:
    def read() -> None:
        try:
            raise error
        except Exception as cause:
            raise ValueError("Encountered error while reading array") from cause

    agreed = stored._agreed  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(ValueError, match="while reading"):
        agreed(read)
    with pytest.raises(Damaged):
        agreed(lambda: json.loads("{"))


def test_a_copy_with_other_bits_on_one_device_is_seen(bench: Bench) -> None:
    mesh = bench.program.mesh
    whole = NamedSharding(mesh, PartitionSpec())
    copies = [jax.device_put(np.ones(4, np.float32), device) for device in mesh.devices.flat]
    copies[2] = copies[2].at[1].set(jnp.nan)
    array = jax.make_array_from_single_device_arrays((4,), whole, copies)
    sums = Checksums({"a": jax.ShapeDtypeStruct((4,), jnp.float32, sharding=whole)})
    result = sums.read(sums({"a": array}))
    assert result.unlike == {"a"}
    assert result.sound.tolist() == [[True], [True], [False], [True]]


def test_a_state_that_is_not_finite_is_never_committed(bench: Bench, tmp_path: Path) -> None:
    made = Checkpoints(str(tmp_path / "checkpoints"), 1, bench.program.layout)
    state = bench.program.first_state()
    settings = bench.program.config.identity()
    made.save(1, state, {"position": 1}, settings)
    bad = jax.tree.map(lambda x: x * jnp.nan if x.dtype == jnp.float32 else x, state)
    assert made.save(2, bad, {"position": 2}, settings) == 1
    sound = made.sound()
    assert sound is not None
    assert not sound.all(axis=1).any(), "on every device something is not finite"
    assert made.sound() is None, "asked twice"
    assert made.wait() is None
    made.close()
    opened = Checkpoints(str(tmp_path / "checkpoints"), 1, bench.program.layout)
    assert opened.steps() == [1], "the good one was removed for it"


def test_the_state_of_the_call_is_what_is_saved(bench: Bench, tmp_path: Path) -> None:
    whole = NamedSharding(bench.program.mesh, PartitionSpec())
    layout = {"a": jax.ShapeDtypeStruct((2**21,), jnp.uint32, sharding=whole)}
    step = jax.jit(lambda state: jax.tree.map(lambda x: x + 1, state), donate_argnums=0)
    # made by a computation, and not looked at: else the step could not take over its memory
    state = step(jax.device_put({"a": np.zeros(2**21, np.uint32)}, whole))
    made = Checkpoints(str(tmp_path / "checkpoints"), 1, layout)
    made.warm_up(state)
    made.save(1, state, {"position": 1}, {})
    for _ in range(3):
        before, state = state, step(state)
    assert before["a"].is_deleted(), "a step does not consume its state"
    assert made.wait() == 1
    saved = made.state(1, made.notes(1))
    assert (np.asarray(saved["a"]) == 1).all(), "it has what a later step computed"


def test_damage_that_one_host_alone_sees_is_passed_over_by_both(job: Job) -> None:
    saved = job.run(*SMALL, "--steps=30", hosts=2)
    all_see, one_sees = Path(job.workdir) / "checkpoints", job.folder / "seen" / "checkpoints"
    shutil.copytree(all_see, one_sees)
    checkpoint_rig.truncate_a_shard(one_sees / "30")
    # gone with the real one, as in a folder that both share
    (one_sees / "30" / "commit_success.txt").unlink()
    (one_sees / "30" / "commit_success.txt").symlink_to(all_see / "30" / "commit_success.txt")
    job.on_host[1] = {"TPUJOB_WORKDIR": str(one_sees.parent)}
    further = ("--steps=100000", "--decay-steps=30", "--checkpoint-every=99999")
    with job.start(*SMALL, *further, hosts=2) as both:
        for host in both:
            host.until(lambda host: max(host.losses(), default=0) >= 30)
    assert [host.events("resume")[0]["step"] for host in both] == [20, 20]
    replayed = {step: loss for step, loss in both[0].losses().items() if step <= 30}
    assert replayed == {step: saved[0].losses()[step] for step in range(21, 31)}
    assert both[0].events("damaged")[0]["message"] == "it cannot be read on host 1"
    assert both[1].events("damaged")[0]["message"].startswith("it cannot be read: ")
