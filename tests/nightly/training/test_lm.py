"""The Llama: all ways to compute the same agree, on one device and on four, and it learns.

One process with four CPU devices."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import AxisType, Mesh

from workloads.data.rows import Dataset, InMemory
from workloads.frame.config import ConfigError, parse
from workloads.frame.mesh import AXES, mesh_of
from workloads.frame.program import Program
from workloads.frame.workload import adamw
from workloads.lm import LmConfig
from workloads.lm.attention import attention, blocks, cudnn, plain, splash
from workloads.lm.layout import looked_up, spread
from workloads.lm.loss import cross_entropy
from workloads.lm.model import Llama
from workloads.lm.presets import PRESETS
from workloads.lm.workload import LmWorkload, counted
from workloads.vit.model import attention_kernel

#: As all that runs once: on CPU it compiles in a quarter of the time.
quick = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})

SMALL = {"vocab": 64, "layers": 2, "dim": 32, "heads": 4, "kv_heads": 2, "ff": 48, "sequence": 16}
ROWS = 4


def mesh(*shape: int) -> Mesh:
    devices = np.array(jax.devices()[: int(np.prod(shape))]).reshape(shape)
    return Mesh(devices, AXES, axis_types=(AxisType.Auto,) * 4)


ONE = (1, 1, 1, 1)


def random(*shape: int, seed: int = 0) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape, dtype=np.float32))


def largest_difference(first: Any, other: Any) -> float:
    differences = jax.tree.map(lambda a, b: np.abs(np.asarray(a) - b).max(), first, other)
    return float(max(jax.tree.leaves(differences)))


# Attention -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("way", "with_segments"), [(blocks, False), (blocks, True), (splash, True)]
)
def test_all_ways_of_attention_agree(way: Callable[..., jax.Array], with_segments: bool) -> None:
    rows, tokens, kv_heads, group, head = 2, 256, 2, 2, 32
    q = random(rows, tokens, kv_heads, group, head)
    k, v = (random(rows, tokens, kv_heads, head, seed=seed) for seed in (1, 2))
    segments = None
    if with_segments:
        ends = np.zeros((rows, tokens), np.int32)
        ends[0, [30, 200]] = ends[1, 128] = 1
        segments = jnp.asarray(1 + ends.cumsum(axis=1))
    options = {"interpret": True} if way is splash else {}

    def result(way: Callable[..., jax.Array], **options: bool) -> Any:
        def scalar(q: jax.Array, k: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
            actual = way(q, k, v, segments, **options)
            return jnp.sin(actual).sum(), actual

        with jax.set_mesh(mesh(*ONE)):
            return quick(jax.grad(scalar, argnums=(0, 1, 2), has_aux=True))(q, k, v)

    assert largest_difference(result(way, **options), result(plain)) < 2e-5


def test_attention_is_chosen_by_the_devices_of_the_mesh_and_not_by_those_of_this_machine() -> None:
    with described("tpu"):
        assert attention("auto") is splash
    with described("cuda"):
        assert attention("auto") is cudnn
        assert attention_kernel("bfloat16", 64) == "cudnn"
        assert attention_kernel("float32", 64) is attention_kernel("bfloat16", 12) is None
    with jax.set_mesh(mesh(*ONE)):
        assert attention("auto") is blocks
        assert attention_kernel("bfloat16", 64) is None


def described(platform: str) -> Any:
    """A mesh of one device of that platform, which this machine need not have."""
    mesh = jax.sharding.AbstractMesh((1,) * 4, AXES, axis_types=(AxisType.Auto,) * 4)
    device = jax.sharding.AbstractDevice(device_kind="described", num_cores=1, platform=platform)
    return jax.sharding.use_abstract_mesh(mesh.update(abstract_device=device))


# The loss ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [ONE, (1, 2, 1, 2), (1, 1, 4, 1)], ids=str)
@pytest.mark.parametrize(("chunk", "z_loss"), [(0, 0.0), (7, 0.1)], ids=["whole", "chunks, z-loss"])
def test_the_fused_loss_is_as_defined(shape: tuple[int, ...], chunk: int, z_loss: float) -> None:
    x, weight = random(ROWS, 16, 8), random(64, 8, seed=1)
    targets = jnp.asarray(np.random.default_rng(2).integers(0, 64, (ROWS, 16)), jnp.int32)
    counts = jnp.ones((ROWS, 16)).at[1, 5:].set(0)

    def fused(x: jax.Array, weight: jax.Array) -> jax.Array:
        return cross_entropy(x, spread(weight), targets, counts, chunk=chunk, z_loss=z_loss)

    def defined(x: jax.Array, weight: jax.Array) -> jax.Array:
        logits = jnp.einsum("rtd,vd->rtv", x, weight)
        total = jax.nn.logsumexp(logits, axis=-1)
        hit = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
        return jnp.sum((total - hit + z_loss * total**2) * counts, axis=1)

    def result(loss: Callable[..., jax.Array]) -> Any:
        def both(x: jax.Array, weight: jax.Array) -> Any:
            of_loss = jax.grad(lambda *a: loss(*a).sum() / counts.sum(), argnums=(0, 1))
            return of_loss(x, weight), loss(x, weight) / 16

        return quick(both)(x, weight)

    with jax.set_mesh(mesh(*shape)):
        fast = result(fused)
    assert largest_difference(fast, result(defined)) < 1e-5


def test_rows_of_different_weight_are_refused_as_their_gradients_would_be_wrong() -> None:
    x, weight = random(ROWS, 4, 8), random(16, 8, seed=1)
    targets, counts = jnp.zeros((ROWS, 4), jnp.int32), jnp.ones((ROWS, 4))

    def loss(weight: jax.Array, of_rows: jax.Array) -> jax.Array:
        return cross_entropy(x, spread(weight), targets, counts) @ of_rows

    of_weight = quick(jax.grad(loss))
    assert np.isfinite(of_weight(weight, np.full(ROWS, 0.5, np.float32))).all()
    assert np.isnan(of_weight(weight, np.arange(ROWS, dtype=np.float32))).all()


def test_no_gradient_goes_between_devices_within_the_loop_over_chunks() -> None:
    """All-reducing the gradient of a large embedding in each chunk took most of the exchange."""
    program = Program(Bytes(config(loss_chunk=16)), mesh(1, 1, 4, 1))
    text = program.compile(batch_of(program), program.in_haste).as_text() or ""
    sums = [line for line in text.splitlines() if re.search(r" (all-reduce|reduce-scatter)", line)]
    of_table = [line for line in sums if re.search(r"\[64,(32|8)\]", line)]
    assert of_table, "the gradient of the embedding is nowhere added up"
    loops = [line for line in of_table if "while/body" in line]
    assert not loops, f"within the loop: {loops[0]}"


# The model -----------------------------------------------------------------------------------------------------------


class Bytes(LmWorkload):
    """On rows of numbers that count up, so that the next one is easy to predict."""

    def dataset(self) -> Dataset:
        starts = np.random.default_rng(0).integers(0, self.config.vocab, (64, 1))
        tokens = (starts + np.arange(self.config.sequence + 1)) % self.config.vocab
        segments = np.ones_like(tokens)
        segments[:, 10:] = 2
        rows = {"tokens": tokens.astype(np.int32), "segments": segments.astype(np.int32)}
        return Dataset(InMemory(rows), InMemory({k: v[:6] for k, v in rows.items()}))


def config(**fields: Any) -> LmConfig:
    return LmConfig.model_validate(
        {**SMALL, "batch": ROWS, "dtype": "float32", "steps": 20, "clip": 0, **fields}
    )


def batch_of(program: Program) -> Any:
    return program.batch(program.workload.dataset().train.take(np.arange(ROWS)))


def test_weights_in_one_array_and_computing_again_change_no_gradient() -> None:
    tokens = jnp.arange(32).reshape(2, 16)

    def of(listed: Any, *, remat: str, stacked: bool) -> Any:
        """The gradients for these weights, in the form of the model that has a list of layers."""

        def loss(weights: Any) -> jax.Array:
            model = Llama(config(), nnx.Rngs(0), stacked=stacked, remat=remat)
            if stacked:
                layers = weights["layers"].values()
                stack = jax.tree.map(lambda *arrays: jnp.stack(arrays), *layers)
                weights = {**weights, "layers": stack}
            nnx.update(model, weights)
            x, head = model(tokens)
            return cross_entropy(x, head, tokens, jnp.ones(tokens.shape), chunk=16).mean()

        return quick(jax.grad(loss))(listed)

    with nnx.use_eager_sharding(False):
        weights = quick(lambda: nnx.as_pure(nnx.state(Llama(config(), nnx.Rngs(0)))))()
        reference = of(weights, remat="none", stacked=False)
        for remat, stacked in (("dots", False), ("none", True), ("full", True)):
            gradients = of(weights, remat=remat, stacked=stacked)
            assert largest_difference(gradients, reference) < 1e-6, f"{remat}, {stacked}"


def test_a_token_that_is_no_word_makes_its_own_row_nan_and_no_other() -> None:
    """Such a token comes of a damaged file, or of a fault that is injected into rows of whole numbers."""
    table, tokens = random(1, 8, 4), jnp.array([[1, 2, 3], [1, 99, 3]])
    rows = looked_up(table, tokens)
    assert np.isfinite(rows).all(axis=(1, 2)).tolist() == [True, False]
    losses = cross_entropy(random(2, 3, 4), table, tokens, jnp.ones((2, 3)))
    assert np.isfinite(losses).tolist() == [True, False]


def test_norms_do_not_decay_not_even_those_of_all_layers_in_one_array() -> None:
    settings = config(weight_decay=0.5, lr=1.0, warmup=0)

    def moved() -> Any:
        """By how much each weight moves when all gradients are 0."""
        weights = nnx.as_pure(nnx.state(Llama(settings, nnx.Rngs(0), stacked=True), nnx.Param))
        rule, nothing = adamw(settings), jax.tree.map(jnp.zeros_like, weights)
        updates = rule.update(nothing, rule.init(weights), weights)[0]
        return jax.tree.map(lambda update: jnp.abs(update).max(), updates)

    with nnx.use_eager_sharding(False):
        leaves = jax.tree_util.tree_leaves_with_path(quick(moved)())
    by_name = {jax.tree_util.keystr(path): float(largest) for path, largest in leaves}
    assert {"norm" in name: largest > 0 for name, largest in by_name.items()} == {
        True: False,
        False: True,
    }


@pytest.mark.long
def test_a_step_is_the_same_however_it_is_split_over_devices_and_into_parts() -> None:
    def losses(shape: tuple[int, ...], parts: int = 1) -> list[float]:
        settings = config(stacked=shape != ONE, loss_chunk=8, accumulate=parts)
        program = Program(Bytes(settings), mesh(*shape))
        batch = batch_of(program)
        step = program.compile(batch, program.in_haste)
        state, good = program.first_state(), program.all_good()
        split_losses: list[float] = []
        for _ in range(3):
            state, outcome = step(state, good, batch)
            split_losses.append(float(outcome.loss))
        return split_losses

    whole = losses((2, 1, 2, 1))
    assert losses((1, 2, 1, 2)) == pytest.approx(whole, abs=2e-6)
    assert losses((1, 2, 1, 2), parts=2) == pytest.approx(whole, abs=2e-6)


def test_it_learns_and_tells_its_perplexity() -> None:
    settings = config(steps=30, lr=3e-2, warmup=0.1, dtype="bfloat16")
    workload = Bytes(settings)
    program = Program(workload, mesh_of(settings, jax.devices()[:1]))
    train = workload.dataset().train
    step = program.compile(batch_of(program), program.in_haste)
    state, good, first = program.first_state(), program.all_good(), 0.0
    for number in range(settings.steps):
        rows = train.take(np.arange(ROWS) + number * ROWS % 60)
        state, outcome = step(state, good, program.batch(rows))
        first = first or float(outcome.loss)
    tested = program.evaluate(state, workload.dataset().test)
    assert first == pytest.approx(np.log(SMALL["vocab"]), abs=0.3)
    assert tested["loss"] < first / 2
    assert tested["perplexity"] == pytest.approx(np.exp(tested["loss"]))
    # what is added to the loss of the training is no part of a test
    also = Program(Bytes(config(z_loss=1.0, dtype="bfloat16")), program.mesh)
    assert also.evaluate(state, workload.dataset().test) == pytest.approx(tested)


def test_a_token_sees_no_other_document_and_predicts_none() -> None:
    tokens = jnp.arange(16)[None]
    other = tokens.at[:, :8].set(0)
    documents = jnp.where(jnp.arange(16) < 8, 1, 2)[None]

    def last(tokens: jax.Array, segments: jax.Array | None) -> jax.Array:
        model = Llama(config(), nnx.Rngs(0))
        return model(tokens, segments)[0][:, 8:]

    with nnx.use_eager_sharding(False):
        assert (quick(last)(tokens, documents) == quick(last)(other, documents)).all()
        assert largest_difference(quick(last)(tokens, None), quick(last)(other, None)) > 1e-3
    padded = np.array([[1] * 5 + [2] * 9 + [0] * 3])
    assert counted(jnp.zeros((1, 17)), jnp.asarray(padded)).sum() == 4 + 8


# Settings ------------------------------------------------------------------------------------------------------------


def test_the_presets_have_the_sizes_of_their_names() -> None:
    sizes = {name: shape.parameters for name, shape in PRESETS.items()}
    parameters = {"1m": 1_049_728, "125m": 123_587_328, "1b": 1_235_814_400, "8b": 8_030_261_248}
    assert sizes == parameters


def test_a_flag_is_stronger_than_the_preset() -> None:
    settings = parse(LmConfig, "lm", ["--preset=1b", "--layers=2", "--remat=dots"])
    assert (settings.layers, settings.dim) == (2, 2048)
    assert (settings.remat, settings.sequence) == ("dots", 2048)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--preset=2b", "lm: --preset=2b: there are 1m, 125m, 1b, 8b"),
        ("--heads=3", "lm: --heads=3 does not divide --dim=128"),
        ("--heads=4 --kv-heads=3", "lm: --kv-heads=3 does not divide --heads=4"),
        ("--dim=36 --heads=4", "lm: dim / heads = 9 is odd, and RoPE turns pairs of numbers"),
        ("--tensor=4", "lm: --tensor=4 does not divide --kv-heads=2, and a head is not split"),
        (
            "--sequence=4096",
            "lm: --sequence=4096 is longer than --context=2048, the longest with such positions",
        ),
    ],
)
def test_a_shape_that_cannot_work_is_refused_in_one_line(
    flags: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(LmConfig, "lm", flags.split())
    assert ended.value.code == 78
    assert capsys.readouterr().err == says + "\n"


def test_a_vocabulary_smaller_than_that_of_the_tokenizer_is_refused() -> None:
    with pytest.raises(ConfigError, match="tokenizer=bytes has 257 tokens, and the model knows 64"):
        LmWorkload(config(data="pydoc")).dataset()
