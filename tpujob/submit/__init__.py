"""What happens on the submitter's machine before a job exists: read the job file, pack the code, compile the program,
or make job files of those of jobman (`jobman.py`) and SkyPilot (`skypilot.py`), with what became of every key.

How an archive reaches a bucket belongs to `service/submission.py`; how a host unpacks it, to `agent/setup/`. The
compile check itself is in `workloads/check/`, which knows nothing of jobs.
"""
