"""The frame of every training program: joining hosts, the loop, saving and resuming.

No model and no data set belongs here; checkpoints are in `checkpoints/`, and who made a bad number is found out in
`verdicts/`. `workload.py` says what a program gives; `launch.main` starts it.
"""
