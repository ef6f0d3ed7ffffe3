"""`python -m workloads.tables`: by hand, or on each host of a job; every host measures itself."""

import sys

from workloads.frame.config import parse
from workloads.frame.launch import Program, launch
from workloads.tables import TablesConfig


def _prepare() -> Program:
    from workloads.tables.report import run

    return lambda context, reporter, _: run(_CONFIG, context, reporter)


if __name__ == "__main__":
    _CONFIG = parse(TablesConfig, "tables", sys.argv[1:])
    launch(_prepare)
