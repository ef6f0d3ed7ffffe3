"""The routes of the HTTP API: one for each row of the table of `JobsApi`, with the parameters of the method's
signature; then version, liveness, and a pass over all jobs.

They are plain functions, as the service is synchronous: each runs in a thread of the pool. A view of the service is
sent as it is; the models only describe it in the OpenAPI document.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from fastapi import Depends, FastAPI, Header, Query, Request
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import ConfigDict, Field, create_model
from typing_extensions import is_typeddict

from tpujob.api import METHODS, Checkout, JobsApi, all_shapes
from tpujob.api.methods import Method
from tpujob.errors import BadRequest
from tpujob.service.authorization import authorize
from tpujob.web import schemas, streams
from tpujob.web.schemas import Caller
from tpujob.web.security.authenticator import TICK_PATH

Endpoint = Callable[..., Any]
MakePass = Callable[..., tuple[int, float | None]]  #: takes `sweep`


def add_methods(app: FastAPI, own: Mapping[str, tuple[Endpoint, Any]]) -> None:
    """Add a route for each method. `own`: the endpoint and response model of methods whose request or answer is more
    than JSON; a model of None: the answer is text."""
    for row in METHODS.values():
        hints = get_type_hints(getattr(JobsApi, row.name), localns={"shapes": all_shapes})
        returns = schemas.Done if hints["return"] is type(None) else hints["return"]
        endpoint, model = own.get(row.name) or (_endpoint(row, hints), returns)
        app.add_api_route(
            f"/v1{row.path}",
            endpoint,
            methods=[row.verb],
            tags=[row.tag],
            name=row.name,
            description=row.doc,
            status_code=row.status,
            response_model=model,
            response_class=JSONResponse if model else PlainTextResponse,
            openapi_extra=schemas.BYTES if row.name == "put_bundle" else None,
        )


def _endpoint(row: Method, hints: Mapping[str, Any]) -> Endpoint:
    """Return an endpoint that calls the method with the request's parameters and sends the result."""
    taken, fields = [_parameter("api", Caller)], dict[str, Any]()
    for argument in row.arguments:
        name, hint = argument.name, hints[argument.name]
        default = row.defaults.get(name, argument.default)
        match row.place(name):
            case "body":
                kind, default = _in_body(hint, default)
                default = ... if default is inspect.Parameter.empty else default
                fields[name] = (kind, Field(default, **_bounds(row, name)))
            case "header":
                taken.append(
                    _parameter(name, Annotated[hint, Header(**_bounds(row, name))], default)
                )
            case "query" if shape := _typed_dict(hint):
                taken.append(
                    _parameter(name, Annotated[Any, Depends(_query_dependency(row, shape))])
                )
            case "query":
                several = get_origin(hint) is Sequence
                kind = Annotated[list[str] if several else hint, Query(**_bounds(row, name))]
                taken.append(_parameter(name, kind, [] if several else default))
            case _:
                taken.append(_parameter(name, hint))
    if fields:
        title = "".join(part.title() for part in row.name.split("_")) + "Request"
        model = create_model(title, __config__=ConfigDict(extra="forbid"), **fields)
        taken.append(_parameter("body", model))

    def endpoint(api: JobsApi, body: Any = None, **arguments: Any) -> JSONResponse:
        sent: dict[str, Any] = body.model_dump() if body else {}
        answer = getattr(api, row.name)(**arguments, **sent)
        return JSONResponse({"done": True} if answer is None else answer, row.status)

    return _with_signature(endpoint, taken)


def _query_dependency(row: Method, shape: Any) -> Endpoint:
    """Return a dependency that reads a shape of optional keys from the query. Unknown names are passed on: the service
    refuses them after it has checked the caller."""
    kinds = get_type_hints(shape)
    taken = [_parameter("request", Request)]
    for name, hint in kinds.items():
        if get_origin(hint) is Literal:
            hint = Literal[(*get_args(hint), "")]
        kind = Annotated[hint | None, Query(**_bounds(row, name))]
        taken.append(_parameter(name, kind, row.defaults.get(name)))

    def together(request: Request, **values: Any) -> dict[str, Any]:
        unknown = dict.fromkeys(request.query_params.keys() - kinds.keys(), "")
        return unknown | {k: v for k, v in values.items() if v not in (None, "")}

    return _with_signature(together, taken)


def _in_body(hint: Any, default: Any) -> tuple[Any, Any]:
    """Return the type of an argument in a JSON body, and its default. The service checks the contents of a mapping."""
    if _typed_dict(hint) is Checkout:
        return schemas.NewCode | None, default
    if get_origin(hint) is Mapping:
        return schemas.JobFile, default
    if _typed_dict(hint):
        return schemas.Shallow, {} if default is None else default
    return (list[str], [*default]) if get_origin(hint) is Sequence else (hint, default)


def _typed_dict(hint: Any) -> Any:
    """Return the TypedDict in `X` or `X | None`; None for another type."""
    return next((kind for kind in (hint, *get_args(hint)) if is_typeddict(kind)), None)


def _bounds(row: Method, name: str) -> dict[str, Any]:
    bound = row.bounds.get(name)
    if not isinstance(bound, tuple):
        return {} if bound is None else {"max_length": bound}
    return {
        side: limit for side, limit in zip(("ge", "le"), bound, strict=True) if limit is not None
    }


def _parameter(name: str, kind: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _with_signature(function: Endpoint, taken: list[inspect.Parameter]) -> Endpoint:
    setattr(function, "__signature__", inspect.Signature(taken))  # noqa: B010
    return function


# Beside `JobsApi` ----------------------------------------------------------------------------------------------------


def add_backend(app: FastAPI, version: str, alive: Callable[[], bool]) -> None:
    def get_version() -> JSONResponse:
        """Return the version of tpujob and of the API."""
        return JSONResponse({"version": version, "api": "v1"})

    async def health() -> JSONResponse:  # answers also while every thread waits for the store
        """Whether the backend works; to anybody. 503: it answers, and its jobs are not looked after. Cloud Run keeps
        `/healthz` for itself."""
        ok = alive()
        return JSONResponse({"ok": ok}, 200 if ok else 503)

    app.get("/v1/version", tags=["backend"], response_model=schemas.Version)(get_version)
    app.get("/health", tags=["backend"], response_model=schemas.Health)(health)
    app.get("/healthz", include_in_schema=False)(health)
    app.get("/metrics", include_in_schema=False)(streams.backend_metrics)


def add_tick(app: FastAPI, make_pass: MakePass | None) -> None:
    def tick(request: Request, sweep: bool = False) -> JSONResponse:
        """One pass over every job that is due, for a backend that only runs while it is called; with `sweep` also over
        what is in the cloud. Safe to repeat, and from several callers at once."""
        authorize(schemas.caller_of(request), "tick")
        if make_pass is None:
            raise BadRequest("this backend runs its control loop by itself")
        ticks, next_in = make_pass(sweep=sweep)
        return JSONResponse({"ticks": ticks, "next_in": next_in})

    app.post(TICK_PATH, tags=["backend"], response_model=schemas.Pass)(tick)
