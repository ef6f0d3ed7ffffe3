"""`JobsApi` over HTTP, for the command line. Standard library only: every command pays for its imports."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import threading
import time
import weakref
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

from tpujob import __version__, errors, sockets
from tpujob.domain.pages import all_of
from tpujob.domain.secrets import checked_name
from tpujob.errors import BackendGone, BadRequest, BadSpec, NotFound, TpujobError, Transient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tpujob.api import (
        BrokenView,
        CallerView,
        CodeGiven,
        CompareAsked,
        CompareView,
        CostView,
        DiffView,
        EstimateSaid,
        EstimateView,
        EventView,
        HostAccess,
        JobView,
        LedgerView,
        LogPage,
        MemberView,
        PlanView,
        SecretView,
        SpendingView,
        SuspectView,
        SweptView,
    )

#: seconds that a short call may take; storing a bundle of 100 MiB is not one
TIMEOUT = 60.0
BUNDLE_TIMEOUT = 600.0
#: seconds for calls that read every record with its history
LONG = 300.0
#: the HTTP status by which the backend asks to be asked again later, and for how many seconds that is done
BUSY = 429
PATIENCE = 60.0
#: the longest wait that the backend grants to one poll
POLL = 30.0

#: the errors of a kept connection that the other side has closed
_BROKEN = (ConnectionError, http.client.RemoteDisconnected, http.client.BadStatusLine)


class RemoteJobs:
    """Implements `jobsapi.JobsApi` against a backend at `url`: `unix:PATH` on this machine, or `https://HOST`. Each
    thread has its own connection."""

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
        self._sign, self._uid = sign, os.geteuid() if uid is None else uid
        self._mine = threading.local()
        self._open: set[http.client.HTTPConnection] = set()
        weakref.finalize(self, _close_all, self._open)
        self._aim(url)

    def _aim(self, url: str) -> None:
        if not url.startswith(("unix:/", "https://")):
            raise BadRequest(
                f"{url} is not safe: what is sent there would travel unencrypted",
                hint="a backend has an https:// URL, or unix:/PATH on this machine",
            )
        self.url = url

    def _connection(self) -> http.client.HTTPConnection:
        if self.url.startswith("unix:"):
            return _UnixConnection(self.url.removeprefix("unix:"), self._uid)
        parts = urlsplit(self.url)
        return http.client.HTTPSConnection(parts.hostname or "", parts.port)

    # JobsApi ---------------------------------------------------------------------------------------------------------

    def whoami(self) -> CallerView:
        return self._get("/whoami")

    def plan(self, spec: Mapping[str, Any]) -> PlanView:
        return self._call("POST", "/plan", body={"spec": spec})

    def put_bundle(self, sha256: str, data: bytes | IO[bytes], *, bucket: str) -> str:
        data = data if isinstance(data, bytes) else data.read()
        path, query = f"/bundles/{quote(sha256, safe='')}", {"bucket": bucket}
        return self._call("PUT", path, query, body=data, timeout=BUNDLE_TIMEOUT)["path"]

    def create(
        self,
        spec: Mapping[str, Any],
        *,
        bundles: Sequence[str] = (),
        code: CodeGiven | None = None,
        idempotency_key: str = "",
    ) -> JobView:
        body = {"spec": spec, "bundles": list(bundles), "code": code}
        return self._call(
            "POST", "/jobs", body=body, key=idempotency_key, repeat=bool(idempotency_key)
        )

    def secrets(self) -> Sequence[SecretView]:
        return self._get("/secrets")

    def set_secret(self, name: str, value: str) -> None:
        self._call("PUT", _secret_path(name), body={"value": value})

    def remove_secret(self, name: str) -> None:
        # never sent twice: the second would fail with NotFound
        self._call("DELETE", _secret_path(name), repeat=False)

    def list(
        self, *, user: str = "", all: bool = False, before: str = "", limit: int = 0
    ) -> list[JobView]:
        def page(most: int, after: JobView | None) -> list[JobView]:
            older = after["id"] if after else before
            return self._get("/jobs", user=user, all=all, before=older, limit=most)

        return all_of(page, limit)

    def get(self, job: str) -> JobView:
        return self._get(_path(job))

    def events(self, job: str, *, after: int = 0, limit: int = 0) -> list[EventView]:
        def page(most: int, last: EventView | None) -> list[EventView]:
            newer = last["seq"] if last else after
            return self._get(_path(job, "events"), after=newer, limit=most)

        return all_of(page, limit)

    def diff(self, a: str, b: str) -> DiffView:
        return self._get("/diff", within=LONG, a=a, b=b)

    def cost(self, *, by: str = "job", user: str = "", job: str = "") -> CostView:
        return self._get("/cost", within=LONG, by=by, user=user, job=job)

    def ledger(self) -> LedgerView:
        return self._get("/ledger", within=LONG)

    def estimate(self, spec: Mapping[str, Any], said: EstimateSaid | None = None) -> EstimateView:
        return self._call("POST", "/estimate", body={"spec": spec, "said": said or {}})

    def compare(
        self,
        spec: Mapping[str, Any],
        said: EstimateSaid | None = None,
        asked: CompareAsked | None = None,
    ) -> CompareView:
        body = {"spec": spec, "said": said or {}, "asked": asked or {}}
        return self._call("POST", "/compare", body=body, timeout=LONG)

    def budgets(self) -> Sequence[SpendingView]:
        return self._get("/budgets", within=LONG)

    def logs(
        self,
        job: str,
        *,
        host: int | None = None,
        attempt: int | None = None,
        cursor: str = "",
        tail: int | None = None,
    ) -> LogPage:
        return self._get(_path(job, "logs"), host=host, attempt=attempt, cursor=cursor, tail=tail)

    def cancel(self, job: str, *, release: bool = False) -> JobView:
        return self._call("POST", _path(job, "cancel"), {"release": release})

    def resume(self, job: str, *, budget: float | None = None) -> JobView:
        return self._call("POST", _path(job, "resume"), {"budget": budget})

    def delete(self, job: str) -> JobView:
        return self._call("POST", _path(job, "delete"))

    def clean(self, job: str, *, checkpoints: bool = False) -> JobView:
        return self._call("POST", _path(job, "clean"), {"checkpoints": checkpoints})

    def access(self, job: str, *, host: int = 0, key: str) -> HostAccess:
        return self._call("POST", _path(job, "access"), body={"host": host, "key": key})

    def hosts(self) -> list[SuspectView]:
        return self._get("/hosts")

    def pin_host(self, physical: str, verdict: str) -> SuspectView:
        return self._call("POST", "/hosts/pin", body={"physical": physical, "verdict": verdict})

    def clear_host(self, physical: str) -> None:
        # never sent twice: the second would fail with NotFound
        self._call("POST", "/hosts/clear", body={"physical": physical}, repeat=False)

    def members(self) -> Sequence[MemberView]:
        return self._get("/members")

    def give_role(self, name: str, role: str) -> MemberView:
        return self._call("PUT", "/members", body={"name": name, "role": role})

    def remove_member(self, name: str) -> None:
        self._call("DELETE", "/members", {"name": name})

    def leaks(self) -> SweptView:
        found = self._get("/leaks", within=LONG)
        # an older backend sends a list, of what a sweep would delete
        older: SweptView = {"deleted": found, "kept": [], "failed": [], "keys": []}
        return found if "deleted" in found else older

    def sweep(self, *, dry_run: bool = False) -> SweptView:
        return self._call("POST", "/sweep", {"dry_run": dry_run}, timeout=LONG)

    def fsck(self) -> list[BrokenView]:
        return self._get("/fsck", within=LONG)

    def follow(self, job: str | None = None, *, timeout: float = 30.0) -> Iterator[None]:
        wait = min(timeout, POLL)
        cursor = ""
        while True:
            within = wait + self._timeout
            hint = self._get("/follow", within=within, job=job, cursor=cursor, timeout=wait)
            if cursor:
                time.sleep(hint["again_in"])
            cursor = hint["cursor"]
            yield

    # Also ------------------------------------------------------------------------------------------------------------

    def version(self) -> str:
        """The version of the backend."""
        return self._get("/version")["version"]

    def close(self) -> None:
        """Close this thread's connection. A later call opens another."""
        connection = vars(self._mine).pop("connection", None)
        if connection is not None:
            self._open.discard(connection)
            connection.close()

    # Calls -----------------------------------------------------------------------------------------------------------

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
    ) -> Any:
        """One request and its answer. `repeat`: doing it twice is the same as once, so it is sent again when a kept
        connection turns out to be closed."""
        target = f"/v1{path}{_query(query or {})}"
        headers = {"Accept": "application/json"}
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
                status, answer, wait = self._exchange(method, target, body, headers, timeout)
            except BaseException as error:
                self.close()  # an unread answer would be taken for that of the next request
                if kept and repeat and isinstance(error, _BROKEN):
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
            if status == BUSY and wait and (waited := waited + wait) <= PATIENCE:
                time.sleep(wait)  # nothing was done, so that it may be sent again in any case
                continue
            if status == 401 and self._sign and not renewed:
                # nothing was done; a key of Google's may have changed, or this machine's clock be wrong
                renewed, headers = True, headers | dict(self._sign(True))
                continue
            try:
                return self._read(status, answer)
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
    ) -> tuple[int, bytes, float]:
        """The status, the body, and how many seconds to wait before the next request."""
        connection = getattr(self._mine, "connection", None)
        if connection is None:
            connection = self._mine.connection = self._connection()
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
        return response.status, answer, _seconds(response.getheader("Retry-After"))

    def _read(self, status: int, answer: bytes) -> Any:
        try:
            document = json.loads(answer)
            if status < 300:
                return document
            raise _error(document["error"])
        except (ValueError, KeyError, TypeError, RecursionError):
            raise self._in_front(status) from None

    def _in_front(self, status: int) -> TpujobError:
        """What an answer means that no backend gives: it is that of Google Cloud in front of it, or of a stranger."""
        if status in (401, 403) and self._sign:
            kind, hint = (
                (errors.Unauthorized, "sign in again: tpujob login")
                if status == 401
                else (errors.Forbidden, "an admin lets you in: deploy/join.sh YOUR_ADDRESS ROLE")
            )
            return kind(f"Google Cloud lets nobody through to {self.url} as you are", hint=hint)
        if (
            300 <= status < 400 and self._sign
        ):  # never followed: whoever it leads to would get the token
            return errors.Unauthorized(
                f"Google Cloud asks for a sign-in in front of {self.url} (Identity-Aware Proxy)",
                hint="choose the backend again with `tpujob use URL --door iap`; its admin must have let"
                " the OAuth client of the context in",
            )
        if status == 413:
            return BadRequest(
                f"the proxy in front of the backend at {self.url} accepts no request of that size",
                hint="ship less code: .tpujobignore; Cloud Run takes 32 MiB",
            )
        return BackendGone(
            f"what answers at {self.url} is not a tpujob backend (HTTP {status})",
            hint=self._what_to_do("restart it: tpujob down, then tpujob up"),
        )

    def _what_to_do(self, here: str) -> str:
        """`here`: what to do with the local stack, which has a log; a deployed service cannot be started here."""
        return self._see_log(here if self._log else "check the address, and that the service runs")

    def _see_log(self, hint: str) -> str:
        return f"{hint}; its log: {self._log}" if self._log else hint


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket. Nothing is said to a server that is not a process of the uid."""

    def __init__(self, path: str, uid: int) -> None:
        super().__init__("localhost")
        self._path, self._uid = path, uid

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
        found = sockets.uid_of_peer(self.sock)
        if found != self._uid:
            raise BackendGone(
                f"what answers at {self._path} belongs to the uid {found}, not to {self._uid}: nothing was sent",
                hint="if the backend has moved to another account: tpujob use PATH",
            )


def _close_all(connections: set[http.client.HTTPConnection]) -> None:
    for connection in connections:
        connection.close()


def _seconds(retry_after: str | None) -> float:
    return float(retry_after) if retry_after and retry_after.isdecimal() else 0.0


def _query(query: Mapping[str, Any]) -> str:
    """Without what is not set."""
    told = {name: "true" if value is True else value for name, value in query.items()}
    given = {k: v for k, v in told.items() if v is not None and v is not False and v != ""}
    return f"?{urlencode(given)}" if given else ""


def _path(job: str, part: str = "") -> str:
    if not job or "/" in job or job in (".", ".."):
        raise NotFound(f"no job is called {job!r}", hint="`tpujob list --all` shows every job.")
    return f"/jobs/{quote(job, safe='')}" + (f"/{part}" if part else "")


def _secret_path(name: str) -> str:
    return f"/secrets/{quote(checked_name(name), safe='')}"


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
