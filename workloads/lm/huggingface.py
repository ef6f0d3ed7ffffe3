"""Weights as Hugging Face's `transformers` has them: a folder with `config.json` and safetensors, in one file or in
several with an index.

What is written is float32, as it was trained; what is read may be in any floating type. Only a plain Llama is read:
what would change its results otherwise is refused.
"""

# safetensors is typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from workloads.frame.config import ConfigError
from workloads.lm.presets import Shape

#: The weights of a model with a list of layers: nested as its parameters are, `layers` by number.
Weights = dict[Any, Any]
Array = NDArray[np.float32]

_CONFIG, _ONE, _INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
#: A file is closed before it has more bytes than this.
_FILE_BYTES = 4 << 30
#: Our name of a size, and that in `config.json`.
_SIZES = {
    "vocab": "vocab_size",
    "layers": "num_hidden_layers",
    "dim": "hidden_size",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "ff": "intermediate_size",
    "tied": "tie_word_embeddings",
    "context": "max_position_embeddings",
    "norm_eps": "rms_norm_eps",
}
#: What is left out of a file has these values.
_USUAL: dict[str, Any] = {"tie_word_embeddings": False, "rms_norm_eps": 1e-6}
#: What must be so.
_PLAIN: dict[str, Any] = {
    "model_type": "llama",
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
}
#: Of RoPE as in Llama 3.1, which `model.frequencies` computes.
_LLAMA_3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
_EMBEDDING, _HEAD, _NORM = "model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"


def export(folder: Path, shape: Shape, weights: Weights, file_bytes: int = _FILE_BYTES) -> None:
    """Write a folder that `transformers` can load. Raises ConfigError if it has a model already."""
    if (folder / _CONFIG).exists():
        raise ConfigError(f"--export={folder}: there is a model already")
    folder.mkdir(parents=True, exist_ok=True)
    groups = _grouped(_tensors(shape, weights), file_bytes)
    is_split = len(groups) > 1
    of_file: dict[str, str] = {}
    for number, group in enumerate(groups, 1):
        name = f"model-{number:05}-of-{len(groups):05}.safetensors" if is_split else _ONE
        save_file(group, folder / name, {"format": "pt"})
        of_file |= dict.fromkeys(group, name)
    if is_split:
        total = sum(tensor.nbytes for group in groups for tensor in group.values())
        index = {"metadata": {"total_size": total}, "weight_map": of_file}
        (folder / _INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
    # last, as it marks a whole model
    (folder / _CONFIG).write_text(json.dumps(_config(shape), indent=2) + "\n", encoding="utf-8")


def shape_of(folder: Path) -> Shape:
    """Return the shape in `config.json`. Raises ConfigError for any model but a plain Llama."""
    config = _read_json(folder / _CONFIG)
    rope = config.get("rope_parameters") or {
        "rope_theta": config.get("rope_theta", 10_000.0),
        **(config.get("rope_scaling") or {}),
    }
    kind = rope.get("rope_type", rope.get("type", "default"))
    unfit = [name for name, value in _PLAIN.items() if config.get(name, value) != value]
    if kind not in ("default", "llama3"):
        unfit.append(f"rope_type {kind}")
    if kind == "llama3":
        unfit += [name for name, value in _LLAMA_3.items() if rope.get(name) != value]
    if config.get("head_dim") not in (None, config["hidden_size"] // config["num_attention_heads"]):
        unfit.append("head_dim")
    if unfit:
        raise ConfigError(f"{folder / _CONFIG}: no plain Llama 3: {', '.join(unfit)}")
    try:
        sizes = {ours: config.get(name, _USUAL.get(name)) for ours, name in _SIZES.items()}
        sizes["rope_theta"] = rope["rope_theta"]
        if kind == "llama3":
            sizes["rope_factor"] = rope["factor"]
            sizes["rope_original"] = rope["original_max_position_embeddings"]
        return Shape.model_validate(sizes)
    except (KeyError, ValueError) as error:
        raise ConfigError(f"{folder / _CONFIG}: a size is missing or wrong: {error}") from error


def weights_of(folder: Path, shape: Shape) -> Weights:
    """Return the weights in a folder, in float32. Raises ConfigError for a file or a weight that is missing, cut short
    or of another size."""
    places = _places(folder)

    def read(name: str, *sizes: int) -> Array:
        if name not in places:
            raise ConfigError(f"{folder}: no weight {name}")
        try:
            with safe_open(places[name], framework="np") as file:
                weight = file.get_tensor(name).astype(np.float32)
        except (OSError, SafetensorError) as error:
            raise ConfigError(f"{places[name]}: cannot be read: {error}") from error
        if weight.shape != sizes:
            raise ConfigError(f"{folder}: {name} is {weight.shape} instead of {sizes}")
        return weight

    table = (shape.vocab, shape.dim)
    weights: Weights = {
        "embedding": read(_EMBEDDING, *table),
        "layers": {number: _layer(shape, read, number) for number in range(shape.layers)},
        "norm": {"scale": read(_NORM, shape.dim)},
    }
    return weights if shape.tied else {**weights, "head": read(_HEAD, *table)}


def _layer(shape: Shape, read: Callable[..., Array], number: int) -> Weights:
    dim, head_size, kv_heads = shape.dim, shape.head, shape.kv_heads

    def product(name: str, inputs: int, outputs: int) -> Array:
        """Return a weight transposed, as PyTorch's linear layers have their outputs first."""
        return read(f"{_prefix(number)}{name}_proj.weight", outputs, inputs).T

    parts = [
        product(f"self_attn.{name}", dim, heads * head_size).reshape(dim, kv_heads, -1, head_size)
        for name, heads in (("q", shape.heads), ("k", kv_heads), ("v", kv_heads))
    ]
    return {
        "attention_norm": {"scale": read(f"{_prefix(number)}input_layernorm.weight", dim)},
        "qkv": np.concatenate(parts, axis=2).reshape(dim, -1),
        "out": product("self_attn.o", shape.heads * head_size, dim),
        "ff_norm": {"scale": read(f"{_prefix(number)}post_attention_layernorm.weight", dim)},
        "gate": product("mlp.gate", dim, shape.ff),
        "up": product("mlp.up", dim, shape.ff),
        "down": product("mlp.down", shape.ff, dim),
    }


def _tensors(shape: Shape, weights: Weights) -> Iterator[tuple[str, Array]]:
    """Yield each weight with its name in the file."""
    yield _EMBEDDING, weights["embedding"]
    for number, layer in sorted(weights["layers"].items()):
        qkv = layer["qkv"].reshape(shape.dim, shape.kv_heads, -1, shape.head)
        products = {
            "self_attn.q": qkv[:, :, :-2],
            "self_attn.k": qkv[:, :, -2],
            "self_attn.v": qkv[:, :, -1],
            "self_attn.o": layer["out"],
            "mlp.gate": layer["gate"],
            "mlp.up": layer["up"],
            "mlp.down": layer["down"],
        }
        for name, product in products.items():
            yield f"{_prefix(number)}{name}_proj.weight", product.reshape(len(product), -1).T
        yield f"{_prefix(number)}input_layernorm.weight", layer["attention_norm"]["scale"]
        yield f"{_prefix(number)}post_attention_layernorm.weight", layer["ff_norm"]["scale"]
    yield _NORM, weights["norm"]["scale"]
    if not shape.tied:
        yield _HEAD, weights["head"]


def _grouped(tensors: Iterable[tuple[str, Array]], limit: int) -> list[dict[str, Array]]:
    """Return the tensors by file, each of at most `limit` bytes unless one tensor has more."""
    groups: list[dict[str, Array]] = [{}]
    size = 0
    for name, tensor in tensors:
        if groups[-1] and size + tensor.nbytes > limit:
            groups.append({})
            size = 0
        groups[-1][name] = np.ascontiguousarray(tensor, np.float32)
        size += tensor.nbytes
    return groups


def _config(shape: Shape) -> dict[str, Any]:
    sizes = {name: getattr(shape, ours) for ours, name in _SIZES.items()}
    scaling = {
        "rope_type": "llama3",
        "factor": shape.rope_factor,
        **_LLAMA_3,
        "original_max_position_embeddings": shape.rope_original,
    }
    return {
        "architectures": ["LlamaForCausalLM"],
        **_PLAIN,
        **sizes,
        "head_dim": shape.head,
        "rope_theta": shape.rope_theta,
        "rope_scaling": scaling if shape.rope_factor > 1 else None,
        "torch_dtype": "float32",
    }


def _places(folder: Path) -> dict[str, Path]:
    """Return the file of each weight."""
    if (folder / _INDEX).exists():
        of_file = _read_json(folder / _INDEX).get("weight_map", {})
        return {name: folder / file for name, file in of_file.items()}
    try:
        with safe_open(folder / _ONE, framework="np") as file:
            return dict.fromkeys(file.keys(), folder / _ONE)
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{folder / _ONE}: cannot be read: {error}") from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error


def _prefix(number: int) -> str:
    return f"model.layers.{number}."
