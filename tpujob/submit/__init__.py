"""What happens on the submitter's machine before a job exists: read the job file, pack the code, compile the program.

How an archive reaches a bucket belongs to `service/submission.py`; how a host unpacks it, to `agent/setup/`. The
compile check itself is in `workloads/check/`, which knows nothing of jobs.
"""
