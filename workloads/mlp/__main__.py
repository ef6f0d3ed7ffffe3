"""`python -m workloads.mlp`: alone in a folder of one's own, or on each host of a job."""

from __future__ import annotations

import sys

from workloads.config import parse
from workloads.launch import Program, launch
from workloads.mlp import MlpConfig


def main() -> None:
    config = parse(MlpConfig, "mlp", sys.argv[1:])

    def prepare() -> Program:
        from workloads.loop import train
        from workloads.mlp.model import MlpWorkload

        workload = MlpWorkload(config)
        return lambda context, reporter, watcher: train(
            workload, config, context, reporter, watcher
        )

    launch(prepare)


if __name__ == "__main__":
    main()
