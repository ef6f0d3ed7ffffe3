"""The compile check: whether a program fits a TPU slice, and its best possible speed, by the TPU's compiler on a
machine without a TPU: `python -m workloads.NAME --check v4-16,v5e-64`, and `tpujob fit` for any function.

The order of the work: `topologies.py` says what a slice is, `meshes.py` which mesh it becomes; `child.py` calls the
function (`function.py`; that of the bundled programs is in `bundled.py`) and compiles its step in a process of its own,
which `children.py` starts by `start.py` and watches; `jaxpr.py` counts what the program asks for, `hlo.py`, `walk.py`
and `collectives.py` what the compiler made of it; `roofline.py` sets that against the peaks of the chip; `report.py`
prints it; `command.py` is the command line. Nothing here runs a step.
"""

from __future__ import annotations

FLAGS = (
    "--check",
    "--check-tokens",
    "--check-rows",
    "--check-batch-per-chip",
    "--check-own-batch",
    "--check-with",
    "--check-reached",
)


def is_asked(arguments: list[str]) -> bool:
    """Return whether this command line is of a check. Every run calls this; few need the rest of the package."""
    return any(flag_of(argument) in FLAGS for argument in arguments)


def flag_of(argument: str) -> str:
    """Return the argument's flag, with dashes in place of underscores."""
    return argument.partition("=")[0].replace("_", "-")
