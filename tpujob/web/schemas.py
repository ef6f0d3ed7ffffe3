"""Models of what the HTTP API takes and sends, for its OpenAPI page. No behaviour.

The shapes themselves are the TypedDicts of `api/shapes.py`. pydantic reads those only from Python 3.12 on, so they are
turned into models of the same fields here.
"""

from __future__ import annotations

from types import UnionType
from typing import Any, Union, cast, get_args, get_origin, get_type_hints, is_typeddict

from pydantic import BaseModel, ConfigDict, Field, create_model

from tpujob.api import (
    BrokenView,
    DiffView,
    EventView,
    HostAccess,
    JobView,
    LogPage,
    PlanView,
    SuspectView,
    SweptView,
)


class NewCode(BaseModel):
    """The checkout whose files are shipped."""

    model_config = ConfigDict(extra="forbid")

    commit: str = Field(max_length=64)
    branch: str = Field(default="", max_length=300)
    dirty: bool = False
    diff: str = Field(default="", max_length=200_000, description="from the commit to the files")


class NewJob(BaseModel):
    """What `POST /v1/jobs` takes."""

    model_config = ConfigDict(extra="forbid")

    spec: dict[str, Any] = Field(description="a JobSpec in its JSON form")
    user: str = Field(min_length=1, max_length=64)
    bundles: list[str] = Field(default=[], max_length=16, description="object paths, in order")
    code: NewCode | None = None


class NewPlan(BaseModel):
    """What `POST /v1/plan` takes."""

    model_config = ConfigDict(extra="forbid")

    spec: dict[str, Any] = Field(description="a JobSpec in its JSON form")


class Machine(BaseModel):
    """What `POST /v1/hosts/clear` takes; in the body, as Google Cloud's names have slashes."""

    model_config = ConfigDict(extra="forbid")

    physical: str = Field(description="as `GET /v1/hosts` shows it", max_length=1000)


class Pin(Machine):
    """What `POST /v1/hosts/pin` takes."""

    verdict: str = Field(description="`good`, `bad`, or empty to take it back", max_length=16)


class Cleared(BaseModel):
    done: bool


class StoredBundle(BaseModel):
    path: str = Field(description="the object path of the bundle, for `POST /v1/jobs`")


class Hint(BaseModel):
    """The answer of a long poll."""

    cursor: str = Field(description="pass it to the next call: nothing in between is missed")
    again_in: float = Field(description="seconds to wait first, as too many are waiting already")


class Pass(BaseModel):
    """The answer of `POST /v1/tick`."""

    ticks: int = Field(description="how often a job was looked at")
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


_made: dict[type, type[BaseModel]] = {}


def model_of(view: type) -> type[BaseModel]:
    """A pydantic model with the fields of a TypedDict, those within included."""
    if view not in _made:
        fields = {name: (_shown(hint), ...) for name, hint in get_type_hints(view).items()}
        make = cast(Any, create_model)  # its overloads cannot name fields that are computed
        _made[view] = make(view.__name__, __doc__=view.__doc__ or "", **fields)
    return _made[view]


def _shown(hint: Any) -> Any:
    if is_typeddict(hint):
        return model_of(hint)
    if get_origin(hint) is list and is_typeddict(get_args(hint)[0]):
        return list[model_of(get_args(hint)[0])]
    if get_origin(hint) is UnionType:
        return Union[tuple(_shown(part) for part in get_args(hint))]  # noqa: UP007 made of values
    return hint


Job = model_of(JobView)
Plan = model_of(PlanView)
Event = model_of(EventView)
Logs = model_of(LogPage)
Diff = model_of(DiffView)
Access = model_of(HostAccess)
Suspect = model_of(SuspectView)
Swept = model_of(SweptView)
Broken = model_of(BrokenView)
