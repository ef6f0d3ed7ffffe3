"""`JobsApi` over HTTP, made of the rows of its table. Standard library only: every command pays for its imports."""

from __future__ import annotations

import contextlib
import http.client
import json
import time
import zlib
from functools import partial
from typing import IO, TYPE_CHECKING, Any, cast
from urllib.parse import quote, unquote, urlencode

from tpujob import errors
from tpujob.adapters.http.transport import (
    BackendAddress,
    BackendReply,
    BackendRequest,
    BackendTransport,
)
from tpujob.api import METHODS
from tpujob.api.methods import HEADER
from tpujob.domain.paging import PAGE, all_of
from tpujob.errors import BackendGone, BadRequest, BadSpec, NotFound, TpujobError, Transient
from tpujob.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tpujob.adapters.http.transport import Sign
    from tpujob.api import EventView, JobPage, JobsApi, ListAsked, LogBlock
    from tpujob.api.methods import Method
else:
    JobsApi = object

TIMEOUT = 60.0  #: seconds that a short call may take
POLL = 30.0  #: the longest wait that the backend grants to one poll


class RemoteJobs(JobsApi):
    """To a backend at `url`: `unix:PATH` on this machine, or `https://HOST`. A method without code here is its row."""

    def __init__(
        self,
        url: str,
        *,
        sign: Sign | None = None,
        uid: int | None = None,
        log: str = "",
        timeout: float = TIMEOUT,
        look_again: Callable[[], str | None] | None = None,
    ) -> None:
        """`sign`, `uid`: see `BackendAddress`. `log`: of a backend that this user can start again. `look_again`: see
        `BackendTransport`."""
        self._transport = BackendTransport(BackendAddress(url, uid, sign), look_again)
        self._timeout, self._log = timeout, log

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Callable[..., Any]:
            if name not in METHODS:
                raise AttributeError(name)
            return partial(self._ask, METHODS[name])

    @property
    def url(self) -> str:
        return self._transport.address.url

    def close(self) -> None:
        """Close this thread's connection. A later call opens another."""
        self._transport.close()

    # Methods with more than one request, or more than JSON -----------------------------------------------------------

    def put_bundle(self, sha256: str, data: bytes | IO[bytes], *, bucket: str) -> str:
        data = data if isinstance(data, bytes) else data.read()
        return self._ask(METHODS["put_bundle"], sha256, data, bucket=bucket)["path"]

    def list(self, asked: ListAsked | None = None) -> JobPage:
        query: dict[str, Any] = {**(asked or {})}
        wanted = query.pop("limit", 0)
        found: JobPage = self._ask(METHODS["list"], {**query, "limit": min(wanted or PAGE, PAGE)})
        while found["next"] and len(found["rows"]) != wanted:
            most = min(wanted - len(found["rows"]), PAGE) if wanted else PAGE
            query.update(after=found["next"], limit=most)
            page: JobPage = self._ask(METHODS["list"], query)
            found = {**found, "rows": found["rows"] + page["rows"], "next": page["next"]}
        return found

    def events(self, job: str, *, after: int = 0, limit: int = 0) -> list[EventView]:
        def page(most: int, last: EventView | None) -> list[EventView]:
            newer = last["seq"] if last else after
            return self._ask(METHODS["events"], job, after=newer, limit=most)

        return all_of(page, limit)

    def backend_metrics(self) -> str:
        return _unpacked(self._reply(METHODS["backend_metrics"])).decode()

    def log_block(
        self, job: str, *, host: int | None = None, attempt: int | None = None, cursor: str = ""
    ) -> LogBlock:
        from tpujob.api import LogBlock

        row = METHODS["log_block"]
        reply = self._reply(row, job, host=host, attempt=attempt, cursor=cursor)
        cursor, done, more, note = (
            reply.headers[f"X-Tpujob-{name}"] or "" for name in ("Cursor", "Done", "More", "Note")
        )
        if not done:
            raise BackendGone("what answers is not a tpujob backend", hint="check the address")
        return LogBlock(_unpacked(reply), cursor, done == "1", more == "1", unquote(note))

    def follow(self, job: str | None = None, *, timeout: float = 30.0) -> Iterator[None]:
        wait = min(timeout, POLL)
        cursor = ""
        while True:
            query = {"job": job, "cursor": cursor, "timeout": wait}
            hint = self._json(self._send("GET", "/follow", query, within=wait + self._timeout))
            if cursor:
                time.sleep(hint["again_in"])
            cursor = hint["cursor"]
            yield

    # Beside the table ------------------------------------------------------------------------------------------------

    def version(self) -> str:
        return self._json(self._send("GET", "/version"))["version"]

    def page_code(self) -> str:
        """A code that opens the backend's page on this machine in one browser, within a minute."""
        return self._json(self._send("POST", "/page/code"))["code"]

    def html(self, path: str) -> str:
        """The page at that address below its top, such as `/jobs/000042`, whole in itself: it needs no other file."""
        headers = {"Accept": "text/plain", "X-Tpujob-Alone": "1"}
        return self._send("GET", path, root="", headers=headers).body.decode()

    # One request -----------------------------------------------------------------------------------------------------

    def _ask(self, row: Method, *args: Any, **given: Any) -> Any:
        """Call a method whose answer is JSON."""
        answer = self._json(self._reply(row, *args, **given))
        return None if row.signature.return_annotation == "None" else answer

    def _reply(self, row: Method, *args: Any, **given: Any) -> BackendReply:
        """Call a method: each argument travels where its row says."""
        parts: dict[str, dict[str, Any]] = {"path": {}, "query": {}, "body": {}, "header": {}}
        arguments = row.signature.bind(self, *args, **given).arguments
        for name, value in arguments.items():
            place = row.place(name)
            if place == "query" and isinstance(value, dict):
                asked = cast("dict[str, Any]", value)
                parts[place] |= {k: "false" if v is False else v for k, v in asked.items()}
            elif value is not None and name != "self":
                parts[place][name] = value
        path = row.path.format(**{n: _segment(row, n, v) for n, v in parts["path"].items()})
        binary = next((v for v in parts["body"].values() if isinstance(v, bytes)), None)
        body = binary
        if binary is None and any(row.place(a.name) == "body" for a in row.arguments):
            body = json.dumps(parts["body"]).encode()
        headers = {"Accept": "application/json"}
        if row.name in ("log_block", "backend_metrics"):
            headers["Accept"] = "text/plain"
            if not self.url.startswith("unix:"):  # where packing would take longer than sending
                headers["Accept-Encoding"] = "gzip"
        if body is not None and binary is None:
            headers["Content-Type"] = "application/json"
        key = parts["header"].get(HEADER, "")
        if key:
            headers["Idempotency-Key"] = key
        return self._send(
            row.verb,
            path,
            parts["query"],
            body=body,
            headers=headers,
            within=row.within,
            once=row.once or (HEADER in row.signature.parameters and not key),
        )

    def _send(
        self,
        verb: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        within: float = 0.0,
        once: bool = False,
        root: str = "/v1",
    ) -> BackendReply:
        """The reply to one request. Raises what the backend raised; BackendGone, Transient."""
        headers = headers or {"Accept": "application/json"}
        target = f"{root}{path}{_query(query or {})}"
        request = BackendRequest(verb, target, headers, body, within or self._timeout, once)
        try:
            reply = self._transport.request(request)
        except TimeoutError:
            message = f"the backend at {self.url} did not answer in time"
            raise Transient(message, hint=self._see_log("try again")) from None
        except (OSError, http.client.HTTPException) as error:
            message = f"nothing answers at {self.url} ({str(error) or type(error).__name__})"
            raise BackendGone(message, hint=self._cure("start it: tpujob up")) from None
        if reply.status < 300:
            return reply
        try:
            error = _error(json.loads(reply.body)["error"])
        except (ValueError, KeyError, TypeError, RecursionError):
            raise self._stranger(reply) from None
        if isinstance(error, (BadRequest, BadSpec, NotFound)) and not path.startswith("/jobs/"):
            self._compare_versions(error)
        raise error

    def _json(self, reply: BackendReply) -> Any:
        try:
            return json.loads(reply.body)
        except (ValueError, RecursionError):
            raise self._stranger(reply) from None

    def _stranger(self, reply: BackendReply) -> TpujobError:
        """Return what a reply means that a backend never sends."""
        hint = self._cure("restart it: tpujob down, then tpujob up")
        return self._transport.address.in_front(reply.status, hint)

    def _compare_versions(self, error: TpujobError) -> None:
        """If the backend is of another version than this command, add both to a refusal that may be due to it."""
        with contextlib.suppress(TpujobError):
            there = self.version()
            if there != __version__:
                restart = "restart it: tpujob down, then tpujob up"
                cure = restart if self._log else "update the older one (a backend: deploy/up.sh)"
                message = f"The backend at {self.url} is tpujob {there}, this command is {__version__}: {cure}"
                error.hint = f"{error.hint}\n{message}".lstrip()

    def _cure(self, here: str) -> str:
        """`here`: what to do with the local stack, which has a log; a deployed service cannot be started here."""
        return self._see_log(here if self._log else "check the address, and that the service runs")

    def _see_log(self, hint: str) -> str:
        return f"{hint}; its log: {self._log}" if self._log else hint


def _segment(row: Method, name: str, value: str) -> str:
    """A part of a path that stays one part. Raises NotFound, BadRequest."""
    if value and "/" not in value and value not in (".", ".."):
        return quote(value, safe="")
    if name == "job":
        raise NotFound(f"no job is called {value!r}", hint="`tpujob list --all` shows every job.")
    kind = row.path.split("/")[1].removesuffix("s").replace("-", " ")
    raise BadRequest(f"{value[:60]!r} cannot be the name of a {kind}")


def _query(query: Mapping[str, Any]) -> str:
    """Return the query without parameters that are not set. A list is repeated."""
    words = {name: "true" if value is True else value for name, value in query.items()}
    given = {k: v for k, v in words.items() if v is not None and v is not False and v != ""}
    return f"?{urlencode(given, doseq=True)}" if given else ""


def _unpacked(reply: BackendReply) -> bytes:
    packed = reply.headers["Content-Encoding"] == "gzip"
    return zlib.decompress(reply.body, wbits=31) if packed else reply.body


def _error(document: Mapping[str, Any]) -> TpujobError:
    """The exception that the backend raised, of the same class with the same text."""
    kind = getattr(errors, str(document["type"]), None)
    message, hint = str(document["message"]), str(document.get("hint", ""))
    if isinstance(kind, type) and issubclass(kind, errors.Refused):
        return kind(message, cause=str(document.get("cause", "")), hint=hint)
    if isinstance(kind, type) and issubclass(kind, TpujobError):
        return kind(message, hint=hint)
    error = TpujobError(message, hint=hint)
    error.exit_code = int(document.get("exit_code", 1))
    return error
