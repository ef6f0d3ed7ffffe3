"""Writes a tiny Llama of ours, tied and with scaled positions, and its logits, for `make_llama.py` to compare."""

import sys
from pathlib import Path

import jax
import numpy as np
from flax import nnx

from tests.unit.workloads.test_lm_huggingface import logits
from workloads.lm.huggingface import export
from workloads.lm.model import Llama
from workloads.lm.presets import Shape

if __name__ == "__main__":
    shape = Shape(dim=64, ff=96, vocab=256, layers=3, rope_factor=8, rope_original=32)
    with nnx.use_eager_sharding(False):
        model = Llama(shape, nnx.Rngs(0))
    weights = jax.tree.map(lambda a: 3 * np.asarray(a), nnx.as_pure(nnx.state(model)))
    folder = Path(sys.argv[1])
    export(folder, shape, weights, file_bytes=100_000)
    np.save(folder / "logits.npy", logits(shape, weights))
