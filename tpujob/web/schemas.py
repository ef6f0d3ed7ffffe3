"""Models of what the HTTP API takes, and of its own answers. No behaviour.

What it sends of jobs are the TypedDicts of `api/shapes.py`, which pydantic reads as they are.
"""

from collections.abc import Iterable
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

#: how deep brackets may lie in each other; a job file needs six
DEEPEST = 50


def _shallow(value: dict[str, Any]) -> dict[str, Any]:
    """What is deeper would be refused by everything that walks through it later, by a RecursionError."""
    layer: list[Any] = [value]
    for _ in range(DEEPEST):
        layer = [below for one in layer for below in _within(one)]
        if not layer:
            return value
    raise ValueError(f"more than {DEEPEST} brackets lie in each other")


def _within(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return cast("dict[str, Any]", value).values()
    return cast("list[Any]", value) if isinstance(value, list) else ()


Shallow = Annotated[dict[str, Any], AfterValidator(_shallow)]


class _Taken(BaseModel):
    model_config = ConfigDict(extra="forbid")


class NewCode(_Taken):
    """The checkout whose files are shipped."""

    commit: str = Field(max_length=64)
    branch: str = Field(default="", max_length=300)
    dirty: bool = False
    diff: str = Field(default="", max_length=200_000, description="from the commit to the files")


class NewJob(_Taken):
    """What `POST /v1/jobs` takes."""

    spec: Shallow = Field(description="a JobSpec in its JSON form")
    bundles: list[str] = Field(default=[], max_length=16, description="object paths, in order")
    code: NewCode | None = None


class NewSecret(_Taken):
    """What `PUT /v1/secrets/NAME` takes. The value is in no error, as no error of these models quotes its input."""

    value: str = Field(max_length=65_536)


class NewPlan(_Taken):
    """What `POST /v1/plan` takes."""

    spec: Shallow = Field(description="a JobSpec in its JSON form")


class NewEstimate(NewPlan):
    """What `POST /v1/estimate` takes."""

    said: Shallow = Field(
        default={}, description="hours, steps and whatever else is known of it, by name"
    )


class NewComparison(NewEstimate):
    """What `POST /v1/compare` takes."""

    asked: Shallow = Field(
        default={}, description="unit, amount, types, zones and throughput, by name"
    )


class Given(_Taken):
    """What `PUT /v1/members` takes."""

    name: str = Field(max_length=200, description="a login or an e-mail address")
    role: str = Field(max_length=16, description="`viewer`, `submitter` or `admin`")


class AccessAsked(_Taken):
    """What `POST /v1/jobs/{job}/access` takes."""

    host: int = Field(default=0, ge=0, description="its number in the job")
    key: str = Field(max_length=1000, description="the public half, of type ssh-ed25519")


class _LogAsked(BaseModel):
    """What the queries of both have; left out where nothing is said."""

    attempt: int | None = Field(default=None, ge=0, le=1_000_000)
    host: int | None = Field(default=None, ge=0, le=1_000_000)
    line: int | None = Field(default=None, ge=0, le=10**12, description="its number")
    of: int | None = Field(default=None, ge=0, le=1_000_000, description="the host of that line")
    width: int | None = Field(default=None, ge=1, description="bytes of a line that are shown")
    text: str | None = Field(default=None, max_length=4000)
    regexp: bool | None = None
    ignore_case: bool | None = None

    def given(self) -> dict[str, Any]:
        return self.model_dump(exclude_none=True)


class LogPlace(_LogAsked):
    """The query of `GET /v1/jobs/{job}/logs/window`."""

    part: float | None = Field(default=None, ge=0, le=1, description="of the whole log")
    side: Literal["around", "after", "before"] | None = None
    lines: int | None = Field(default=None, ge=1, description="at most")


class LogQuery(_LogAsked):
    """The query of `GET /v1/jobs/{job}/logs/search`."""

    traceback: bool | None = None
    after: bool | None = Field(default=None, description="the line, without that line itself")
    limit: int | None = Field(default=None, ge=1, description="matches at most")


class Machine(_Taken):
    """What `POST /v1/hosts/clear` takes; in the body, as Google Cloud's names have slashes."""

    physical: str = Field(description="as `GET /v1/hosts` shows it", max_length=1000)


class Pin(Machine):
    """What `POST /v1/hosts/pin` takes."""

    verdict: str = Field(description="`good`, `bad`, or empty to take it back", max_length=16)


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
