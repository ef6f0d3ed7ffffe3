"""One request to the backend and its answer, over HTTP: connections that are kept, headers, repeats, and errors as they
were raised there. Standard library only: every command pays for its imports. What is asked is in `remote.py`.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

from tpujob import errors
from tpujob.adapters.way import BROKEN, Way
from tpujob.errors import BackendGone, BadRequest, BadSpec, NotFound, TpujobError, Transient
from tpujob.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from email.message import Message

#: seconds that a short call may take
TIMEOUT = 60.0
#: the HTTP status by which the backend asks to be asked again later, and for how many seconds that is done
BUSY = 429
PATIENCE = 60.0


class Calls:
    """To a backend at `url`: `unix:PATH` on this machine, or `https://HOST`. Each thread has its own connection."""

    def __init__(
        self,
        url: str,
        *,
        sign: Callable[[bool], Mapping[str, str]] | None = None,
        uid: int | None = None,
        log: str = "",
        timeout: float = TIMEOUT,
        look_again: Callable[[], str | None] | None = None,
    ) -> None:
        """`sign`: the headers that say who asks, for `https`; called for each request, and with True once more when
        those were refused. `uid`: whose process must answer at a unix socket; left out: this user's. `log`: of a
        backend that this user can start again. `look_again`: asked once when the very first connection is refused, for
        another URL; None: there is no other."""
        self._timeout, self._log, self._look_again = timeout, log, look_again
        self._sign, self._uid = sign, uid
        self._mine = threading.local()
        self._open: set[http.client.HTTPConnection] = set()
        # not at exit: a thread that still reads then would report that nothing answers
        weakref.finalize(self, _close_all, self._open).atexit = False
        self._aim(url)

    def _aim(self, url: str) -> None:
        self._way = Way(url, self._uid, self._sign).checked()
        self.url = url

    def version(self) -> str:
        """The version of the backend."""
        return self._get("/version")["version"]

    def close(self) -> None:
        """Close this thread's connection. A later call opens another."""
        connection = vars(self._mine).pop("connection", None)
        if connection is not None:
            self._open.discard(connection)
            connection.close()

    def _get(self, path: str, *, within: float = 0.0, **query: Any) -> Any:
        return self._call("GET", path, query, timeout=within)

    def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        *,
        body: bytes | Mapping[str, Any] | None = None,
        key: str = "",
        repeat: bool = True,
        timeout: float = 0.0,
        root: str = "/v1",
        read: Callable[[Answer], Any] | None = None,
    ) -> Any:
        """One request and its answer: JSON, unless `read` reads it. `repeat`: doing it twice is the same as once, so it
        is sent again when a kept connection turns out to be closed."""
        target = f"{root}{path}{_query(query or {})}"
        headers = {"Accept": "text/plain" if read else "application/json"}
        if not root:
            headers = {"X-Tpujob-Alone": "1"}
        elif read and not self.url.startswith(
            "unix:"
        ):  # here packing would take longer than sending
            headers["Accept-Encoding"] = "gzip"
        if self._sign:
            headers |= self._sign(False)
        if key:
            headers["Idempotency-Key"] = key
        if body is not None and not isinstance(body, bytes):
            headers["Content-Type"] = "application/json"
            body = json.dumps(body).encode()
        waited = 0.0
        renewed = False
        while True:
            kept = getattr(self._mine, "connection", None) is not None
            look_again, self._look_again = self._look_again, None
            try:
                answer = self._exchange(method, target, body, headers, timeout)
            except BaseException as error:
                self.close()  # an unread answer would be taken for that of the next request
                if kept and repeat and isinstance(error, BROKEN):
                    continue  # `kept` is False the second time
                refused = isinstance(error, (ConnectionRefusedError, FileNotFoundError))
                if refused and look_again and (found := look_again()):
                    self._aim(found)
                    continue
                if isinstance(error, TimeoutError):
                    said = f"the backend at {self.url} did not answer in time"
                    raise Transient(said, hint=self._see_log("try again")) from None
                if isinstance(error, (OSError, http.client.HTTPException)):
                    said = f"nothing answers at {self.url} ({str(error) or type(error).__name__})"
                    raise BackendGone(said, hint=self._what_to_do("start it: tpujob up")) from None
                raise
            wait = answer.wait
            if answer.status == BUSY and wait and (waited := waited + wait) <= PATIENCE:
                time.sleep(wait)  # nothing was done, so that it may be sent again in any case
                continue
            if answer.status == 401 and self._sign and not renewed:
                # nothing was done; a key of Google's may have changed, or this machine's clock be wrong
                renewed, headers = True, headers | dict(self._sign(True))
                continue
            try:
                return read(answer) if read and answer.status < 300 else self._read(answer)
            except (BadRequest, BadSpec, NotFound) as error:
                if not path.startswith("/jobs/"):
                    self._compare_versions(error)
                raise

    def _compare_versions(self, error: TpujobError) -> None:
        """If the backend is of another version than this command, add both to a refusal that may be due to it."""
        with contextlib.suppress(TpujobError):
            there = self.version()
            if there != __version__:
                restart = "restart it: tpujob down, then tpujob up"
                cure = restart if self._log else "update the older one (a backend: deploy/up.sh)"
                said = f"The backend at {self.url} is tpujob {there}, this command is {__version__}: {cure}"
                error.hint = f"{error.hint}\n{said}".lstrip()

    def _exchange(
        self, method: str, target: str, body: bytes | None, headers: dict[str, str], timeout: float
    ) -> Answer:
        connection = getattr(self._mine, "connection", None)
        if connection is None:
            connection = self._mine.connection = self._way.connection()
            self._open.add(connection)
        connection.timeout = timeout or self._timeout
        if connection.sock is not None:
            connection.sock.settimeout(connection.timeout)
        try:
            connection.request(method, target, body=body, headers=headers)
        except (BrokenPipeError, ConnectionResetError):
            if connection.sock is None:
                raise
            # otherwise the server may have refused the body unread, and its answer is there
        response = connection.getresponse()
        answer = response.read()
        if response.will_close:
            self.close()
        return Answer(response.status, answer, response.headers)

    def _read(self, answer: Answer) -> Any:
        try:
            document = json.loads(answer.body)
            if answer.status < 300:
                return document
            raise _error(document["error"])
        except (ValueError, KeyError, TypeError, RecursionError):
            hint = self._what_to_do("restart it: tpujob down, then tpujob up")
            raise self._way.in_front(answer.status, hint) from None

    def _what_to_do(self, here: str) -> str:
        """`here`: what to do with the local stack, which has a log; a deployed service cannot be started here."""
        return self._see_log(here if self._log else "check the address, and that the service runs")

    def _see_log(self, hint: str) -> str:
        return f"{hint}; its log: {self._log}" if self._log else hint


class Answer(NamedTuple):
    status: int
    body: bytes
    headers: Message

    @property
    def wait(self) -> float:
        """Seconds until the next request may be sent."""
        return _seconds(self.headers["Retry-After"])


def _close_all(connections: set[http.client.HTTPConnection]) -> None:
    for connection in connections.copy():  # a thread of a deadline may still open one
        connection.close()


def _seconds(retry_after: str | None) -> float:
    return float(retry_after) if retry_after and retry_after.isdecimal() else 0.0


def _query(query: Mapping[str, Any]) -> str:
    """Without what is not set. A list is repeated."""
    told = {name: "true" if value is True else value for name, value in query.items()}
    given = {k: v for k, v in told.items() if v is not None and v is not False and v != ""}
    return f"?{urlencode(given, doseq=True)}" if given else ""


def _error(told: Mapping[str, Any]) -> TpujobError:
    """The exception that the backend raised, of the same class with the same text."""
    kind = getattr(errors, str(told["type"]), None)
    message, hint = str(told["message"]), str(told.get("hint", ""))
    if isinstance(kind, type) and issubclass(kind, errors.Refused):
        return kind(message, cause=str(told.get("cause", "")), hint=hint)
    if isinstance(kind, type) and issubclass(kind, TpujobError):
        return kind(message, hint=hint)
    error = TpujobError(message, hint=hint)
    error.exit_code = int(told.get("exit_code", 1))
    return error
