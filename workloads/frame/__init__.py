"""The frame of every training program: joining hosts, the loop, when to save and where to go on.

No model and no data set belongs here; checkpoints are in `checkpoints/`, and who made a bad number is found out in
`verdicts/`. `workload.py` says what a program gives; `launch.main` starts it.
"""
