from workloads.frame.launch import main
from workloads.spirals import SpiralsConfig

if __name__ == "__main__":
    main(SpiralsConfig, "workloads.spirals.model:SpiralsWorkload")
