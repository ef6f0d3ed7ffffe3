"""The frame of every training program: joining hosts, the loop, checkpoints, verdicts on bad numbers.

No model and no data set belongs here. `workload.py` says what a program gives; `launch.main` starts it.
"""
