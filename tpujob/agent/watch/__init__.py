"""The eye on a program while it runs: progress, patterns in its output, stacks, notices of preemption.

Nothing is concluded here: the backend decides on what is reported.
"""
