"""Limits of reports and logs on both sides, the labels of cloud resources, and a test for the names of secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping

#: bytes of a report that an agent writes; Cloud Storage takes 8 KiB of metadata
MAX_METADATA = 7 * 1024
MAX_REPORT = 64 * 1024  #: characters of a report that a backend reads; no agent writes more
MAX_TEXT = 500  #: characters of an error, and of any other text of a report
MAX_VERDICT_TEXT = 300  #: characters of each text of a verdict that an agent writes
MAX_METRICS = 32
MAX_CHECKPOINTS = 32  #: newest checkpoints in a report
MAX_EMPTY = 3  #: names of empty folders in a report

#: bytes and lines of evidence (lines of output, or stacks) that an agent writes, and that a backend reads
MAX_EVIDENCE, MAX_EVIDENCE_READ = 8 * 1024, 16 * 1024
MAX_EVIDENCE_LINES, MAX_EVIDENCE_LINES_READ = 60, 80

#: seconds from the success of one host after which unfinished hosts without progress count as hung
LEFT_BEHIND = 40.0
#: most seconds between two reports of a host that got a notice and may still be saving
SAVING = 10.0

#: bytes of a report's body that a backend reads
MAX_BODY = 32 * 1024 * 1024

MAX_LINE = 64 * 1024  #: bytes of a line of log; a longer line is split
LAST_SEGMENT = 99_999  #: the last number of a segment: five digits, so that names sort as numbers
LOG_EVERY = 300.0  #: most seconds that a line of log waits for its upload
LOG_PER_REPORT = 5  #: most report intervals that a line of log waits, if less than LOG_EVERY


# Labels --------------------------------------------------------------------------------------------------------------


LABEL = "tpujob"  #: on every resource that tpujob creates; its value is `1`
JOB_LABEL = "tpujob-job"  #: on a slice: the id of its job
PRICING_LABEL = "tpujob-pricing"  #: on slices whose terms the API's older fields do not tell
OWNER_LABEL = "tpujob-owner"  #: on slices and secrets: the backend that created them


# Secrets -------------------------------------------------------------------------------------------------------------


#: a word of secrets before a `_`, a digit or the end of the name; `MAX_TOKENS` does not match
_SECRET = re.compile(
    r"(?:KEYS?|TOKEN|SECRETS?|PASSWORDS?|PASSWD|CREDENTIALS?)(?:_|[0-9]|$)", re.IGNORECASE
)


def secret_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables whose names mark their values as secrets."""
    return {name: value for name, value in variables.items() if _SECRET.search(name)}
