"""`python -m workloads.mlp`: alone in a folder of one's own, or on each host of a job."""

from workloads.frame.launch import main
from workloads.mlp import MlpConfig

if __name__ == "__main__":
    main(MlpConfig, "workloads.mlp.model:MlpWorkload")
