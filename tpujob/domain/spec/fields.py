"""The kinds of value in a job file: each check says what is allowed, in its message and in the schema for editors.

Which fields there are is in `jobspec.py`. A check raises ValueError with half a sentence that follows the key's name.
"""

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar, cast

from pydantic import AfterValidator, BaseModel, ConfigDict
from pydantic_core import core_schema

from tpujob.domain import secrets
from tpujob.domain.hardware import accelerators
from tpujob.domain.spec.yaml import describe, shown
from tpujob.errors import BadSpec

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler

V = TypeVar("V")

Schema = dict[str, Any]  #: for editors: of JSON
Scalar = str | int | float | bool

_NAME = r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?"
_RUNTIME_VERSION = r"[a-z0-9]([-a-z0-9.]{0,78}[a-z0-9])?"
_ENV_NAME = secrets.NAME
_ARG_NAME = r"[a-z][a-z0-9_]{0,63}"
_NOT_TEXT = re.compile("[\0\ud800-\udfff]")
_DURATION = r"(?=[0-9])([0-9]{1,9}d)?([0-9]{1,9}h)?([0-9]{1,9}m)?([0-9]{1,9}s)?"

MAX_TEXT = 16 * 1024  #: characters of a command or of setup
MAX_ITEMS = 50  #: of a list
MAX_ENTRIES = 100  #: of a mapping


class SpecPart(BaseModel):
    """A mapping of a job file with a closed set of keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, serialize_by_alias=True)


@dataclass(frozen=True, slots=True)
class Checked(Generic[V]):
    """A check of a value, to be called, or to stand in `Annotated`."""

    check: Callable[[Any], V]
    schema: Schema | None = None  #: None: that of the type
    text: Callable[[Any], Any] | None = None  #: what a file and JSON have; None: the value

    def __call__(self, value: Any) -> V:
        return self.check(value)

    def __get_pydantic_core_schema__(
        self, source: Any, handler: "GetCoreSchemaHandler"
    ) -> core_schema.CoreSchema:
        of_text = self.text and core_schema.plain_serializer_function_ser_schema(self.text)
        return core_schema.no_info_before_validator_function(
            self.check, handler(source), serialization=of_text
        )

    def __get_pydantic_json_schema__(
        self, core: core_schema.CoreSchema, handler: "GetJsonSchemaHandler"
    ) -> Schema:
        return handler(core) if self.schema is None else dict(self.schema)


# Checks --------------------------------------------------------------------------------------------------------------


def optional(check: Checked[V]) -> Checked[V | None]:
    """That check; None passes, as the JSON form leaves nothing out."""
    given, of_text = check.schema, check.text
    return Checked(
        lambda value: None if value is None else check(value),
        given and {"anyOf": [*given.get("anyOf", (given,)), {"type": "null"}]},
        of_text and (lambda value: None if value is None else of_text(value)),
    )


def text(limit: int) -> Checked[str]:
    """Text that is not blank."""

    def check(value: Any) -> str:
        if not _text(value, limit).strip():
            raise ValueError("must not be empty")
        return value

    return Checked(check)


def _text(value: Any, limit: int) -> str:
    if not isinstance(value, str):
        hint = "; put it in quotes" if isinstance(value, (int, float)) else ""
        raise ValueError(f"must be text, not {describe(value)}{hint}")
    if len(value) > limit:
        raise ValueError(f"must have at most {limit:,} characters, not {len(value):,}")
    if _NOT_TEXT.search(value):
        raise ValueError("must not hold a NUL or half a character")
    return value


def matching(pattern: str, allowed: str) -> Checked[str]:
    """Text of that pattern, described by `allowed`."""

    def check(value: Any) -> str:
        if not re.fullmatch(pattern, _text(value, 10_000)):
            raise ValueError(f"must be {allowed}, not {value[:60]!r}")
        return value

    return Checked(check, schema_of(pattern))


def schema_of(pattern: str) -> Schema:
    return {"type": "string", "pattern": f"^{pattern}$"}


def or_empty(check: Checked[str]) -> Checked[str]:
    """That check, for texts that are not empty; empty means not given."""
    return Checked(lambda value: "" if value in ("", None) else check(value))


def one_of(names: Iterable[str], what: str) -> Checked[str]:
    """One of a closed list; anything else is answered with the nearest of them."""
    known = tuple(names)

    def check(value: Any) -> str:
        given = _text(value, 10_000)
        if given in known:
            return given
        near = difflib.get_close_matches(given[:60], known, n=3)
        meant = f"; did you mean {' or '.join(near)}?" if near else ""
        listed = f"; allowed: {', '.join(known)}" if len(known) < 10 else ""
        raise ValueError(f"{shown(given)} is no {what}{listed or meant}")

    return Checked(check)


def names(what: str, check: Checked[str], most: int = MAX_ITEMS) -> Checked[tuple[str, ...]]:
    """One name, or a list of names in order of preference; doubles are dropped."""
    one = check.schema

    def check_all(value: Any) -> tuple[str, ...]:
        given = items(value, f"{what} or a list of them", str, most=most)
        return tuple(dict.fromkeys(map(check, given)))

    many = {"type": "array", "items": one, "maxItems": most}
    return Checked(check_all, one and {"anyOf": [one, many]})


def items(value: Any, what: str, *single: type, most: int = MAX_ITEMS) -> Sequence[Any]:
    """What a list has; a value of one of these types is as good as a list of it alone."""
    if isinstance(value, single):
        return (value,)
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"must be {what}, not {describe(value)}")
    found = cast("Sequence[Any]", value)
    if len(found) > most:
        raise ValueError(f"must list at most {most}, not {len(found)}")
    return found


def mapping(what: str, schema: Schema | None = None) -> Checked[Mapping[Any, Any]]:
    """A mapping of a sensible size; its keys and values are checked one by one after this."""

    def check(value: Any) -> Mapping[Any, Any]:
        if not isinstance(value, Mapping):
            raise ValueError(f"must be a mapping of {what}, not {describe(value)}")
        entries = cast("Mapping[Any, Any]", value)
        if len(entries) > MAX_ENTRIES:
            raise ValueError(f"must have at most {MAX_ENTRIES} entries, not {len(entries):,}")
        return entries

    return Checked(check, schema and {"type": "object", "maxProperties": MAX_ENTRIES, **schema})


def count(limit: int, least: int = 0) -> Checked[int]:
    """A whole number from `least`."""

    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"must be a whole number, not {describe(value)}")
        if not least <= value <= limit:
            raise ValueError(f"must be from {least} to {limit:,}, not {describe(value)}")
        return value

    return Checked(check, {"type": "integer", "minimum": least, "maximum": limit})


def time_span(limit: str) -> Checked[int]:
    """A time with its unit: text in a file and in JSON, seconds in the program."""

    def check(value: Any) -> int:
        if not isinstance(value, str) or not re.fullmatch(_DURATION, value):
            raise ValueError(
                f"must be a time with its unit, such as 90s, 15m or 1h30m, not {describe(value)}"
            )
        if seconds(value) > seconds(limit):
            raise ValueError(f"must be at most {limit}, not {value}")
        return seconds(value)

    return Checked(check, schema_of(_DURATION), time_text)


_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


@lru_cache(1024)
def seconds(text: str) -> int:
    """The seconds in a text such as `1h30m`."""
    return sum(int(n) * _UNITS[unit] for n, unit in re.findall(r"([0-9]+)([dhms])", text))


def time_text(seconds: int) -> str:
    """The text that `seconds` reads back: `1h30m` for 5400."""
    parts: list[str] = []
    for unit, size in _UNITS.items():
        amount, seconds = divmod(seconds, size)
        if amount:
            parts.append(f"{amount}{unit}")
    return "".join(parts) or "0s"


@Checked
def accelerator(value: Any) -> str:
    try:
        return accelerators.find(_text(value, 10_000)).type
    except BadSpec as error:
        raise ValueError(error.message) from None


@Checked
def zone(value: Any) -> str:
    """A zone: one of the table, or what can be one."""
    if isinstance(value, str) and re.fullmatch(accelerators.ZONE, value):
        return value
    return one_of(accelerators.all_zones(), "zone with TPUs")(value)


@Checked
def region(value: Any) -> str:
    """The same for a region."""
    if isinstance(value, str) and re.fullmatch(accelerators.REGION, value):
        return value
    return one_of(accelerators.all_regions(), "region with TPUs")(value)


@Checked
def generation(value: Any) -> str:
    """The same for a generation."""
    if isinstance(value, str) and accelerators.generation(value):
        return value
    return one_of(accelerators.GENERATIONS, "generation of TPUs")(value)


def _types(value: Any) -> tuple[str, ...]:
    types = names("an accelerator type", accelerator)(value)
    if not types:
        raise ValueError("must name at least one accelerator type, such as v4-16")
    return types


def _env_name(value: Any) -> str:
    matching(_ENV_NAME, "letters, digits and _, the first no digit")(value)
    if value.upper().startswith("TPUJOB_"):
        raise ValueError("must not begin with TPUJOB_, as tpujob sets those itself")
    return value


def scalar(value: Any) -> Scalar:
    """Text, a number, true or false."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"must be a finite number, not {value}")
    if isinstance(value, int) and abs(value) >= 2**63:
        raise ValueError("must fit in 64 bits")
    if isinstance(value, (bool, int, float)):
        return value
    if not isinstance(value, str):
        raise ValueError(f"must be text, a number, true or false, not {describe(value)}")
    return _text(value, 4096)


def _regex(value: Any) -> str:
    given = text(1024)(value)
    try:
        found = re.compile(given)
    except re.error as error:
        raise ValueError(f"is no regular expression: {error}") from None
    if found.search(""):
        raise ValueError("must not match an empty line, as it would match every line")
    return given


def _step_regex(value: Any) -> str:
    given = _regex(value)
    if "step" not in re.compile(given).groupindex:
        raise ValueError(r"has no group that names the step: write '(?P<step>\d+)' where it stands")
    return given


# Types: a check, and what the schema tells an editor -----------------------------------------------------------------

_TYPES = [
    *accelerators.ALL,
    *(t.replace("v5litepod-", "v5e-") for t in accelerators.ALL if t.startswith("v5litepod-")),
]


def _one_or_many(known: Iterable[str], pattern: str, at_least: int) -> Schema:
    """Those that are known, which an editor completes, and what else is well-formed."""
    one = {"type": "string", "anyOf": [{"enum": list(known)}, {"pattern": f"^{pattern}$"}]}
    many = {"type": "array", "items": one, "minItems": at_least, "maxItems": MAX_ITEMS}
    return {"anyOf": [one, many]}


def _entries(key: str, value: str | list[str]) -> Schema:
    return {"propertyNames": {"pattern": f"^{key}$"}, "additionalProperties": {"type": value}}


Name = Annotated[
    str,
    matching(_NAME, "1 to 40 of a-z, 0-9 and -, beginning with a letter and not ending in -"),
]
Types = Annotated[
    tuple[str, ...],
    Checked(_types, _one_or_many(_TYPES, rf"{accelerators.GENERATION}-[0-9]{{1,6}}", 1)),
]
Zones = Annotated[
    tuple[str, ...],
    Checked(names("a zone", zone), _one_or_many(accelerators.all_zones(), accelerators.ZONE, 0)),
]
Pricing = Annotated[
    Literal["spot", "on-demand", "reserved"], one_of(("spot", "on-demand", "reserved"), "pricing")
]
RuntimeVersion = Annotated[
    str | None, optional(matching(_RUNTIME_VERSION, "1 to 80 of a-z, 0-9, - and ."))
]
Slices = Annotated[int, count(64, 1)]
Args = Annotated[
    dict[
        Annotated[str, matching(_ARG_NAME, "a-z, 0-9 and _, beginning with a letter")],
        Annotated[Any, AfterValidator(scalar)],
    ],
    mapping("argument names to values", _entries(_ARG_NAME, ["string", "number", "boolean"])),
]
_ENV_SCHEMA = rf"(?![Tt][Pp][Uu][Jj][Oo][Bb]_){_ENV_NAME}"
Env = Annotated[
    dict[
        Annotated[str, Checked(_env_name)],
        Annotated[str, Checked(lambda value: _text(value, 8192))],
    ],
    mapping("variable names to values", _entries(_ENV_SCHEMA, "string")),
]
Secrets = Annotated[
    tuple[str, ...],
    names("the name of a secret", Checked(_env_name, schema_of(_ENV_SCHEMA)), secrets.MOST),
]
CHANNEL = r"[a-z][-a-z0-9]{0,38}[a-z0-9]"
channel = matching(CHANNEL, "the name of a channel: 2 to 40 of a-z, 0-9 and -")
Channels = Annotated[tuple[str, ...], names("a channel", channel)]
Command = Annotated[str | None, optional(text(MAX_TEXT))]
Folder = Annotated[str | None, optional(text(1024))]
Preemptions = Annotated[int, count(10_000)]
Failures = Annotated[int, count(1_000)]
Hold = Annotated[int, time_span("7d")]
Grace = Annotated[int, time_span("10m")]
Stall = Annotated[int, time_span("7d")]
Ttl = Annotated[int, time_span("90d")]
Wait = Annotated[int | None, optional(time_span("90d"))]
OnBadHost = Annotated[Literal["swap", "release"], one_of(("swap", "release"), "way to treat it")]
Pattern = Annotated[str | None, optional(Checked(_regex))]
StepPattern = Annotated[str | None, optional(Checked(_step_regex))]
