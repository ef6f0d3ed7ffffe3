"""The order of a check for one target, and its finding: the child reads the one and writes the other.

Standard library only, as the child runs in the Python of the program that is checked.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

GIB = 2**30

#: yes and no are the compiler's own word. refused: the program does not go with the slice, by its own word or by its
#: error. crashed: the compiler died, which says nothing about the program. unknown: anything else.
Fit = Literal["yes", "no", "refused", "crashed", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """All collectives of one kind along the same axes of the mesh, in a step."""

    kind: str
    axes: tuple[str, ...]
    times: int
    wire_bytes: float  #: that one device sends
    seconds: float  #: at least, at the full speed of the links


@dataclass(frozen=True, kw_only=True)
class Program:
    """The compiled step. All figures are of one device and one step, and no figure was measured."""

    peak_bytes: int  #: of memory, arguments included, by the compiler
    argument_bytes: int  #: the state and a batch, as they lie in memory
    flops: float  #: of matrix products and convolutions that are executed
    asked_flops: (
        float  #: of them, those that the program asks for: its own count divided by the devices
    )
    #: those of the model alone, as MFU counts them: nothing that is computed again
    model_flops: float
    hbm_bytes: float
    exchanges: tuple[Exchange, ...]
    #: XLA's own counters, to compare: they take the body of a loop once, and count elementwise operations too
    xla_flops: float
    xla_bytes: float
    trace_seconds: float
    compile_seconds: float
    analysed: bool = True  #: False: only memory is known


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The result of compiling a training step for one or several slices."""

    target: str  #: `v4-16`, `2xv4-16`
    fit: Fit
    limit_bytes: int  #: what the compiler allows a device
    reason: str = ""  #: one line for people, where it is not `yes`
    advice: str = ""  #: and what would make it fit
    rows: int = 0  #: in a step, over all devices; 0: unknown
    tokens: int = 0  #: the same
    parameters: int = 0
    needed_bytes: int = 0  #: bytes that a step which does not fit needs, by the compiler
    program: Program | None = None  #: if it fits
    warnings: tuple[str, ...] = ()
    gains: tuple[str, ...] = ()  #: what other arguments or another mesh change, one line each
    versions: dict[str, str] = field(default_factory=dict[str, str])

    def to_json(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True, kw_only=True)
class Order:
    """The step that a child compiles, and the target."""

    function: str  #: `module:name` or `folder/file.py:name`
    target: str
    #: by keyword, beside the mesh
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    mesh: str = ""  #: `data=1,fsdp=-1`; see `meshes.py`
    folder: str = ""  #: from which the program is imported
    python: str = ""  #: the interpreter; empty: this one
    environment: dict[str, str] = field(default_factory=dict[str, str])  #: further variables

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def memory(size: float) -> str:
    """Return bytes as `2.73 GiB`, or `43.1 MiB`."""
    return f"{size / GIB:.2f} GiB" if size >= 0.1 * GIB else f"{size / 2**20:.3g} MiB"
