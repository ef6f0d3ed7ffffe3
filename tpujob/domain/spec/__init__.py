"""What the user asked for: the fields of a job file, how it is read, and the errors of a wrong one.

What follows from a spec is decided elsewhere. Imports pydantic, so only who reads job files imports it.
"""

from tpujob.domain.spec.env import FROM_FILE, Env, Mount
from tpujob.domain.spec.errors import bad_spec, validate
from tpujob.domain.spec.fields import time_text
from tpujob.domain.spec.jobspec import JobBudget, JobSpec, Recovery, Usd, check_usd, dump, parse

__all__ = [
    "FROM_FILE",
    "Env",
    "JobBudget",
    "JobSpec",
    "Mount",
    "Recovery",
    "Usd",
    "bad_spec",
    "check_usd",
    "dump",
    "parse",
    "time_text",
    "validate",
]
