"""`JobsApi` as one caller may use it: no method is reached that the caller's role does not allow.

Whether a job is the caller's is asked where the job is read, in `jobs.py`.
"""

from __future__ import annotations

from typing import Any

from tpujob.domain import access
from tpujob.domain.access import Principal


class Allowed:
    """Every attribute is one of `jobs`, after a look into the table of `domain/access.py`. Raises Forbidden."""

    def __init__(self, jobs: object, who: Principal) -> None:
        self._jobs, self._who = jobs, who

    def __getattr__(self, method: str) -> Any:
        access.check(self._who, method)
        return getattr(self._jobs, method)
