"""Requests of the JSON API: signed, repeated, and their refusals as errors of ours.

What is asked is in `objects.py`. Not Google's client: its uploads cannot be continued by another process, and each
costs as much CPU time as a dozen here.
"""

# google-auth has no types that a checker can follow.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from tpujob.adapters.calling import Backoff, Deadline, first_line, repeated
from tpujob.adapters.gcs.wire import Answer, Wire, WireError
from tpujob.data.objects import Operations
from tpujob.data.ramp import Unlimited, WriteRate
from tpujob.domain.model import Cause
from tpujob.errors import LOGIN, Conflict, NotFound, Refused, TpujobError, Transient

T = TypeVar("T")

GOOGLE = "https://storage.googleapis.com"
#: seconds for which a call is repeated, and that one answer may take
PATIENCE = 120.0
_TIMEOUT = 60.0
_BACKOFF = Backoff(first=0.2, longest=16.0)
_FORBIDDEN = (
    "the account needs a role on that bucket, such as roles/storage.objectUser; or the bucket is somebody else's, as "
    "names of buckets are global"
)


class JsonCalls:
    """Threads share it, and its connections: as many as there are calls at once."""

    def __init__(
        self,
        endpoint: str = "",
        token: Callable[[bool], str] = lambda _: "",
        patience: float = PATIENCE,
        rate: WriteRate | None = None,
        timeout: float = _TIMEOUT,
    ) -> None:
        """`token(new)`: what the storage shall see; `new`: the last one was refused. `rate`: asked before each write;
        None: writes are not held back. `patience`: seconds for which a call is repeated; `timeout`: for one answer."""
        self._url = endpoint or GOOGLE
        self._token = token
        self._patience, self._timeout = patience, timeout
        self._rate = rate or Unlimited()
        self._idle: list[Wire] = []
        self._lock = threading.Lock()
        self._last_refused = ""
        self.operations = Operations()

    def close(self) -> None:
        """Afterwards every connection that no call uses is closed. Safe to repeat."""
        with self._lock:
            while self._idle:
                self._idle.pop().close()

    def _json(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        a: int = 0,
        b: int = 0,
        write: str = "",
    ) -> dict[str, Any]:
        """As `_ask`; the answer's body."""
        answer = self._ask(method, target, headers or {}, body, a=a, b=b, write=write)
        try:
            return json.loads(answer.body)
        except ValueError as error:
            raise Transient(f"an answer of Cloud Storage is no JSON: {error}") from error

    def _ask(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | Iterable[bytes] = b"",
        *,
        take: Callable[[bytes], object] | None = None,
        a: int = 0,
        b: int = 0,
        write: str = "",
    ) -> Answer:
        """A good answer: 2xx, 308, or 499 (a session that ended on request, documented). `a`, `b`: what the request
        counts as. `write`: the bucket that it writes an object to."""
        if write:
            self._rate.wait(write)
        token = self._token(False)
        signed = {**headers, "Authorization": f"Bearer {token}"} if token else headers
        with self._lock:
            self.operations.class_a += a
            self.operations.class_b += b
            wire = self._idle.pop() if self._idle else Wire(self._url, self._timeout)
        try:
            answer = wire.ask(method, target, signed, body, take=take)
        except WireError as error:
            raise Transient(f"Cloud Storage does not answer: {error}") from error
        finally:
            with self._lock:
                self._idle.append(wire)
        if answer.status == 401 and token:
            self._token(True)
        if answer.status // 100 == 2 or answer.status in (308, 499):
            return answer
        if answer.status == 429 or answer.status >= 500:
            self._rate.slow_down(write)
        raise _refusal(answer, retry_401=bool(token) and not self._refused(token))

    def _refused(self, token: str) -> bool:
        """Whether this very token was refused before: a new one would be, too."""
        with self._lock:
            before, self._last_refused = self._last_refused, token
        return before == token

    def _repeat(self, doing: str, call: Callable[[], T]) -> T:
        try:
            return repeated(lambda _left, _failures: call(), Deadline(self._patience), _BACKOFF)
        except TpujobError as error:
            error.args = (f"cannot {doing}: {error.message}",)
            error.message = error.args[0]
            raise


def google_token() -> Callable[[bool], str]:
    """The tokens of this machine's credentials. Raises Refused when it has none."""
    import google.auth
    from google.auth.exceptions import GoogleAuthError
    from google.auth.transport.requests import Request

    lock = threading.Lock()
    try:
        credentials: Any = google.auth.default(
            scopes=["https://www.googleapis.com/auth/devstorage.read_write"]
        )[0]
    except GoogleAuthError as error:
        raise Refused(first_line(error), cause=Cause.PERMISSION, hint=f"run `{LOGIN}`") from error

    def token(new: bool) -> str:
        with lock:
            if new or not credentials.valid:
                try:
                    credentials.refresh(Request())
                except GoogleAuthError as error:
                    hint = f"run `{LOGIN}`"
                    raise Refused(first_line(error), cause=Cause.PERMISSION, hint=hint) from error
            return str(credentials.token)

    return token


def _refusal(answer: Answer, *, retry_401: bool) -> TpujobError:
    status, text, reason = answer.status, f"HTTP {answer.status}", ""
    try:
        error = json.loads(answer.body)["error"]
        text = first_line(error["message"])
        reason = str(error["errors"][0]["reason"])
    except (ValueError, KeyError, TypeError, IndexError):
        text = first_line(answer.body.decode("utf-8", "replace")[:200]) if answer.body else text
    if status == 412:
        return Conflict(text)
    if status in (404, 410):
        return NotFound(text)
    corrupted = status == 400 and "doesn't match calculated" in text
    slow_down = reason in ("rateLimitExceeded", "userRateLimitExceeded")
    if corrupted or slow_down or status in (408, 409, 429) or (status >= 500 and status != 507):
        return Transient(text)
    if status == 401 and retry_401:
        return Transient(text)
    if status in (401, 403):
        hint = f"run `{LOGIN}`" if status == 401 else _FORBIDDEN
        return Refused(text, cause=Cause.PERMISSION, hint=hint)
    return Refused(text, cause=Cause.BAD_SPEC)
