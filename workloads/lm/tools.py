"""Uses of a checkpoint besides training: sampling text, and exchange with Hugging Face.

They run in one process, on one device. The settings are those of the run, by the same flags.
"""

# JAX and its libraries are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import jax
import numpy as np
from flax import nnx
from pydantic import Field

from tpujob.contract import Exit, ProgramContext
from workloads.checkpoints.saving import Checkpoints
from workloads.checkpoints.stored import Damaged, StoredCheckpoints
from workloads.data.rows import Feed
from workloads.data.tokens import open_text
from workloads.frame.config import ConfigError, parse
from workloads.frame.mesh import mesh_of
from workloads.frame.program import Program
from workloads.lm import LmConfig
from workloads.lm.huggingface import Weights, export, shape_of, weights_of
from workloads.lm.model import Llama
from workloads.lm.presets import Shape
from workloads.lm.sampling import generate
from workloads.lm.workload import LmWorkload


class ToolConfig(LmConfig):
    """Uses the newest checkpoint of a run: give the flags of the run, and one of --sample, --export and --import."""

    sample: str = Field("", description="go on with this text")
    count: int = Field(256, ge=1, description="tokens to go on with, or up to the text's end")
    temperature: float = Field(0.8, ge=0, description="0: always the likeliest token")
    top_p: float = Field(
        0.95, gt=0, le=1, description="draw among the likeliest that together have this probability"
    )
    export: str = Field("", description="write this folder: config.json and safetensors")
    import_: str = Field(
        "", description="make of such a folder a checkpoint of step 0, from which training goes on"
    )


def main(arguments: Sequence[str]) -> NoReturn:
    """Run the tool that the flags choose. An impossible request ends with one line and exit code 78."""
    config = parse(ToolConfig, "lm", list(arguments))
    try:
        _do(config.model_copy(update={"fsdp": 1, "tensor": 1}))
    except ConfigError as error:
        sys.stderr.write(f"lm: {error}\n")
        sys.exit(Exit.CONFIG)
    sys.exit(Exit.DONE)


def _do(config: ToolConfig) -> None:
    if sum(map(bool, (config.sample, config.export, config.import_))) != 1:
        raise ConfigError("one of --sample, --export and --import at a time")
    run = _Run(config)
    if config.import_:
        run.begin_with(Path(config.import_))
    elif config.export:
        step, model = run.newest()
        export(Path(config.export), config, weights(model))
        sys.stdout.write(f"wrote the weights of step {step} to {config.export}\n")
    else:
        _sample(config, run.newest()[1])


def _sample(config: ToolConfig, model: Llama) -> None:
    """Write the prompt and the model's continuation, token by token."""
    tokenizer = open_text(config.data, config.tokenizer, config.vocab).tokenizer
    if tokenizer is None:
        raise ConfigError("--tokenizer=none: nothing says how text becomes tokens")
    prompt = tokenizer.encode_text(config.sample)
    if len(prompt) + config.count > config.context:
        raise ConfigError(
            f"--count={config.count} and {len(prompt)} tokens of text are more than --context={config.context}"
        )
    drawn, written = list(prompt), 0
    settings = {"temperature": config.temperature, "top_p": config.top_p, "seed": config.seed}
    for token in generate(model, prompt, config.count, **settings):
        if token == tokenizer.end:
            break
        drawn.append(token)
        text = tokenizer.decode(drawn)
        # a character may need further tokens
        whole = len(text) if not text.endswith("\N{REPLACEMENT CHARACTER}") else written
        sys.stdout.write(text[written:whole])
        sys.stdout.flush()
        written = whole
    sys.stdout.write(tokenizer.decode(drawn)[written:] + "\n")


def weights(model: Llama) -> Weights:
    """Return the weights of a model, with its layers by number."""
    layers = {i: _arrays(layer) for i, layer in enumerate(model.each_layer())}
    return {**_arrays(model), "layers": layers}


class _Run:
    """A run on one device of this process, and its checkpoints."""

    def __init__(self, config: LmConfig) -> None:
        self._config = config
        self._workload = LmWorkload(config)
        self._program = Program(self._workload, mesh_of(config, jax.devices()[:1]))
        self._folder = f"{ProgramContext.from_env().workdir.rstrip('/')}/checkpoints"
        with nnx.use_eager_sharding(False):
            shapes = nnx.eval_shape(lambda: self._workload.model(nnx.Rngs(0)))
        self._graph = nnx.graphdef(shapes)

    def newest(self) -> tuple[int, Llama]:
        """The newest checkpoint that is whole: its step and its model. The optimizer is not read, and what is in the
        folder stays as it is. Raises ConfigError if there is none, or it has another shape."""
        model_alone = nnx.State({0: self._program.layout[0]})
        stored = StoredCheckpoints(self._folder, model_alone)
        for step in stored.steps():
            try:
                notes = stored.notes(step)
                shape = {name: notes.settings[name] for name in (*Shape.model_fields, "stacked")}
                if flags := _flags(shape, self._config):
                    raise ConfigError(
                        f"the checkpoint of step {step} has another shape: use {flags}"
                    )
                return step, nnx.merge(self._graph, stored.state(step, notes)[0])
            except Damaged as error:
                sys.stderr.write(f"lm: not the checkpoint of step {step}: {error}\n")
        raise ConfigError(f"there is no checkpoint in {stored.folder} that can be used")

    def begin_with(self, folder: Path) -> None:
        """Save the weights of a folder, and an optimizer that has seen nothing, as step 0."""
        config = self._config
        if StoredCheckpoints(self._folder, self._program.layout).steps():
            raise ConfigError(f"there are checkpoints already in {self._folder}")
        if flags := _flags(shape_of(folder).model_dump(), config):
            raise ConfigError(f"{folder} has another shape: use {flags}")
        imported = weights_of(folder, config)
        if config.stacked:
            layers = imported["layers"].values()
            imported["layers"] = jax.tree.map(lambda *parts: np.stack(parts), *layers)
        state = self._program.first_state()
        model = nnx.merge(self._graph, state[0])
        nnx.update(model, imported)
        state[0] = nnx.state(model)
        feed = Feed(self._workload.dataset(), config.batch, config.seed, 0, 1)
        checkpoints = Checkpoints(self._folder, config.keep, self._program.layout)
        checkpoints.save(0, state, feed.state, config.identity())
        checkpoints.wait()
        sys.stdout.write(f"the weights of {folder} are step 0 in {self._folder}\n")


def _flags(shape: dict[str, Any], config: LmConfig) -> str:
    """Return the flags that would give the settings this shape; empty if they have it."""
    differ = {name: value for name, value in shape.items() if getattr(config, name) != value}
    if shape["rope_factor"] == 1:
        differ.pop("rope_original", None)  # it has no effect then
    return " ".join(_flag(name, value) for name, value in differ.items())


def _flag(name: str, value: object) -> str:
    dashed = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{'' if value else 'no-'}{dashed}"
    return f"--{dashed}={value}"


def _arrays(module: nnx.Module) -> Any:
    return jax.tree.map(np.asarray, nnx.as_pure(nnx.state(module)))
