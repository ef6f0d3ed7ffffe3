"""The job file: its fields, its reader, and the errors of a wrong file. Decides nothing about a job.

Imports pydantic, which takes time: only modules that read job files import this package.
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
