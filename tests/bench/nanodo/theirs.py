"""nanodo's own model, loss, optimiser and training step, from a checkout. What it imports only to read data or to write
metrics need not be installed: it is stood in for.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import Mesh

from tests.bench.nanodo.model import NanoConfig

_NOT_NEEDED = (
    "clu", "clu.metric_writers", "clu.periodic_actions", "sentencepiece", "tensorflow", "tensorflow_datasets",
    "tensorflow_text",
)  # fmt: skip


class _Settings(dict[str, Any]):
    """What nanodo uses of `ml_collections.ConfigDict`."""

    def __getattr__(self, name: str) -> Any:
        return self[name]


def step(checkout: Path, config: NanoConfig) -> Callable[[Any], Any]:
    """`Trainer.do_step` for batches of tokens, with the metrics of each layer switched off."""
    sys.path.insert(0, str(checkout))
    for name in _NOT_NEEDED:
        try:
            importlib.import_module(name)
        except ImportError:
            sys.modules[name] = MagicMock()
    train = importlib.import_module("nanodo.train")
    factory = importlib.import_module("nanodo.model_factory")
    c = _settings(config)
    mesh = Mesh(mesh_utils.create_device_mesh((1,)), ("data",))
    module, loss = factory.get_model_and_loss(c, config.v)
    shardings, state = train._init_train_state(c, module, jax.random.PRNGKey(0), mesh)
    trainer = train.Trainer(c, state, mesh, shardings, loss)
    trainer.init_metrics = {}  # counted once, before the first step
    return lambda tokens: trainer.do_step(1, jnp.asarray(tokens))


def _settings(config: NanoConfig) -> _Settings:
    """Those of `nanodo/configs/default.py` that the step reads, with the sizes of `config`."""
    model = {name.upper(): getattr(config, name) for name in "dhlnf"}
    return _Settings(
        seed=0,
        log_internal_metrics=False,
        model=_Settings(model, dtype=np.dtype(jnp.dtype(config.dtype)), fsdp_enabled=True),
        opt=_Settings(
            num_train_steps=100_000,
            peak_learning_rate=0.0016,
            init_learning_rate=0.00016,
            final_learning_rate=0.00016,
            warmup_steps=1000,
            decay_type="cosine",
            weight_decay=0.1,
        ),
    )
