"""The settings of a workload: one pydantic record, its command-line flags, and clear errors.

The flags are derived from the fields, so that the `args:` of a YAML file, the command line and the
record cannot disagree. Nothing here imports jax: a bad value is refused in a tenth of a second.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, NoReturn, TypeVar, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from tpujob.contract import Exit
from workloads.errors import ConfigError


def _split(value: object) -> object:
    """Return `1024,512` and `[1024, 512]` as a list; any other value unchanged."""
    if not isinstance(value, str):
        return value
    return [part for part in value.strip().strip("[]()").replace(",", " ").split() if part]


Sizes = Annotated[tuple[Annotated[int, Field(ge=1)], ...], BeforeValidator(_split)]


def from_preset(
    settings: dict[str, Any], presets: Mapping[str, Mapping[str, Any]], usual: str
) -> dict[str, Any]:
    """Return the settings, completed from their `preset`, by default `usual`. Raises ValueError for an unknown
    preset."""
    name = settings.get("preset", usual)
    if name not in presets:
        raise ValueError(f"--preset={name}: there are {', '.join(presets)}")
    return {**presets[name], **settings}


class Settings(BaseModel):
    """The settings of a program. Unknown names are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class TrainConfig(Settings):
    """The settings of every training workload. A workload adds fields in a subclass."""

    #: Fields that a checkpoint is bound to: with another value its weights or its data would not fit.
    binding: ClassVar[tuple[str, ...]] = ("seed",)

    steps: int = Field(2000, ge=1, description="train until this step")
    batch: int = Field(256, ge=1, description="rows in a step, over all hosts")
    accumulate: int = Field(
        1,
        ge=1,
        description="parts of a batch that are computed one after another, to save memory; the step is that of the "
        "whole batch",
    )
    lr: float = Field(1e-3, gt=0, description="highest learning rate; warmed up, then a cosine")
    warmup: float = Field(
        0.05, ge=0, le=0.5, description="part of the steps over which the learning rate rises"
    )
    decay_steps: int = Field(
        0, ge=0, description="step at which the learning rate is lowest; 0: the last one of `steps`"
    )
    final_lr: float = Field(
        0.0, ge=0, le=1, description="the lowest learning rate, as a part of lr"
    )
    weight_decay: float = Field(
        1e-2, ge=0, description="AdamW's weight decay; biases and norms have none"
    )
    beta1: float = Field(0.9, ge=0, lt=1, description="AdamW's decay of the mean gradient")
    beta2: float = Field(0.999, ge=0, lt=1, description="AdamW's decay of the mean square")
    clip: float = Field(1.0, ge=0, description="largest norm of the gradients; 0: any")
    seed: int = Field(0, ge=0, lt=2**32, description="of the first weights and of the data order")
    fsdp: int = Field(
        1, ge=0, description="devices that split the parameters and the rows; 0: all of a slice"
    )
    tensor: int = Field(
        0, ge=0, description="devices of a host that split layers; 0: 1, but on CPU with fsdp=1 all"
    )
    checkpoint_every: int = Field(
        200, ge=0, description="steps between checkpoints; 0: none by steps, but the last"
    )
    checkpoint_minutes: float = Field(
        0, ge=0, description="minutes between checkpoints, whichever comes first; 0: none by time"
    )
    keep: int = Field(2, ge=1, description="checkpoints to keep")
    eval_every: int = Field(0, ge=0, description="steps between tests; 0: only at the end")
    log_every: int = Field(50, ge=1, description="steps between printed lines")

    @property
    def schedule_steps(self) -> int:
        """Steps until the learning rate is lowest."""
        return self.decay_steps or self.steps

    @property
    def warmup_steps(self) -> int:
        """Steps over which the learning rate rises."""
        return int(self.warmup * self.schedule_steps)

    def identity(self) -> dict[str, Any]:
        """Return the binding settings as JSON, stored in a checkpoint and compared at a restore."""
        bound = self.model_dump(mode="json", include=set(self.binding))
        return {**bound, "decay_steps": self.schedule_steps}

    def check_same(self, saved: dict[str, Any], step: int) -> None:
        """Raise ConfigError if the checkpoint of that step, with the identity `saved`, is of another model or another
        order of the data, or if a changed `steps` would change the learning rate unintentionally."""
        for name, now in self.identity().items():
            before = saved.get(name, now)
            if before == now:
                continue
            if name != "decay_steps":
                raise ConfigError(
                    f"{name}={now}, but the checkpoint of step {step} was made with {before}: "
                    "use that value, or another workdir"
                )
            if not self.decay_steps:
                raise ConfigError(
                    f"steps={now} would move the learning rate, which is lowest at step {before} in the run of "
                    f"the checkpoint of step {step}: --decay-steps={before} keeps that, --decay-steps={now} moves it"
                )


def least_batch(batch: int, parts: int) -> int:
    """Return the smallest batch of at least `batch` rows that can be split into equal parts."""
    return -(-batch // parts) * parts


Config = TypeVar("Config", bound=Settings)


def parse(record: type[Config], program: str, arguments: list[str]) -> Config:
    """Return the record that the arguments describe. For invalid arguments, write one line and exit with 78."""
    try:
        return read(record, program, arguments)
    except ConfigError as error:
        sys.stderr.write(f"{program}: {error}\n")
        sys.exit(Exit.CONFIG)


def read(record: type[Config], program: str, arguments: Sequence[str]) -> Config:
    """Return the record that the arguments describe. Raises ConfigError.

    `--key=value` and `--key value`; a yes-or-no is `--key` or `--no-key`; a list is `1024,512`.
    """
    parser = _Parser(prog=program, description=record.__doc__, epilog=_CHECK, allow_abbrev=False)
    for name, field in record.model_fields.items():
        parser.add_argument(_flag(name), dest=name, **_options(field))
    try:
        return record(**parser.read(arguments))
    except ValidationError as error:
        raise ConfigError(_one_line(error)) from None


class _Parser(argparse.ArgumentParser):
    """A parser that raises ConfigError, where argparse prints its usage and exits with 2."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)

    def read(self, arguments: Sequence[str]) -> dict[str, Any]:
        """Return the given flags with their values as text."""
        parsed, unknown = self.parse_known_args(arguments)
        if unknown:
            flag = unknown[0].split("=")[0]
            near = difflib.get_close_matches(flag, list(self._option_string_actions), n=1)
            hint = f"; did you mean {near[0]}?" if near else "; --help lists the flags"
            self.error(f"no such flag: {flag}{hint}")
        return vars(parsed)


_CHECK = (
    "--check v4-16,v5e-64 trains nothing: it compiles the step for these TPU slices, without a TPU, and says whether "
    "it fits and how fast it can be; docs/workloads.md has its other flags."
)


def _options(field: FieldInfo) -> dict[str, Any]:
    shown = _shown(field.get_default())
    text = f"{field.description or ''} (default: {shown})".strip().replace("%", "%%")
    options: dict[str, Any] = {"default": argparse.SUPPRESS, "help": text}
    if field.annotation is bool:
        return {**options, "action": argparse.BooleanOptionalAction}
    return {**options, "metavar": "X"}


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(str(part) for part in cast(tuple[object, ...], value))
    return str(value)


def _flag(name: str) -> str:
    return "--" + name.rstrip("_").replace("_", "-")  # `import_` is `--import`


def _one_line(error: ValidationError) -> str:
    first = error.errors()[0]
    if not first["loc"]:
        return first["msg"].removeprefix("Value error, ")
    return f"{_flag(str(first['loc'][0]))}={_shown(first['input'])}: {first['msg']}"
