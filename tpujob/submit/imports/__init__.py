"""Job files made of the files of other tools: jobman's tasks and jobs, SkyPilot's tasks.

A reader (`jobman.py`, `skypilot.py`) is pure: it makes of texts an `ImportPlan`, which names what became of every key.
Nothing is submitted; what a job file may hold is in `domain/spec/`.
"""
