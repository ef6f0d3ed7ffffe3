"""The parts of a job file about the queue: dependencies, priority, share, start and times."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, Field

from tpujob.domain.spec import fields as kinds
from tpujob.domain.spec.fields import Checked
from tpujob.domain.spec.yaml import describe

_Band = Literal["high", "normal", "low"]
BANDS: tuple[_Band, ...] = get_args(_Band)

SHARE = r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?"
_JOB = r"[a-z0-9]([-a-z0-9]{0,44}[a-z0-9])?"
_LATEST = datetime(2100, 1, 1, tzinfo=UTC).timestamp()


class After(kinds.SpecPart):
    """Another job that this one waits for."""

    job: Annotated[str, kinds.matching(_JOB, "the id or the name of a job")] = Field(
        description="Id or name of a job, or of a group."
    )
    on: Annotated[Literal["success", "end", "failure", "start"], kinds.Word("condition")] = Field(
        "success", description="The condition to wait for."
    )
    each: bool = Field(
        False, description="Of two groups: each element waits for the one of the same index."
    )


def _edges(value: Any) -> Any:
    """Return the fields of each dependency, from a job or a list of jobs, each a name or a mapping."""
    items = kinds.items(value, "a job or a list of jobs", str, Mapping)
    return tuple({"job": item} if isinstance(item, str) else item for item in items)


def _check_jobs(edges: tuple[After, ...]) -> tuple[After, ...]:
    names = [edge.job for edge in edges]
    if doubles := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"names {doubles[0]} twice")
    return edges


def _moment(value: Any) -> float:
    """Return a time with its zone as seconds since the epoch."""
    example = "must be a time with its zone, such as 2026-12-01T09:00Z"
    try:
        time = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise ValueError(f"{example}, not {describe(value)}") from None
    if time.tzinfo is None:
        raise ValueError(f"{example}; {value} has none")
    if not 0 <= time.timestamp() < _LATEST:
        raise ValueError(f"{example}, before 2100")
    return time.timestamp()


def _moment_text(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")


AfterJobs = Annotated[tuple[After, ...], Checked(_edges), AfterValidator(_check_jobs)]
Band = Annotated[_Band, kinds.Word("priority")]
_share = kinds.matching(SHARE, "the name of a share: a-z, 0-9 and -, up to 40")
Share = Annotated[str, Checked(kinds.or_empty(_share), kinds.schema_of(f"({SHARE})?"))]
Start = Annotated[Literal["now", "held"], kinds.Word("way to start")]
_SCHEMA = {"type": "string", "format": "date-time"}
Moment = Annotated[float | None, kinds.optional(Checked(_moment, _SCHEMA, _moment_text))]
