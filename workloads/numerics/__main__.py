"""`python -m workloads.numerics`: by hand, or on each host of a job; every host checks itself."""

import sys

from workloads.frame.config import parse
from workloads.frame.launch import Program, launch
from workloads.numerics import NumericsConfig


def _prepare() -> Program:
    from workloads.numerics.report import run

    return lambda context, reporter, _: run(_CONFIG, context, reporter)


if __name__ == "__main__":
    _CONFIG = parse(NumericsConfig, "numerics", sys.argv[1:])
    launch(_prepare)
