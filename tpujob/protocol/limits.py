"""How much each side writes and the other reads; labels; which variables hold secrets, by what their names say."""

from __future__ import annotations

import re
from collections.abc import Mapping

#: bytes of a report that are written; Cloud Storage takes 8 KiB of metadata
MAX_METADATA = 7 * 1024
MAX_REPORT = 64 * 1024  #: characters of a report that are read; more is not ours
MAX_TEXT = 500  #: characters of an error, and of any other text of a report
MAX_VERDICT_TEXT = 300  #: characters of each text of a verdict that are written
MAX_METRICS = 32

#: bytes and lines of a report's body (lines of output, or stacks) that are written, and that are read
MAX_EVIDENCE, MAX_EVIDENCE_READ = 8 * 1024, 16 * 1024
MAX_EVIDENCE_LINES, MAX_EVIDENCE_LINES_READ = 60, 80

#: seconds for which the rest neither ends nor goes on after a host has ended with success
LEFT_BEHIND = 40.0
#: seconds between two reports, at most, while a host that got a notice may still be saving
SAVING = 10.0

MOST_HOSTS = 100_000  #: no slice has more; the text of a number without a limit may be refused
#: bytes of the body of a report that are read: an older agent's has the reports and evidence of all hosts
MAX_BODY = 32 * 1024 * 1024

LONGEST_LINE = 64 * 1024  #: bytes of a line of log; a longer line becomes several
LAST_SEGMENT = 99_999  #: of a log: five digits, so that names sort as numbers do
LOG_EVERY = 300.0  #: seconds that a line of log waits to be shipped, at most
LOG_PER_REPORT = 5  #: the same as so many times between two reports, where that is less


# Labels --------------------------------------------------------------------------------------------------------------


LABEL = "tpujob"  #: of all that tpujob makes: `1`
JOB_LABEL = "tpujob-job"  #: of a slice: the id of its job
OWNER_LABEL = "tpujob-owner"  #: of slices and secrets: the backend that made them


# Secrets -------------------------------------------------------------------------------------------------------------


#: A name whose last word, or a word before a `_`, says so. `MAX_TOKENS` counts, and is none.
_SECRET = re.compile(
    r"(?:KEYS?|TOKEN|SECRETS?|PASSWORDS?|PASSWD|CREDENTIALS?)(?:_|[0-9]|$)", re.IGNORECASE
)


def secret_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return those of the variables whose names say that their values are secrets."""
    return {name: value for name, value in variables.items() if _SECRET.search(name)}
