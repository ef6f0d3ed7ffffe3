"""Models of what the HTTP API takes and sends beside the shapes of `api/`, which pydantic reads as they are."""

from collections.abc import Iterable
from typing import Annotated, Any, cast

from fastapi import Depends, Request
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from tpujob.api import JobsApi
from tpujob.domain.access import Principal

JobRef = Annotated[str, "an id (`000042` or `42`) or a unique name"]


def caller_of(request: Request) -> Principal:
    """Return who sends the request, as the authenticator has set it."""
    return request.scope["state"]["principal"]


async def _api(request: Request) -> JobsApi:
    """Return the API as the request's caller may use it."""
    return request.app.state.jobs(caller_of(request))


Caller = Annotated[JobsApi, Depends(_api)]


#: how deep brackets may lie in each other; a job file needs six
DEEPEST = 50


def _shallow(value: dict[str, Any]) -> dict[str, Any]:
    """Return the value. Raise ValueError if its nesting is so deep that code which walks it would hit
    RecursionError."""
    layer: list[Any] = [value]
    for _ in range(DEEPEST):
        layer = [below for container in layer for below in _within(container)]
        if not layer:
            return value
    raise ValueError(f"more than {DEEPEST} nested brackets")


def _within(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return cast("dict[str, Any]", value).values()
    return cast("list[Any]", value) if isinstance(value, list) else ()


Shallow = Annotated[dict[str, Any], AfterValidator(_shallow)]


JobFile = Annotated[Shallow, Field(description="a job file: `tpujob schema` prints its schema")]
#: the description of a request whose body is an archive
BYTES: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/gzip": {"schema": {"type": "string", "format": "binary"}}},
    }
}
#: how requests show who sends them; docs/security.md has the doors
DOORS: dict[str, Any] = {
    "token": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "A deployed backend: an ID token of Google, whose audience is the backend's URL",
    },
    "iap": {
        "type": "apiKey",
        "in": "header",
        "name": "x-goog-iap-jwt-assertion",
        "description": "A deployed backend with `door: iap`: Identity-Aware Proxy adds it to each request",
    },
}
#: one of the doors, or at a socket none: there the kernel says who connects
SECURITY: list[dict[str, list[str]]] = [{"token": []}, {"iap": []}, {}]


class NewCode(BaseModel):
    """The checkout whose files are shipped."""

    model_config = ConfigDict(extra="forbid")
    commit: str = Field(max_length=64)
    branch: str = Field(default="", max_length=300)
    dirty: bool = False
    diff: str = Field(default="", max_length=200_000, description="from the commit to the files")


class Done(BaseModel):
    done: bool


class StoredBundle(BaseModel):
    path: str = Field(description="the object path of the bundle, for `POST /v1/jobs`")


class Hint(BaseModel):
    """The answer of a long poll."""

    cursor: str = Field(description="pass it to the next call: nothing in between is missed")
    again_in: float = Field(description="seconds to wait first, as too many are waiting already")


class Pass(BaseModel):
    """The answer of `POST /v1/tick`."""

    ticks: int = Field(description="how many ticks of jobs there were")
    next_in: float | None = Field(description="seconds until the next is due; null: none is")


class Version(BaseModel):
    version: str
    api: str


class Health(BaseModel):
    ok: bool


class ErrorDetail(BaseModel):
    type: str = Field(description="a class of `tpujob.errors`")
    message: str
    hint: str
    exit_code: int


class ErrorReply(BaseModel):
    error: ErrorDetail
