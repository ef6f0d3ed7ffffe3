"""What `create` and its kin do before the backend is asked: read the job file, ship the code, check that it fits."""
