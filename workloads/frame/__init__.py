"""The frame of every training program: joining hosts, the loop, checkpoints.

No model and no data set belongs here; who made a bad number is found out in `verdicts/`. `workload.py` says what a
program gives; `launch.main` starts it.
"""
