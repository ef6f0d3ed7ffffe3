"""The steps on the user's machine before a job exists: read the job file, pack the code, compile the program. Also
imports the files of jobman (`jobman.py`) and SkyPilot (`skypilot.py`), with a note on every key.

`service/submission.py` uploads an archive, `agent/setup/` unpacks it. `workloads/check/` has the compile check itself.
"""
