"""Whether the program of a job fits its slices, found out on this machine by the compile check of the bundled programs.

What is checked, and how, is in `workloads/check/`, which knows nothing of jobs; what it costs is for who asks. Here are
the environment that a check needs, the run of one, and what earlier ones found.
"""

from tpujob.fit.check import Checked, Finding, Wanted, check, target_of, wanted_of
from tpujob.fit.environment import Environment, environment, stamp
from tpujob.fit.kept import keep, speeds

__all__ = [
    "Checked",
    "Environment",
    "Finding",
    "Wanted",
    "check",
    "environment",
    "keep",
    "speeds",
    "stamp",
    "target_of",
    "wanted_of",
]
