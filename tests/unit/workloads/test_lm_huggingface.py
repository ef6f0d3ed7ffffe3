"""Weights of `transformers`, read and written. `data/make_llama.py` made the model in `data/llama` and its logits."""

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from flax import nnx
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from workloads.frame.config import ConfigError
from workloads.lm.huggingface import export, shape_of, weights_of
from workloads.lm.model import Llama
from workloads.lm.presets import Shape

LLAMA = Path(__file__).parent / "data" / "llama"


def logits(shape: Shape, weights: Any) -> np.ndarray[Any, Any]:
    @partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
    def compute(weights: Any) -> jax.Array:
        model = Llama(shape, nnx.Rngs(0))
        nnx.update(model, weights)
        x, head = model(jnp.arange(48)[None] * 7 % shape.vocab)
        return x @ head[0].T

    with nnx.use_eager_sharding(False):
        return np.asarray(compute(weights))


def tensors(folder: Path) -> dict[str, np.ndarray[Any, Any]]:
    """All of all files."""
    files = [load_file(path) for path in sorted(folder.glob("*.safetensors"))]
    return {name: tensor for file in files for name, tensor in file.items()}


def test_a_model_of_transformers_computes_the_same_logits_here() -> None:
    shape = shape_of(LLAMA)
    assert (shape.kv_heads, shape.rope_factor, shape.tied) == (2, 4.0, False)
    expected = np.load(LLAMA / "logits.npy")
    assert np.abs(expected).max() > 1, "the logits tell nothing"
    actual = logits(shape, weights_of(LLAMA, shape))
    assert np.abs(actual - expected).max() < 1e-4


@pytest.mark.parametrize("file_bytes", [20_000, 1 << 30], ids=["several files", "one file"])
def test_what_was_read_is_written_as_it_was(tmp_path: Path, file_bytes: int) -> None:
    shape = shape_of(LLAMA)
    export(tmp_path, shape, weights_of(LLAMA, shape), file_bytes)
    theirs, ours = tensors(LLAMA), tensors(tmp_path)
    assert ours.keys() == theirs.keys()
    assert all((ours[name] == theirs[name]).all() for name in theirs)
    assert shape_of(tmp_path) == shape
    again, first = weights_of(tmp_path, shape), weights_of(LLAMA, shape)
    assert jax.tree.all(jax.tree.map(lambda a, b: (a == b).all(), again, first))
    files = list(tmp_path.glob("*.safetensors"))
    assert (tmp_path / "model.safetensors").exists() == (len(files) == 1)
    assert all(path.stat().st_size < file_bytes + 2000 for path in files)
    with safe_open(files[0], framework="np") as file:
        assert file.metadata() == {"format": "pt"}, "transformers refuses a file without it"


def test_weights_of_16_bits_are_read(tmp_path: Path) -> None:
    shape = shape_of(LLAMA)
    shutil.copy(LLAMA / "config.json", tmp_path)
    short = {name: tensor.astype(ml_dtypes.bfloat16) for name, tensor in tensors(LLAMA).items()}
    save_file(short, tmp_path / "model.safetensors")
    embedding = weights_of(tmp_path, shape)["embedding"]
    assert embedding.dtype == np.float32
    assert np.abs(embedding / weights_of(LLAMA, shape)["embedding"] - 1).max() < 2**-8


def test_a_model_without_scaled_positions_is_read(tmp_path: Path) -> None:
    rope = {"rope_type": "default", "rope_theta": 20_000.0}
    shape = shape_of(edit(tmp_path, rope_parameters=rope))
    assert (shape.rope_theta, shape.rope_factor) == (20_000.0, 1.0)
    export(tmp_path / "ours", shape, weights_of(LLAMA, shape))
    assert shape_of(tmp_path / "ours") == shape


def edit(folder: Path, **fields: Any) -> Path:
    """A copy of the model with other lines in its `config.json`."""
    copy = shutil.copytree(LLAMA, folder / "llama")
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, **fields}))
    return copy


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"model_type": "mistral"}, "no plain Llama 3: model_type"),
        ({"attention_bias": True}, "no plain Llama 3: attention_bias"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "no plain Llama 3: rope_type yarn"),
        ({"head_dim": 16}, "no plain Llama 3: head_dim"),
        ({"vocab_size": None}, "a size is missing or wrong"),
    ],
)
def test_a_checkpoint_of_another_model_is_refused(
    tmp_path: Path, fields: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        shape_of(edit(tmp_path, **fields))


def test_files_that_are_missing_or_cut_short_are_refused(tmp_path: Path) -> None:
    shape, copy = shape_of(LLAMA), edit(tmp_path)
    with pytest.raises(ConfigError, match=r"config.json: cannot be read"):
        shape_of(tmp_path)
    with pytest.raises(
        ConfigError, match=r"embed_tokens.weight is \(96, 32\) instead of \(97, 32\)"
    ):
        weights_of(copy, shape.model_copy(update={"vocab": 97}))
    with pytest.raises(ConfigError, match=r"no weight model.layers.2.self_attn.q_proj.weight"):
        weights_of(copy, shape.model_copy(update={"layers": 3}))
    first = copy / "model-00001-of-00004.safetensors"
    first.write_bytes(first.read_bytes()[:-10])
    with pytest.raises(ConfigError, match=f"{first.name}: cannot be read"):
        weights_of(copy, shape)
    with pytest.raises(ConfigError, match="there is a model already"):
        export(copy, shape, {})
