"""Routes about many jobs, about none yet, and about money."""

import tempfile
from collections.abc import AsyncIterator
from typing import IO, Annotated, cast

from fastapi import Depends, FastAPI, Header, Request
from fastapi.responses import JSONResponse

from tpujob.api import (
    CodeGiven,
    CompareAsked,
    CompareView,
    CostView,
    EstimateSaid,
    EstimateView,
    JobPage,
    JobView,
    LedgerView,
    PlanView,
    SecretView,
    SpendingView,
)
from tpujob.web import schemas
from tpujob.web.routes.caller import Asked, Caller

IN_MEMORY = 1 << 20  #: bytes of a bundle; a larger one is in a file while it is received


def add(app: FastAPI) -> None:
    @app.get("/v1/jobs", tags=["jobs"], response_model=JobPage)
    def list_jobs(api: Caller, asked: Asked) -> JSONResponse:
        """A page of jobs. Filters and order act over all of them; the next page is that `after` the `next` of this."""
        return JSONResponse(api.list(asked))

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


async def _body(request: Request) -> AsyncIterator[IO[bytes]]:
    """In a file, unless it is small."""
    with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY) as file:
        async for piece in request.stream():
            file.write(piece)
        file.seek(0)
        yield cast("IO[bytes]", file)
