"""Whether a program fits a TPU slice and how fast it can be at best, found out by the TPU's own compiler on a machine
without a TPU: `python -m workloads.NAME --check v4-16,v5e-64`.

The order of the work: `topologies.py` says what a slice is; `child.py` compiles the step for it in a process of its
own, which `children.py` starts and watches; `jaxpr.py` counts what the program asks for, `hlo.py`, `walk.py` and
`collectives.py` what the compiler made of it; `roofline.py` sets that against the peaks of the chip; `report.py`
prints it; `command.py` is the command line. Nothing here runs a step.
"""

from __future__ import annotations

FLAGS = (
    "--check",
    "--check-tokens",
    "--check-rows",
    "--check-batch-per-chip",
    "--check-own-batch",
)


def is_asked(arguments: list[str]) -> bool:
    """Whether this command line is one of a check. Here, as each run asks, and few need the rest of this package."""
    return any(flag_of(argument) in FLAGS for argument in arguments)


def flag_of(argument: str) -> str:
    """With dashes, whichever it was written with."""
    return argument.partition("=")[0].replace("_", "-")
