"""The client of a backend: `JobsApi` over HTTP, as its table of methods says."""

from __future__ import annotations

import contextlib
import json
import threading
import time
import zlib
from functools import wraps
from io import BytesIO
from typing import IO, TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast
from urllib.parse import quote, unquote, urlencode

from tpujob import errors
from tpujob.adapters.http.transport import BackendAddress, BackendTransport
from tpujob.api import METHODS, JobsApi
from tpujob.api.methods import HEADER
from tpujob.domain.paging import PAGE, all_of
from tpujob.errors import BackendGone, BadRequest, BadSpec, NotFound, TpujobError, Transient
from tpujob.lib.http import HttpReply, HttpRequest
from tpujob.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

    from tpujob.adapters.http.transport import Sign
    from tpujob.api import EventView, JobPage, JobView, ListQuery, LogBlock
    from tpujob.api.methods import Method

P = ParamSpec("P")
R = TypeVar("R")

TIMEOUT = 60.0  #: seconds that a short call may take
SLOW = 5.0  #: seconds after which a person wonders whether anything happens
POLL = 30.0  #: seconds; the longest time that the backend lets one poll wait


def _sent(method: Callable[Concatenate[JobsApi, P], R]) -> Callable[Concatenate[RemoteJobs, P], R]:
    """Return the client's method for one of the interface: it sends what the row above that says."""
    row = METHODS[method.__name__]

    @wraps(method)
    def send(self: RemoteJobs, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.call(row, *args, **kwargs)

    return send


class RemoteJobs:
    """`JobsApi` of a backend at `url`: `unix:PATH` on this machine, or `https://HOST`."""

    def __init__(
        self,
        url: str,
        *,
        sign: Sign | None = None,
        uid: int | None = None,
        log: str = "",
        timeout: float = TIMEOUT,
        find_again: Callable[[], str | None] | None = None,
    ) -> None:
        """`sign`, `uid`: see `BackendAddress`. `log`: the log of a backend that this user can start; empty: a deployed
        one. `find_again`: see `BackendTransport`."""
        self._transport = BackendTransport(BackendAddress(url, uid, sign), find_again)
        self._timeout, self._log = timeout, log
        #: called once, from another thread, when an answer takes longer than `SLOW`; long polls do not count
        self.slow: Callable[[], None] | None = None

    @property
    def url(self) -> str:
        return self._transport.address.url

    def close(self) -> None:
        """Close the idle connections. A later call opens another."""
        self._transport.close()

    # Methods of one request that sends and returns JSON ---------------------------------------------------------------

    whoami = _sent(JobsApi.whoami)
    plan = _sent(JobsApi.plan)
    create = _sent(JobsApi.create)
    secrets = _sent(JobsApi.secrets)
    set_secret = _sent(JobsApi.set_secret)
    remove_secret = _sent(JobsApi.remove_secret)
    get = _sent(JobsApi.get)
    happened = _sent(JobsApi.happened)
    capacity = _sent(JobsApi.capacity)
    queue = _sent(JobsApi.queue)
    shares = _sent(JobsApi.shares)
    health = _sent(JobsApi.health)
    metrics = _sent(JobsApi.metrics)
    curves = _sent(JobsApi.curves)
    logs = _sent(JobsApi.logs)
    log_window = _sent(JobsApi.log_window)
    log_search = _sent(JobsApi.log_search)
    diff = _sent(JobsApi.diff)
    patch = _sent(JobsApi.patch)
    cost = _sent(JobsApi.cost)
    ledger = _sent(JobsApi.ledger)
    estimate = _sent(JobsApi.estimate)
    compare = _sent(JobsApi.compare)
    reached = _sent(JobsApi.reached)
    budgets = _sent(JobsApi.budgets)
    cancel = _sent(JobsApi.cancel)
    resume = _sent(JobsApi.resume)
    delete = _sent(JobsApi.delete)
    clean = _sent(JobsApi.clean)
    hold = _sent(JobsApi.hold)
    release = _sent(JobsApi.release)
    top = _sent(JobsApi.top)
    requeue = _sent(JobsApi.requeue)
    annotate = _sent(JobsApi.annotate)
    access = _sent(JobsApi.access)
    outputs = _sent(JobsApi.outputs)
    read_files = _sent(JobsApi.read_files)
    write_files = _sent(JobsApi.write_files)
    hosts = _sent(JobsApi.hosts)
    pin_host = _sent(JobsApi.pin_host)
    clear_host = _sent(JobsApi.clear_host)
    channels = _sent(JobsApi.channels)
    deliveries = _sent(JobsApi.deliveries)
    test_channel = _sent(JobsApi.test_channel)
    set_channel_secret = _sent(JobsApi.set_channel_secret)
    members = _sent(JobsApi.members)
    give_role = _sent(JobsApi.give_role)
    remove_member = _sent(JobsApi.remove_member)
    leaks = _sent(JobsApi.leaks)
    sweep = _sent(JobsApi.sweep)
    fsck = _sent(JobsApi.fsck)

    # Methods with more than one request, or more than JSON -----------------------------------------------------------

    def put_bundle(self, sha256: str, data: bytes | IO[bytes], *, bucket: str) -> str:
        return self.call(METHODS["put_bundle"], sha256, data, bucket=bucket)["path"]

    def list(self, query: ListQuery | None = None) -> JobPage:
        filters: dict[str, Any] = {**(query or {})}
        limit = filters.pop("limit", 0)
        jobs: JobPage = self.call(METHODS["list"], {**filters, "limit": min(limit or PAGE, PAGE)})
        while jobs["next"] and len(jobs["rows"]) != limit:
            page_limit = min(limit - len(jobs["rows"]), PAGE) if limit else PAGE
            filters.update(after=jobs["next"], limit=page_limit)
            page: JobPage = self.call(METHODS["list"], filters)
            jobs = {**jobs, "rows": jobs["rows"] + page["rows"], "next": page["next"]}
        return jobs

    def events(self, job: str, *, after: int = 0, limit: int = 0) -> list[EventView]:
        def page(page_limit: int, last: EventView | None) -> list[EventView]:
            seq = last["seq"] if last else after
            return self.call(METHODS["events"], job, after=seq, limit=page_limit)

        return all_of(page, limit)

    def backend_metrics(self) -> str:
        return _uncompressed_body(self._reply(METHODS["backend_metrics"])).decode()

    def log_block(
        self, job: str, *, host: int | None = None, attempt: int | None = None, cursor: str = ""
    ) -> LogBlock:
        from tpujob.api import LogBlock

        method = METHODS["log_block"]
        reply = self._reply(method, job, host=host, attempt=attempt, cursor=cursor)
        names = ("Cursor", "Done", "More", "Note")
        cursor, done, has_more, note = (reply.headers[f"X-Tpujob-{name}"] or "" for name in names)
        if not done:
            raise BackendGone("what answers is not a tpujob backend", hint="check the address")
        text = _uncompressed_body(reply)
        return LogBlock(text, cursor, done == "1", has_more == "1", unquote(note))

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

    # Requests without a row in the table ------------------------------------------------------------------------------

    def version(self) -> str:
        return self._json(self._send("GET", "/version"))["version"]

    def page_code(self) -> str:
        """Return a code that opens the backend's page in one browser on this machine, within a minute."""
        return self._json(self._send("POST", "/page/code"))["code"]

    def html(self, path: str) -> str:
        """Return the page at a path such as `/jobs/000042`, as HTML that needs no other file."""
        headers = {"Accept": "text/plain", "X-Tpujob-Alone": "1"}
        return self._send("GET", path, root="", headers=headers).body.decode()

    # One request -----------------------------------------------------------------------------------------------------

    def call(self, method: Method, *args: Any, **kwargs: Any) -> Any:
        """Call a method whose answer is JSON. Raises BackendGone for an answer about another job."""
        answer = self._json(self._reply(method, *args, **kwargs))
        if (
            method.signature.return_annotation == "shapes.JobView"
            and "job" in method.signature.parameters
        ):
            job = method.signature.bind(self, *args, **kwargs).arguments["job"]
            _check_job(str(job), answer)
        return None if method.signature.return_annotation == "None" else answer

    def _reply(self, method: Method, *args: Any, **kwargs: Any) -> HttpReply:
        """Call a method, each argument in the part of the request that its row names, and return the reply."""
        parts: dict[str, dict[str, Any]] = {"path": {}, "query": {}, "body": {}, "header": {}}
        arguments = method.signature.bind(self, *args, **kwargs).arguments
        for name, value in arguments.items():
            part = method.place(name)
            if part == "query" and isinstance(value, dict):
                fields = cast("dict[str, Any]", value)
                parts[part] |= {k: "false" if v is False else v for k, v in fields.items()}
            elif value is not None and name != "self":
                parts[part][name] = value
        path = method.path.format(**{n: _segment(method, n, v) for n, v in parts["path"].items()})
        headers = {"Accept": "application/json"}
        body = next((v for v in parts["body"].values() if isinstance(v, (bytes, BytesIO))), None)
        if body is None and any(method.place(a.name) == "body" for a in method.arguments):
            body = json.dumps(parts["body"]).encode()
            headers["Content-Type"] = "application/json"
        if method.name in ("log_block", "backend_metrics"):
            headers["Accept"] = "text/plain"
            if not self.url.startswith("unix:"):  # on one machine compression takes longer
                headers["Accept-Encoding"] = "gzip"
        key = parts["header"].get(HEADER, "")
        if not (key.isascii() and key.isprintable()):
            raise BadRequest(f"the key {key[:60]!r} is not of ASCII letters, digits and signs")
        if key:
            headers["Idempotency-Key"] = key
        return self._send(
            method.verb,
            path,
            parts["query"],
            body=body,
            headers=headers,
            within=method.within,
            once=method.once or (HEADER in method.signature.parameters and not key),
        )

    def _send(
        self,
        verb: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        *,
        body: bytes | IO[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        within: float = 0.0,
        once: bool = False,
        root: str = "/v1",
    ) -> HttpReply:
        """Return the reply to a request. Raises the error that the backend raised; BackendGone, Transient. `within`:
        the seconds for it; of a stream, seconds of silence. `once`: see `HttpRequest`."""
        headers = headers or {"Accept": "application/json"}
        url = self._transport.address.url_of(f"{root}{path}{_query(query or {})}")
        request = HttpRequest(verb, url, headers, body, within or self._timeout, once)
        try:
            with self._watch() if path != "/follow" else contextlib.nullcontext():
                reply = self._transport.request(request)
        except TimeoutError:
            message = f"the backend at {self.url} did not answer in time"
            raise Transient(message, hint=self._with_log("try again")) from None
        except OSError as error:
            message = f"nothing answers at {self.url} ({str(error) or type(error).__name__})"
            raise BackendGone(message, hint=self._hint("start it: tpujob up")) from None
        if reply.status < 300:
            return reply
        try:
            error = _error(json.loads(reply.body)["error"])
        except (ValueError, KeyError, TypeError, RecursionError):
            raise self._not_a_backend(reply) from None
        if isinstance(error, (BadRequest, BadSpec, NotFound)) and not path.startswith(
            ("/jobs/", "/version")
        ):
            self._add_versions(error)
        raise error

    @contextlib.contextmanager
    def _watch(self) -> Generator[None]:
        """Call `slow` once, if the block takes longer than `SLOW`."""
        if self.slow is None:
            yield
            return
        timer = threading.Timer(SLOW, self._note_slowness)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _note_slowness(self) -> None:
        slow, self.slow = self.slow, None
        if slow:
            slow()

    def _json(self, reply: HttpReply) -> Any:
        try:
            return json.loads(reply.body)
        except (ValueError, RecursionError):
            raise self._not_a_backend(reply) from None

    def _not_a_backend(self, reply: HttpReply) -> TpujobError:
        """Return the error for a reply that no backend sends."""
        hint = self._hint("restart it: tpujob down, then tpujob up")
        return self._transport.address.error_of_other_server(reply.status, hint)

    def _add_versions(self, error: TpujobError) -> None:
        """Add both versions to the hint of a refusal if the backend has another version than this command."""
        with contextlib.suppress(TpujobError):
            version = self.version()
            if version != __version__:
                restart = "restart it: tpujob down, then tpujob up"
                cure = restart if self._log else "update the older one (a backend: deploy/up.sh)"
                message = f"The backend at {self.url} is tpujob {version}, this command is {__version__}: {cure}"
                error.hint = f"{error.hint}\n{message}".lstrip()

    def _hint(self, local: str) -> str:
        """Return `local`, a hint about the local stack, and its log; for a deployed backend another hint."""
        deployed = "check the address, and that the service runs"
        return self._with_log(local if self._log else deployed)

    def _with_log(self, hint: str) -> str:
        return f"{hint}; its log: {self._log}" if self._log else hint


def _check_job(job: str, view: JobView) -> None:
    """Raise BackendGone if `view` is not of the job with that id or name."""
    same_id = job.isdecimal() and int(job) == int(view["id"])
    if not same_id and job != view["name"]:
        raise BackendGone(
            f"the answer to a request about job {job} is about {view['id']} ({view['name']})",
            hint="Nothing of this answer is used. Repeat the request.",
        )


def _segment(method: Method, name: str, value: str) -> str:
    """Return the value of an argument as one segment of a path. Raises NotFound, BadRequest."""
    if value and "/" not in value and value not in (".", ".."):
        return quote(value, safe="")
    if name == "job":
        raise NotFound(f"no job is called {value!r}", hint="`tpujob list --all` shows every job.")
    kind = method.path.split("/")[1].removesuffix("s").replace("-", " ")
    raise BadRequest(f"{value[:60]!r} cannot be the name of a {kind}")


def _query(query: Mapping[str, Any]) -> str:
    """Return the query string. Leaves out parameters that are not set; a list repeats its parameter."""
    words = {name: "true" if value is True else value for name, value in query.items()}
    used = {k: v for k, v in words.items() if v is not None and v is not False and v != ""}
    return f"?{urlencode(used, doseq=True)}" if used else ""


def _uncompressed_body(reply: HttpReply) -> bytes:
    compressed = reply.headers["Content-Encoding"] == "gzip"
    return zlib.decompress(reply.body, wbits=31) if compressed else reply.body


def _error(document: Mapping[str, Any]) -> TpujobError:
    """Return the exception that the backend raised: of the same class, with the same text."""
    kind = getattr(errors, str(document["type"]), None)
    message, hint = str(document["message"]), str(document.get("hint", ""))
    if isinstance(kind, type) and issubclass(kind, errors.Refused):
        return kind(message, cause=str(document.get("cause", "")), hint=hint)
    if isinstance(kind, type) and issubclass(kind, TpujobError):
        return kind(message, hint=hint)
    error = TpujobError(message, hint=hint)
    error.exit_code = int(document.get("exit_code", 1))
    return error
