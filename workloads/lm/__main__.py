"""`python -m workloads.lm`: alone in a folder of one's own, or on each host of a job."""

import sys

from workloads.frame.launch import main
from workloads.lm import TOOLS, LmConfig

if __name__ == "__main__":
    if any(argument.partition("=")[0] in TOOLS for argument in sys.argv[1:]):
        from workloads.lm import tools

        tools.main(sys.argv[1:])
    main(LmConfig, "workloads.lm.workload:LmWorkload")
