"""`python -m workloads.vit`: alone in a folder of one's own, or on each host of a job."""

from workloads.frame.launch import main
from workloads.vit import VitConfig

if __name__ == "__main__":
    main(VitConfig, "workloads.vit.workload:VitWorkload")
