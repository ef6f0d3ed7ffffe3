"""Every error that a user can meet, and the exit code that the command line gives it.

TpujobError
├── BadSpec          the job file says something impossible
├── BadRequest       the command or the request does
├── NotFound         no such job, host, attempt or object
├── IllegalInState   the job is in a state that does not allow this
├── Unauthorized     the caller is not signed in
├── Forbidden        the caller may not do that
├── BackendGone      nothing answers where the backend should be
├── Transient        a remote call may succeed later: nothing is known, nothing is concluded
│   └── Busy         the backend has done nothing, and asks to be asked again later
├── Refused          a remote service refused, with one cause of the closed list
├── HostKeyChanged   a host showed another key than the pinned one; nothing was sent to it
└── StoreError
    ├── DamagedRecord   cannot be read by this version; the store itself answers
    ├── Conflict     another writer was first: read again and decide again
    └── Fenced       the lease that the write was made under is no longer ours
"""

from typing import Literal

#: where a refusal holds; empty: the answer does not say
Scope = Literal["", "zone", "region"]

#: gives Google's clients on this machine the credentials of a person
LOGIN = "gcloud auth application-default login"


class TpujobError(Exception):
    """Something went wrong that tpujob can explain. `str(error)` is one message for a person."""

    exit_code = 1
    http_status = 500

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint  #: what to do next; shown on its own line

    def as_json(self) -> dict[str, dict[str, str | int]]:
        """As the HTTP API and `--json` print it; `adapters/http/client.py` reads it back."""
        facts: dict[str, str | int] = {
            "type": type(self).__name__,
            "message": self.message,
            "hint": self.hint,
            "exit_code": self.exit_code,
        }
        cause = getattr(self, "cause", "")
        return {"error": facts | ({"cause": str(cause)} if cause else {})}


class BadSpec(TpujobError):
    exit_code = 65
    http_status = 422


class BadRequest(TpujobError):
    exit_code = 2
    http_status = 400


class NotFound(TpujobError):
    exit_code = 3
    http_status = 404


class IllegalInState(TpujobError):
    exit_code = 4
    http_status = 409


class Unauthorized(TpujobError):
    exit_code = 77
    http_status = 401


class Forbidden(TpujobError):
    exit_code = 77
    http_status = 403


class BackendGone(TpujobError):
    exit_code = 69
    http_status = 503


class Transient(TpujobError):
    exit_code = 75
    http_status = 503


class Busy(Transient):
    http_status = 429

    def __init__(self, message: str, *, retry_after: float = 1.0, hint: str = "try again") -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after  #: seconds


class Refused(TpujobError):
    exit_code = 73
    http_status = 409

    def __init__(self, message: str, *, cause: str, scope: Scope = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.cause = cause  #: a value of `domain.model.Cause`
        self.scope: Scope = scope


class HostKeyChanged(TpujobError):
    exit_code = 76
    http_status = 502


class StoreError(TpujobError):
    http_status = 500


class DamagedRecord(StoreError):
    pass


class Conflict(StoreError):
    exit_code = 4
    http_status = 409


class Fenced(StoreError):
    exit_code = 4
    http_status = 409
