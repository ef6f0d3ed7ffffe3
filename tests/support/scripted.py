"""A small `JobsApi` in memory whose answers a test writes, and a real server around it on loopback."""

import hashlib
import socket
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import NoneType, SimpleNamespace
from typing import IO, Any, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

import pytest
import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send
from typing_extensions import is_typeddict

from tests.support.callers import ADA
from tests.support.estimates import compare_view, estimate_view
from tests.support.waiting import LONG
from tpujob.api import (
    METHODS,
    ActionView,
    AttemptView,
    BrokenView,
    BudgetView,
    CallerView,
    ChannelView,
    CodeView,
    CostPartView,
    CostRowView,
    CostView,
    CurvesView,
    DeliveryView,
    DiffSide,
    DiffView,
    EventView,
    FilesAccess,
    HostAccess,
    JobPage,
    JobRow,
    JobsApi,
    JobView,
    LeakView,
    LedgerView,
    ListQuery,
    LogBlock,
    LogLine,
    LogMatches,
    LogPage,
    LogWindow,
    MemberView,
    MetricsView,
    NextView,
    OutputsView,
    PatchView,
    PlanView,
    QueueView,
    ReachedView,
    RefusalView,
    RunView,
    SecretView,
    ShareView,
    SliceView,
    SpendingView,
    SuspectView,
    SweptView,
    WindowLine,
)
from tpujob.errors import BadRequest, IllegalInState, NotFound
from tpujob.lib import unix_sockets
from tpujob.service.job_index.query import is_recent
from tpujob.web.api import create_app
from tpujob.web.security.authenticator import Authenticator, PeerAuthenticator
from tpujob.web.security.connections import Connections, config_of
from tpujob.web.security.limits import Limits, Rate

TOKEN = "a-token-of-the-tests"
AT = "2026-01-02T03:04:05.000Z"


V = TypeVar("V")
HARDWARE = {
    "type": "v4-16",
    "tpu_slices": 1,
    "zone": "us-central2-b",
    "pricing": "spot",
    "usd_per_hour": 7.37,
}
MACHINE = {"chips": 8, "hosts": 2, "topology": "2x2x2", "system_image": "tpu-ubuntu2204-base"}


def example(shape: type[V], values: Mapping[str, Any]) -> V:
    """Return a value of that shape. A field without a value is None where it may be, else empty."""
    hints = get_type_hints(shape)
    defaults = {name: _empty(hints[name]) for name in shape.__annotations__ if name not in values}
    return cast(V, {**defaults, **values})


def _empty(hint: Any) -> Any:
    if NoneType in get_args(hint):
        return None
    if get_origin(hint) is Literal:
        return get_args(hint)[0]
    return example(hint, {}) if is_typeddict(hint) else (get_origin(hint) or hint)()


def slice_view(name: str, **fields: Any) -> SliceView:
    of = {"name": name, "role": "serving", "usd": 0.12, "requested_at": AT, "ready_at": AT}
    return example(SliceView, {**HARDWARE, **of, "hosts": ["127.1.0.1", "127.1.0.2"], **fields})


def attempt_view(number: int, **fields: Any) -> AttemptView:
    of = {
        "number": number,
        "slice": f"tj-000042-{number}",
        "started_at": AT,
        "running_at": AT,
        "redone": 0,
    }
    return example(AttemptView, {**of, **fields})


def budget(name: str, used: int, limit: int | None) -> BudgetView:
    remaining = None if limit is None else limit - used
    return BudgetView(name=name, used=used, left=remaining, limit=limit)


def coming(action: str, text: str, *commands: str, at: str | None = None) -> NextView:
    """Return the next step of a job, with commands that each resume the job."""
    shown = [{"command": command, "does": "resumes it"} for command in commands]
    return cast(NextView, {"action": action, "at": at, "text": text, "commands": shown})


def action(
    name: str, does: str, costs: str = "nothing; the job holds no slice", *asks: str
) -> ActionView:
    """Return an action that a person can take on a job, with the options that it accepts."""
    options = [{"name": ask, "does": f"says its {ask}", "needed": False} for ask in asks]
    return cast(ActionView, {"name": name, "does": does, "costs": costs, "asks": options})


def job_view(job_id: str = "000042", **fields: Any) -> JobView:
    """Return a job that runs at step 480 of 600."""
    goes_on = (
        "it succeeds when every host exits with 0; if the slice is preempted, it requests another "
        "and resumes from checkpoint 400"
    )
    view = {
        **HARDWARE,
        **MACHINE,
        "id": job_id,
        "name": "digits",
        "user": "ada",
        "state": "running",
        "desired": "run",
        "message": "attempt 1 runs on 2 hosts",
        "next": coming("finish", goes_on),
        "usd_spent": 0.12,
        "host0_ip": "127.1.0.1",
        "attempt": 1,
        "phase": "train",
        "step": 480,
        "steps": 600,
        "progress_at": AT,
        "stall_s": 900.0,
        "loss": 0.01234,
        "checkpoint": 400,
        "workdir": f"gs://tpujob-us-central2/jobs/{job_id}",
        "version": 7,
        "created_at": AT,
        "state_since": AT,
        "budgets": [budget("preemptions", 0, 100), budget("failures", 0, 3)],
        "slices": [slice_view(f"tj-{job_id}-1")],
        "attempts": [attempt_view(1)],
        "spec": {"name": "digits"},
        **fields,
    }
    waits = view.get("waiting") if view["state"] == "queued" else ""
    return example(JobView, {"why": waits or view["message"], **view})


FINAL = ("succeeded", "failed", "cancelled")


def job_row(job: JobView) -> JobRow:
    """Return the row of a job in a list."""
    return example(
        JobRow, {"mine": True, **{k: job[k] for k in JobRow.__annotations__ if k in job}}
    )


TRAIN_DIFF = "--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-one\n+two\n"


def _side(job: JobView) -> DiffSide:
    return DiffSide(
        id=job["id"], name=job["name"], state=job["state"], code=job["code"], bundles=job["bundles"]
    )


def event_view(seq: int, state: str, text: str) -> EventView:
    return EventView(seq=seq, kind="created", at=AT, state=state, text=text, by="")


def window_line(host: int, line: int, text: str, cut: int = 0) -> WindowLine:
    return WindowLine(host=host, line=line, at=AT, text=text, cut=cut, marks=[])


def log_line(host: int, text: str) -> LogLine:
    return LogLine(host=host, at=AT, text=text)


def cost_row(key: str, **fields: Any) -> CostRowView:
    """Return the costs of a v4-16 that was ready for half an hour, a third of it for nothing."""
    parts = [
        CostPartView(part="productive", chip_hours=8 / 3, list_micros=2_457_333),
        CostPartView(part="waiting", chip_hours=1.0, list_micros=0),
        CostPartView(part="redone", chip_hours=4 / 3, list_micros=1_228_667),
    ]
    hours = {"chip_hours": 4.0, "goodput": 2 / 3, "waited_chip_hours": 1.0, "parts": parts}
    micros = {"list_micros": 3_686_000, "least_micros": 3_686_000}
    return example(CostRowView, {"key": key, "jobs": 1, "slices": 1, **hours, **micros, **fields})


def cost_view(**fields: Any) -> CostView:
    view = CostView(
        at=AT,
        by="job",
        then="",
        since="",
        until="",
        rows=[cost_row("000042", name="digits")],
        total=cost_row("total"),
        unreadable=[],
    )
    return cast(CostView, view | fields)


def suspect_view(physical: str, **fields: Any) -> SuspectView:
    of = {
        "physical": physical,
        "zone": "us-central2-b",
        "score": 2.0,
        "refused": True,
        "updated_at": AT,
    }
    reasons = ["job 000042, attempt 1: a replay names host 1"]
    return example(SuspectView, {**of, "reasons": reasons, **fields})


def leak_view(name: str, **fields: Any) -> LeakView:
    detail = "queued resource ACTIVE, node READY"
    of = {
        "name": name,
        "zone": "us-central2-b",
        "job": "000042",
        "age_s": 7200.0,
        "usd_per_hour": 7.37,
    }
    return example(LeakView, {**of, "detail": detail, **fields})


def delivery_view() -> DeliveryView:
    view = {
        "id": "msg_1",
        "channel": "lab",
        "at": AT,
        "kind": "failed",
        "state": "failed",
        "headline": "digits (000042) failed: CRASH",
        "lines": ["digits (000042) of ada: it crashed"],
        "job": "000042",
        "count": 1,
        "tries": 1,
        "tried_at": AT,
        "error": "HTTP 404: no_service",
    }
    return example(DeliveryView, view)


def channel_view() -> ChannelView:
    of = {"name": "lab", "kind": "slack", "to": "the webhook in SLACK_LAB", "state": "failing"}
    return example(ChannelView, {**of, "rules": [{"users": [], "on": []}], "last": delivery_view()})


class ScriptedJobs:
    """Answers from what the test put in; remembers every call. `script` is a story: the views that `get` gives, the
    next one at each look of a follower."""

    def __init__(self, *jobs: JobView) -> None:
        self.jobs = {job["id"]: job for job in jobs}
        self.script: list[JobView] = []
        self.turn = 0
        self.happened: dict[str, list[EventView]] = {}
        self.pages: list[LogPage] = []
        self.window = example(LogWindow, {"attempt": 1, "began_at": AT, "done": True})
        self.matches = example(LogMatches, {"first": 1, "complete": True})
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.created: dict[str, JobView] = {}
        self.raises: Exception | None = None
        self.troubles: list[dict[str, str]] = []
        self.changed = threading.Event()
        self.changes = 0
        self.polling = threading.Semaphore(0)  #: released once for each poll that waits
        self.host_access: HostAccess | None = None
        self.suspects: dict[str, SuspectView] = {}
        self.lab: dict[str, MemberView] = {}
        self.warnings: list[str] = []  #: of each change of the list of members
        self.swept = SweptView(deleted=[], kept=[], failed=[], keys=[], unclear=[], unlisted={})
        self.broken: list[BrokenView] = []
        self.costs: CostView = cost_view()
        self.reached_parts: list[ReachedView] = []
        self.spending: list[SpendingView] = []
        self.ledger_view = LedgerView(at=0, owner="local", jobs=[])
        self.kept: dict[str, str] = {}  #: secrets
        self.of_job = MetricsView(charts=[], attempts=[], left_out=0, unread=[], why="")
        self.warnings: list[str] = []  #: of every plan
        self.refused: list[RefusalView] = []  #: the same
        self.saved = example(OutputsView, {"complete": True})
        self.files = example(FilesAccess, {"id": "000042", "name": "digits"})
        self.waiting = QueueView(rows=[], waiting=0)
        self.shared: list[ShareView] = []
        self.channel_views: list[ChannelView] = [channel_view()]
        self.messages: list[DeliveryView] = [delivery_view()]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return a method of the table, which records the call, then answers by `_on_NAME` or by the test's answer."""
        if name not in METHODS:
            raise AttributeError(name)
        answer = getattr(type(self), f"_on_{name}", None) or ANSWERS.get(name)
        if answer is None:
            raise AttributeError(f"{name} is not scripted")

        def call(*args: Any, **kwargs: Any) -> Any:
            bound = METHODS[name].signature.bind(self, *args, **kwargs)
            bound.apply_defaults()
            arguments = {n: v for n, v in bound.arguments.items() if n != "self"}
            recorded = (arguments["query"] or {}) if name == "list" else arguments
            self.calls.append((name, recorded))
            if self.raises is not None:
                raise self.raises
            return answer(self, **arguments)

        return call

    def _on_plan(self, spec: Mapping[str, Any]) -> PlanView:
        of = {
            "name": spec.get("name", "?"),
            "generation": "v4",
            "zones": ["us-central2-b"],
            "spec": dict(spec),
        }
        hardware = {"hbm_gib": 256, "peak_bf16_tflops": 2200.0, "command": "echo hello"}
        bucket = {"bucket": "gs://tpujob-us-central2"}
        doubts = {"refused": list(self.refused), "warnings": list(self.warnings)}
        return example(PlanView, {**HARDWARE, **MACHINE, **of, **hardware, **bucket, **doubts})

    def _on_put_bundle(self, sha256: str, data: bytes | IO[bytes], *, bucket: str) -> str:
        data = data if isinstance(data, bytes) else data.read()
        if hashlib.sha256(data).hexdigest() != sha256:
            raise BadRequest("another hash")
        return f"{bucket}/bundles/{sha256}.tar.gz"

    def _on_create(self, spec: Mapping[str, Any], *, idempotency_key: str, **_: Any) -> JobView:
        if idempotency_key not in self.created or not idempotency_key:
            job_id = f"{len(self.jobs) + 1:06d}"
            new = job_view(job_id, name=spec["name"], user=ADA.name, state="queued", attempt=0)
            self.jobs[job_id] = self.created[idempotency_key] = new
        return self.created[idempotency_key]

    def _on_set_secret(self, name: str, value: str) -> None:
        self.kept[name] = value

    def _on_remove_secret(self, name: str) -> None:
        if self.kept.pop(name, None) is None:
            raise NotFound(f"no secret {name} is set")

    def _on_list(self, query: ListQuery | None) -> JobPage:
        """Newest first; every job that has ended did so long ago. The rest of what a list is asked is the board's."""
        query = query or {}
        recent, user = is_recent(query), query.get("user", "")
        whose = [j for j in self.jobs.values() if user in ("", j["user"])]
        matching = [j for j in whose if not (recent and j["state"] in FINAL)]
        begin = int(query.get("after") or 0)
        end = begin + query["limit"] if query.get("limit") else len(matching)
        return JobPage(
            unreadable=[],
            rows=[job_row(j) for j in matching[begin:end]],
            next=str(end) if end < len(matching) else "",
            first=begin + 1,
            matching=len(matching),
            total=len(self.jobs),
            states=dict(Counter(j["state"] for j in whose)),
            revision=self.changes,
        )

    def _on_get(self, job: str) -> JobView:
        if self.script and job in self._refs(self.script[0]):
            view = cast(JobView, self.script[0] | {"version": self.turn})
            self.jobs[view["id"]] = view
        return self._find(job)

    def _on_events(self, job: str, *, after: int, limit: int) -> list[EventView]:
        events = self.happened.get(self._find(job)["id"], [])
        return [e for e in events if e["seq"] > after][: limit or None]

    def _on_metrics(self, job: str, **_: Any) -> MetricsView:
        self._find(job)
        return self.of_job

    def _on_diff(self, a: str, b: str) -> DiffView:
        return DiffView(
            a=_side(self._find(a)),
            b=_side(self._find(b)),
            spec=[{"key": "run.command", "a": "true", "b": "false"}],
            outcome=[],
            files=[{"path": "train.py", "change": "changed", "diff": TRAIN_DIFF}],
            files_unknown="",
            cut=False,
        )

    def _on_logs(self, job: str, *, cursor: str, **_: Any) -> LogPage:
        number = int(cursor or 0)
        if number >= len(self.pages):
            return LogPage(lines=[], cursor=cursor, done=True)
        page = self.pages[number]
        return LogPage(lines=page["lines"], cursor=str(number + 1), done=page["done"])

    def _on_log_block(self, job: str, *, cursor: str, **_: Any) -> LogBlock:
        page = self._on_logs(job, cursor=cursor)
        lines = [f"{x['host']} 1767323045.000 {x['text']}\n" for x in page["lines"]]
        data, done = "".join(lines).encode(), page["done"]
        return LogBlock(data, page["cursor"], done=done, more=bool(lines) and not done)

    def _on_patch(self, job: str) -> PatchView:
        self._find(job)
        code = CodeView(commit="c0ffee", branch="main", dirty=True, diff="gs://b/x.diff")
        return PatchView(code=code, text=TRAIN_DIFF)

    def _on_cancel(self, job: str, *, release: bool) -> JobView:
        return self._steer(job, "release" if release else "cancel")

    def _on_resume(self, job: str, **_: Any) -> JobView:
        if self._find(job)["state"] == "succeeded":
            raise IllegalInState(f"job {job} has succeeded", hint="`tpujob create` makes a new one")
        return self._steer(job, "run")

    def _on_access(self, job: str, **_: Any) -> HostAccess:
        self._find(job)
        if self.host_access is None:
            raise IllegalInState(f"job {job} has no host that can be reached")
        return self.host_access

    def _on_pin_host(self, physical: str, verdict: str) -> SuspectView:
        if verdict not in ("", "good", "bad"):
            raise BadRequest(f"never as {verdict!r}")
        suspect = self.suspects.get(physical) or suspect_view(physical, score=0.0, reasons=[])
        pinned = {"pinned": verdict, "refused": verdict == "bad"}
        self.suspects[physical] = cast(SuspectView, suspect | pinned)
        return self.suspects[physical]

    def _on_clear_host(self, physical: str) -> None:
        if self.suspects.pop(physical, None) is None:
            raise NotFound(f"machine {physical!r} is neither suspected nor pinned")

    def _on_give_role(self, name: str, role: str) -> MemberView:
        self.lab[name] = MemberView(name=name, role=role, id="", warnings=self.warnings)
        return self.lab[name]

    def _on_remove_member(self, name: str, *, to: str = "", secrets: bool = False) -> MemberView:
        if self.lab.pop(name, None) is None:
            raise NotFound(f"{name} is not a member")
        return MemberView(name=name, role="", id="", jobs=0, active=0, secrets=0)

    def follow(self, job: str | None = None, *, timeout: float = 30.0) -> Iterator[None]:
        if job is not None:
            self._find(job)
        while True:
            if len(self.script) > 1:
                self.script.pop(0)
                self.turn += 1
            yield
            self.polling.release()
            self.changed.wait(timeout)
            self.changed.clear()

    def change(self, job: JobView) -> None:
        """Replace the job's view, and notify its followers."""
        self.jobs[job["id"]] = cast(JobView, job | {"version": job["version"] + 1})
        self.changes += 1
        self.changed.set()

    def named(self, name: str) -> list[dict[str, Any]]:
        """Return the arguments of every call of that name."""
        return [arguments for called, arguments in self.calls if called == name]

    def _steer(self, job: str, wish: str) -> JobView:
        steered = cast(JobView, self._find(job) | {"desired": wish})
        self.jobs[steered["id"]] = steered
        return steered

    def _find(self, job: str) -> JobView:
        named = [j for j in self.jobs.values() if job in self._refs(j)]
        if len(named) == 1:
            return named[0]
        if named:
            raise BadRequest(f"{len(named)} jobs are called {job!r}", hint="Use the id.")
        raise NotFound(f"no job is called {job!r}", hint="`tpujob list --all` shows every job.")

    def _refs(self, job: JobView) -> tuple[str, str, str]:
        return job["id"], job["id"].lstrip("0"), job["name"]


#: what the other methods answer: what the test put in
ANSWERS: dict[str, Callable[..., Any]] = {
    "whoami": lambda _: CallerView(id=ADA.id, name=ADA.name, role=str(ADA.role)),
    #: the part that commands read
    "health": lambda it: {
        "ok": not it.troubles,
        "troubles": it.troubles,
        "loop": {"passed_at": AT},
    },
    "secrets": lambda it: [SecretView(name=name, set_at=AT) for name in sorted(it.kept)],
    "estimate": lambda _, spec, inputs: estimate_view(spec, inputs, emulated=True),
    "compare": lambda _, spec, inputs, options: compare_view(spec, inputs, options, emulated=True),
    "log_window": lambda it, **_: it.window,
    "log_search": lambda it, **_: it.matches,
    "reached": lambda it: it.reached_parts,
    "curves": lambda it, jobs: example(
        CurvesView, {"runs": [example(RunView, {"id": it._find(job)["id"]}) for job in jobs]}
    ),
    "cost": lambda it, **_: it.costs,
    "ledger": lambda it: it.ledger_view,
    "budgets": lambda it: it.spending,
    "outputs": lambda it, job: it.saved,
    "read_files": lambda it, job: it.files,
    "write_files": lambda it, job: it.files,
    "delete": lambda it, job: it._steer(job, "release"),
    "clean": lambda it, job, checkpoints: it._steer(job, "clean"),
    "hold": lambda it, job: it._find(job),
    "release": lambda it, job: it._find(job),
    "top": lambda it, job: it._find(job),
    "requeue": lambda it, job: it._find(job),
    "annotate": lambda it, job, **_: it._find(job),
    "queue": lambda it, **_: it.waiting,
    "shares": lambda it: it.shared,
    "hosts": lambda it: [*it.suspects.values()],
    "channels": lambda it: it.channel_views,
    "deliveries": lambda it, **_: it.messages,
    "test_channel": lambda it, channel: it.messages[0],
    "set_channel_secret": lambda it, name, value: None,
    "members": lambda it: [*it.lab.values()],
    "leaks": lambda it: it.swept,
    "sweep": lambda it, dry_run, slice="": it.swept,
    "fsck": lambda it: it.broken,
}


class Front:
    """A backend that passes every call on to the scripted backend of the running test."""

    def __init__(self, now: ScriptedJobs | None = None) -> None:
        self.now = now or ScriptedJobs()
        self.stopping = False
        self.requests = 0  #: number of requests in progress

    def settle(self) -> None:
        """Wait until nothing is asked any more: a poll that outlived its test would ask the next one's backend."""
        self.stopping = True
        while self.requests:
            self.now.changed.set()
            threading.Event().wait(0.01)
        self.stopping = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.now, name)


#: several tests share a server, and no test is to wait for what another has asked
LIMITLESS = Limits(Rate(1e6, 10**6), Rate(1e6, 10**6), at_once=1000)


def scripted_app(api: object, door: Authenticator | None = None, **options: Any) -> FastAPI:
    """Return the backend's app around it; this process's user is Ada, unless another authenticator is given."""
    door = door or PeerAuthenticator(ADA)
    options.setdefault("limits", LIMITLESS)
    return create_app(lambda _: cast(JobsApi, api), door, **options)


@contextmanager
def served(front: Front) -> Iterator[str]:
    """Serve the backend's app around it on a unix socket; yield its URL."""
    app = scripted_app(
        front,
        changes=SimpleNamespace(now=lambda: front.now.changes),
        stopping=lambda: front.stopping,
        version="0.0.test",
    )

    async def counted(scope: Scope, receive: Receive, send: Send) -> None:
        front.requests += 1
        try:
            await app(scope, receive, send)
        finally:
            front.requests -= 1

    with on_socket(counted) as url:
        try:
            yield url
        finally:
            front.stopping = True


@contextmanager
def unix_socket() -> Iterator[tuple[socket.socket, str]]:
    """Yield a listening socket in a new folder, and its URL."""
    with tempfile.TemporaryDirectory(prefix="tpujob-test-") as folder:
        path = Path(folder, "backend.sock")
        with unix_sockets.listen(path) as place:
            yield place, f"unix:{path}"


@contextmanager
def on_socket(app: ASGIApp) -> Iterator[str]:
    """Serve any app as the backend's, on a unix socket; yield its URL."""
    with unix_socket() as (place, _), listening(app, place=place) as url:
        yield url


@contextmanager
def listening(
    app: ASGIApp, connections: Connections | None = None, place: socket.socket | None = None
) -> Iterator[str]:
    """Serve any app as the backend's, on that socket or a free port; yield its URL."""
    place = place or socket.create_server(("127.0.0.1", 0))
    config = config_of(app, connections or Connections(most=512))
    config.timeout_graceful_shutdown = 1
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([place],), name="served", daemon=True)
    thread.start()
    try:
        address = place.getsockname()
        yield f"unix:{address}" if isinstance(address, str) else f"http://127.0.0.1:{address[1]}"
    finally:
        server.should_exit = True
        thread.join(LONG)
        place.close()


@pytest.fixture(scope="session")
def front() -> Iterator[tuple[Front, str]]:
    front = Front()
    with served(front) as url:
        yield front, url


@pytest.fixture
def api(front: tuple[Front, str]) -> Iterator[ScriptedJobs]:
    api = ScriptedJobs(job_view())
    front[0].now = api
    yield api
    front[0].settle()


@pytest.fixture
def url(front: tuple[Front, str], api: ScriptedJobs) -> str:
    return front[1]
