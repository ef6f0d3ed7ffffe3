"""Every error that a user can meet, with its exit code of the command line.

TpujobError
├── BadSpec          the job file is invalid
├── BadRequest       the command or the request is invalid
├── NotFound         no such job, host, attempt or object
├── IllegalInState   the job is in a state that does not allow this
├── Unauthorized     the caller is not signed in
├── Forbidden        the caller may not do that
├── BackendGone      the backend does not answer
├── Transient        a remote call may succeed later; its effect is unknown
│   └── Busy         the backend has done nothing; repeat the request later
├── Refused          a remote service refused, with a cause of the closed list
├── HostKeyChanged   a host has another key than the pinned one; nothing was sent to it
└── StoreError
    ├── DamagedRecord   this version cannot read a record; the store itself answers
    ├── Conflict     another writer was first: read and decide again
    └── Fenced       another backend has the lease of the write now
"""

from typing import Literal

#: where a refusal applies; empty: unknown
Scope = Literal["", "zone", "region"]

#: the command that gives a person's credentials to Google's clients on this machine
LOGIN = "gcloud auth application-default login"


class TpujobError(Exception):
    """An error that tpujob can explain. `str(error)` is a message for people."""

    exit_code = 1
    http_status = 500

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint  #: what to do next; shown on its own line

    def as_json(self) -> dict[str, dict[str, str | int]]:
        """Return the JSON form of the HTTP API and of `--json`, which `adapters/http/client.py` reads back."""
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

    def __init__(
        self,
        message: str,
        *,
        cause: str,
        scope: Scope = "",
        limit: int | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(message, hint=hint)
        self.cause = cause  #: a value of `domain.model.Cause`
        self.scope: Scope = scope
        self.limit = limit  #: of the quota, in its own unit; None: unknown


class HostKeyChanged(TpujobError):
    exit_code = 76
    http_status = 502


class StoreError(TpujobError):
    pass


class DamagedRecord(StoreError):
    pass


class Conflict(StoreError):
    exit_code = 4
    http_status = 409


class Fenced(StoreError):
    exit_code = 4
    http_status = 409
