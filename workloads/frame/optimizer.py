"""AdamW as the settings describe it: warm-up and cosine, no decay of biases and norms."""

# JAX and its libraries are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

from typing import Any

import jax
import optax

from workloads.frame.config import TrainConfig

#: What biases and norms are called, in Flax and here.
_WITHOUT_DECAY = ("bias", "scale")


def adamw(config: TrainConfig) -> optax.GradientTransformation:
    """AdamW. What is called `bias` or `scale` does not decay."""
    return optax.adamw(
        schedule(config),
        b1=config.beta1,
        b2=config.beta2,
        weight_decay=config.weight_decay,
        mask=_decays,
    )


def schedule(config: TrainConfig) -> optax.Schedule:
    """The learning rate by step: it rises for `warmup` steps, then falls along a cosine until `decay_steps`."""
    return optax.warmup_cosine_decay_schedule(
        0.0, config.lr, config.warmup_steps, config.schedule_steps, config.lr * config.final_lr
    )


def _decays(parameters: Any) -> Any:
    """By name: the number of dimensions says nothing, as norms of several layers may be in one array."""
    return jax.tree_util.tree_map_with_path(
        lambda path, _: str(getattr(path[-1], "key", path[-1])) not in _WITHOUT_DECAY, parameters
    )
