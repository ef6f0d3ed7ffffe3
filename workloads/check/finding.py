"""The finding of a check for one target, which the child writes and the command reads."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

GIB = 2**30

#: yes and no are the compiler's own word. refused: the settings do not go with the slice, by the program's own word.
#: crashed: the compiler died, which says nothing about the program. unknown: anything else.
Fit = Literal["yes", "no", "refused", "crashed", "unknown"]


class _Record(BaseModel):
    # others' keys are let pass: `--json` adds the times that follow from these figures
    model_config = ConfigDict(frozen=True)


class Exchange(_Record):
    """All collectives of one kind along the same axes of the mesh, in a step."""

    kind: str
    axes: tuple[str, ...]
    times: int
    wire_bytes: float  #: that one device sends
    seconds: float  #: at least, at the full speed of the links


class Program(_Record):
    """The compiled step. All figures are of one device and one step, and no figure was measured."""

    peak_bytes: int  #: of memory, arguments included, by the compiler
    argument_bytes: int  #: the state and a batch, as they lie in memory
    flops: float  #: of matrix products and convolutions that are executed
    asked_flops: (
        float  #: of them, those that the program asks for: its own count divided by the devices
    )
    #: those of the model alone, as `mfu` of a run counts them: nothing that is computed again
    model_flops: float
    hbm_bytes: float
    exchanges: tuple[Exchange, ...]
    #: XLA's own counters, to compare: they take the body of a loop once, and count elementwise operations too
    xla_flops: float
    xla_bytes: float
    trace_seconds: float
    compile_seconds: float
    analysed: bool = True  #: False: only memory is known


class Finding(_Record):
    """The result of compiling a training step for one or several slices."""

    target: str  #: `v4-16`, `2xv4-16`
    fit: Fit
    reason: str = ""  #: one line for people, where it is not `yes`
    advice: str = ""  #: and what would make it fit
    batch: int = 0  #: rows in a step, over all devices
    tokens_per_row: int = 0
    parameters: int = 0
    limit_bytes: int  #: what the compiler allows a device
    needed_bytes: int = 0  #: bytes that a step which does not fit needs, by the compiler
    program: Program | None = None  #: if it fits
    warnings: tuple[str, ...] = ()
    versions: dict[str, str] = {}


class Order(_Record):
    """The step that a child compiles, and the target."""

    workload: str  #: `module:Class`
    record: str  #: the same of its settings
    config: dict[str, object]
    target: str


def memory(size: float) -> str:
    """Return bytes as `2.73 GiB`, or `43.1 MiB`."""
    return f"{size / GIB:.2f} GiB" if size >= 0.1 * GIB else f"{size / 2**20:.3g} MiB"
