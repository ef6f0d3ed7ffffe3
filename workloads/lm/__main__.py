"""`python -m workloads.lm`: alone in a folder of one's own, or on each host of a job."""

from workloads.frame.launch import main
from workloads.lm import LmConfig

if __name__ == "__main__":
    main(LmConfig, "workloads.lm.workload:LmWorkload")
