"""`JobsApi` as JSON over HTTP under `/v1`. One function for each route; no rule of a job is here.

Endpoints are plain functions, as the service is synchronous: each runs in a thread of the pool. A view of the service
is sent as it is; the models only describe it on the OpenAPI page at `/docs`.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable
from functools import cache
from typing import IO, Annotated, Any, cast

from fastapi import Depends, FastAPI, Header, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse
from fastapi.routing import APIRoute

from tpujob import __version__
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
    JobsApi,
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
from tpujob.domain import access
from tpujob.domain.access import Principal
from tpujob.errors import BadRequest
from tpujob.web import docs, errors, schemas
from tpujob.web.door import Door
from tpujob.web.guard import Guard
from tpujob.web.limits import Limiter, Limits
from tpujob.web.scheduler import TICK_PATH

IN_MEMORY = 1 << 20  #: bytes of a bundle; a larger one is in a file while it is received
MAX_WAIT = 30.0  #: seconds of one long poll, after which the thread of a lost client is free again
LOOK_EVERY = 1.0  #: a long poll checks this often, in seconds, whether the backend is being stopped
AGAIN_IN = 2.0  #: seconds that a poll beyond the limit is asked to wait before the next


def create_app(
    jobs: Callable[[Principal], JobsApi],
    door: Door,
    *,
    watch: Callable[[], int] | None = None,
    stopping: Callable[[], bool] = lambda: False,
    version: str = __version__,
    hosts: Iterable[str] = (),
    make_pass: Callable[[bool], tuple[int, float | None]] | None = None,
    limits: Limits | None = None,
) -> FastAPI:
    """The backend's app: `jobs` is what a caller may ask, once `door` has recognised them. `watch` gives the number of
    the newest change of any job, so that a client that follows all jobs misses none between two polls. Once
    `stopping()` is true, every long poll ends within `LOOK_EVERY`. The backend answers under the names in `hosts` and
    the loopback ones. `make_pass` runs one tick of every job that is due. `limits`: left
    out, those of every backend."""

    def routed(app: FastAPI) -> FastAPI:
        _jobs(app)
        _one_job(app)
        _upkeep(app)
        _following(app, watch, stopping)
        _ticking(app, make_pass)
        _itself(app, version)
        return app

    app = _app(version)
    app.router.route_class = _Undescribed
    app.state.jobs = jobs
    app.add_middleware(Limiter, limits=limits)
    app.add_middleware(Guard, door=door, hosts=tuple(hosts))
    errors.add_handlers(app)
    app.openapi = cache(lambda: routed(_app(version)).openapi())
    return routed(app)


def _app(version: str) -> FastAPI:
    return FastAPI(
        title="tpujob",
        version=version,
        description="Training jobs on Cloud TPUs, kept alive until they are done.",
        redoc_url=None,
        docs_url=None,  # its page would load scripts from another server
        responses={"default": {"model": schemas.ErrorReply, "description": "An error"}},
    )


class _Undescribed(APIRoute):
    """Without the models of its answers. Only the page at `/docs` needs them, and making them takes a fifth of a
    backend's start."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{**options, "response_model": None, "responses": None})


def _itself(app: FastAPI, version: str) -> None:
    @app.get("/v1/version", tags=["backend"], response_model=schemas.Version)
    def get_version() -> JSONResponse:
        """Which tpujob this is."""
        return JSONResponse({"version": version, "api": "v1"})

    @app.get("/v1/whoami", tags=["backend"], response_model=CallerView)
    def whoami(api: Caller) -> JSONResponse:
        """Who is asking, as the backend sees it."""
        return JSONResponse(api.whoami())

    @app.get("/health", tags=["backend"], response_model=schemas.Health)
    @app.get("/healthz", include_in_schema=False, response_model=schemas.Health)
    def health() -> JSONResponse:
        """Whether the backend answers; to anybody. Cloud Run keeps `/healthz` for itself."""
        return JSONResponse({"ok": True})

    @app.get("/docs", include_in_schema=False)
    def describe() -> HTMLResponse:
        """Every route and every shape, as a page."""
        policy = {"content-security-policy": docs.POLICY}
        return HTMLResponse(docs.page(app.openapi()), headers=policy)

    _ = (get_version, whoami, health, describe)


async def _caller(request: Request) -> JobsApi:
    """What whoever asks may ask of jobs; the door has put the principal there."""
    return request.app.state.jobs(request.scope["state"]["principal"])


Caller = Annotated[JobsApi, Depends(_caller)]
JobRef = Annotated[str, "an id (`000042` or `42`) or a unique name"]
Number = Annotated[int | None, Query(ge=0, le=1_000_000)]


async def _body(request: Request) -> AsyncIterator[IO[bytes]]:
    """In a file, unless it is small."""
    with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY) as file:
        async for piece in request.stream():
            file.write(piece)
        file.seek(0)
        yield cast("IO[bytes]", file)


def _jobs(app: FastAPI) -> None:
    @app.get("/v1/jobs", tags=["jobs"], response_model=list[JobView])
    def list_jobs(api: Caller, user: str = "", all: bool = False) -> JSONResponse:
        """Jobs, newest first, final ones only with `all`; without `attempts`, `slices`, `budgets` and `spec`."""
        return JSONResponse(api.list(user=user, all=all))

    @app.post("/v1/jobs", tags=["jobs"], status_code=201, response_model=JobView)
    def create_job(
        api: Caller,
        new: schemas.NewJob,
        idempotency_key: Annotated[str, Header(max_length=200)] = "",
    ) -> JSONResponse:
        """Submit a job. The same `Idempotency-Key` gives back the job of the first call."""
        job = api.create(
            new.spec,
            bundles=new.bundles,
            code=cast(CodeGiven, new.code.model_dump()) if new.code else None,
            idempotency_key=idempotency_key,
        )
        return JSONResponse(job, status_code=201)

    @app.get("/v1/cost", tags=["jobs"], response_model=CostView)
    def cost(api: Caller, by: str = "job", user: str = "", job: str = "") -> JSONResponse:
        """Chip-hours, money in micro-dollars and goodput, in rows by job, user, day, type or zone."""
        return JSONResponse(api.cost(by=by, user=user, job=job))

    @app.get("/v1/ledger", tags=["jobs"], response_model=LedgerView)
    def ledger(api: Caller) -> JSONResponse:
        """Every slice that was ever billed: when, and at which rate in micro-dollars."""
        return JSONResponse(api.ledger())

    @app.get("/v1/budgets", tags=["jobs"], response_model=list[SpendingView])
    def budgets(api: Caller) -> JSONResponse:
        """What is left of the budgets of the project, of users and of jobs that go on."""
        return JSONResponse(api.budgets())

    @app.post("/v1/plan", tags=["jobs"], response_model=PlanView)
    def plan(api: Caller, new: schemas.NewPlan) -> JSONResponse:
        """What a job would get and cost; nothing is stored."""
        return JSONResponse(api.plan(new.spec))

    @app.post("/v1/estimate", tags=["jobs"], response_model=EstimateView)
    def estimate(api: Caller, new: schemas.NewEstimate) -> JSONResponse:
        """What a job will cost, line by line, in micro-dollars; nothing is stored."""
        return JSONResponse(api.estimate(new.spec, cast(EstimateSaid, new.said)))

    @app.post("/v1/compare", tags=["jobs"], response_model=CompareView)
    def compare(api: Caller, new: schemas.NewComparison) -> JSONResponse:
        """Hours and dollars for the job's work on several types and in several zones; nothing is stored."""
        said, asked = cast(EstimateSaid, new.said), cast(CompareAsked, new.asked)
        return JSONResponse(api.compare(new.spec, said, asked))

    @app.get("/v1/secrets", tags=["jobs"], response_model=list[SecretView])
    def secrets(api: Caller) -> JSONResponse:
        """The caller's own, without their values."""
        return JSONResponse(api.secrets())

    @app.put("/v1/secrets/{name}", tags=["jobs"], response_model=schemas.Done)
    def set_secret(api: Caller, name: str, new: schemas.NewSecret) -> JSONResponse:
        """Keep a value for the caller's jobs that name it."""
        api.set_secret(name, new.value)
        return JSONResponse({"done": True})

    @app.delete("/v1/secrets/{name}", tags=["jobs"], response_model=schemas.Done)
    def remove_secret(api: Caller, name: str) -> JSONResponse:
        """Forget it."""
        api.remove_secret(name)
        return JSONResponse({"done": True})

    @app.put("/v1/bundles/{sha256}", tags=["jobs"], response_model=schemas.StoredBundle)
    def put_bundle(
        api: Caller, sha256: str, bucket: str, data: Annotated[IO[bytes], Depends(_body)]
    ) -> JSONResponse:
        """Store an archive by its hash; safe to repeat."""
        return JSONResponse({"path": api.put_bundle(sha256, data, bucket=bucket)})

    _ = (list_jobs, create_job, budgets, cost, ledger, plan, estimate, compare, put_bundle)
    _ = (secrets, set_secret, remove_secret)


def _one_job(app: FastAPI) -> None:
    @app.get("/v1/jobs/{job}", tags=["one job"], response_model=JobView)
    def get_job(api: Caller, job: JobRef) -> JSONResponse:
        """Everything about one job."""
        return JSONResponse(api.get(job))

    @app.get("/v1/jobs/{job}/events", tags=["one job"], response_model=list[EventView])
    def get_events(
        api: Caller, job: JobRef, after: Annotated[int, Query(ge=0)] = 0
    ) -> JSONResponse:
        """What happened to it, oldest first, with `seq > after`."""
        return JSONResponse(api.events(job, after=after))

    @app.get("/v1/jobs/{job}/logs", tags=["one job"], response_model=LogPage)
    def get_logs(
        api: Caller,
        job: JobRef,
        host: Number = None,
        attempt: Number = None,
        cursor: Annotated[str, Query(max_length=32_768)] = "",
        tail: Number = None,
    ) -> JSONResponse:
        """A page of its output; `cursor` leads to the next."""
        page = api.logs(job, host=host, attempt=attempt, cursor=cursor, tail=tail)
        return JSONResponse(page)

    @app.get("/v1/diff", tags=["one job"], response_model=DiffView)
    def diff(api: Caller, a: JobRef, b: JobRef) -> JSONResponse:
        """What differs between two jobs: spec, outcome, and the files of their bundles."""
        return JSONResponse(api.diff(a, b))

    @app.post("/v1/jobs/{job}/access", tags=["one job"], response_model=HostAccess)
    def access_(api: Caller, job: JobRef, asked: schemas.AccessAsked) -> JSONResponse:
        """Let a key in at one of its hosts for some minutes, and say how the host is reached."""
        return JSONResponse(api.access(job, host=asked.host, key=asked.key))

    @app.post("/v1/jobs/{job}/cancel", tags=["one job"], response_model=JobView)
    def cancel(api: Caller, job: JobRef, release: bool = False) -> JSONResponse:
        """Stop the program and keep the slice for a while, or give it back with `release`."""
        return JSONResponse(api.cancel(job, release=release))

    @app.post("/v1/jobs/{job}/resume", tags=["one job"], response_model=JobView)
    def resume(api: Caller, job: JobRef, budget: float | None = None) -> JSONResponse:
        """Go on from the last checkpoint; with `budget`, it may cost that many US dollars in all."""
        return JSONResponse(api.resume(job, budget=budget))

    @app.post("/v1/jobs/{job}/delete", tags=["one job"], response_model=JobView)
    def delete(api: Caller, job: JobRef) -> JSONResponse:
        """Stop it and give the slice back; record and logs stay."""
        return JSONResponse(api.delete(job))

    @app.post("/v1/jobs/{job}/clean", tags=["one job"], response_model=JobView)
    def clean(api: Caller, job: JobRef, checkpoints: bool = False) -> JSONResponse:
        """As delete; then remove logs, bundle and record, and with `checkpoints` those too."""
        return JSONResponse(api.clean(job, checkpoints=checkpoints))

    _ = (get_job, get_events, get_logs, diff, access_, cancel, resume, delete, clean)


def _upkeep(app: FastAPI) -> None:
    @app.get("/v1/hosts", tags=["upkeep"], response_model=list[SuspectView])
    def hosts(api: Caller) -> JSONResponse:
        """Machines that are suspected of wrong numbers, or pinned, the worst first."""
        return JSONResponse(api.hosts())

    @app.post("/v1/hosts/pin", tags=["upkeep"], response_model=SuspectView)
    def pin_host(api: Caller, pin: schemas.Pin) -> JSONResponse:
        """Call a machine good or bad whatever its score."""
        return JSONResponse(api.pin_host(pin.physical, pin.verdict))

    @app.post("/v1/hosts/clear", tags=["upkeep"], response_model=schemas.Done)
    def clear_host(api: Caller, machine: schemas.Machine) -> JSONResponse:
        """Forget a machine's score, pin and reasons."""
        api.clear_host(machine.physical)
        return JSONResponse({"done": True})

    @app.get("/v1/members", tags=["upkeep"], response_model=list[MemberView])
    def members(api: Caller) -> JSONResponse:
        """Who may use this backend."""
        return JSONResponse(api.members())

    @app.put("/v1/members", tags=["upkeep"], response_model=MemberView)
    def give_role(api: Caller, given: schemas.Given) -> JSONResponse:
        """Give somebody a role, from their next request on."""
        return JSONResponse(api.give_role(given.name, given.role))

    @app.delete("/v1/members", tags=["upkeep"], response_model=schemas.Done)
    def remove_member(api: Caller, name: str) -> JSONResponse:
        """Refuse somebody from now on; their jobs go on."""
        api.remove_member(name)
        return JSONResponse({"done": True})

    @app.get("/v1/leaks", tags=["upkeep"], response_model=SweptView)
    def leaks(api: Caller) -> JSONResponse:
        """What a sweep would do now: the slices with our label that no job claims."""
        return JSONResponse(api.leaks())

    @app.post("/v1/sweep", tags=["upkeep"], response_model=SweptView)
    def sweep(api: Caller, dry_run: bool = False) -> JSONResponse:
        """Delete the slices that no job claims, and the keys of slices that are gone."""
        return JSONResponse(api.sweep(dry_run=dry_run))

    @app.get("/v1/fsck", tags=["upkeep"], response_model=list[BrokenView])
    def fsck(api: Caller) -> JSONResponse:
        """Every rule that does not hold of a record or its history."""
        return JSONResponse(api.fsck())

    _ = (hosts, pin_host, clear_host, members, give_role, remove_member, leaks, sweep, fsck)


def _following(app: FastAPI, watch: Callable[[], int] | None, stopping: Callable[[], bool]) -> None:
    def current(api: JobsApi, job: str | None) -> str:
        if job is not None:
            return str(api.get(job)["version"])
        return str(watch()) if watch else "-"

    def wait(api: JobsApi, job: str | None, cursor: str, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        for _ in api.follow(job, timeout=min(LOOK_EVERY, timeout)):
            if current(api, job) != cursor or stopping() or time.monotonic() >= deadline:
                return

    @app.get("/v1/follow", tags=["follow"], response_model=schemas.Hint)
    def follow(
        api: Caller,
        request: Request,
        job: str | None = None,
        cursor: Annotated[str, Query(max_length=64)] = "",
        timeout: Annotated[float, Query(ge=0, le=MAX_WAIT)] = MAX_WAIT,
    ) -> JSONResponse:
        """Answers when that job, or any, may have changed since `cursor` was given out, at the latest after `timeout`
        seconds; at once without a cursor."""
        _ = api.follow  # refused to whoever may not follow, also when nothing is waited for
        again_in = 0.0
        if cursor:
            if request.scope["state"]["seat"]:
                wait(api, job, cursor, timeout)
            elif current(api, job) == cursor:
                again_in = min(AGAIN_IN, timeout)
        return JSONResponse({"cursor": current(api, job), "again_in": again_in})

    _ = follow


def _ticking(app: FastAPI, make_pass: Callable[[bool], tuple[int, float | None]] | None) -> None:
    @app.post(TICK_PATH, tags=["backend"], response_model=schemas.Pass)
    def tick(request: Request, sweep: bool = False) -> JSONResponse:
        """One pass over every job that is due, for a backend that only runs while it is called; with `sweep` also over
        what is in the cloud. Safe to repeat, and from several callers at once."""
        access.check(request.scope["state"]["principal"], "tick")
        if make_pass is None:
            raise BadRequest("this backend makes its passes by itself")
        ticks, next_in = make_pass(sweep)
        return JSONResponse({"ticks": ticks, "next_in": next_in})

    _ = tick
