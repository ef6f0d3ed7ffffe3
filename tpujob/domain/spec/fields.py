"""The kinds of value in a job file: each check says what is allowed, in its message and in the schema for editors.

Which fields there are is in `jobspec.py`. A check raises ValueError with half a sentence that follows the key's name.
"""

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, Literal, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainSerializer,
    WithJsonSchema,
)

from tpujob.domain import secrets
from tpujob.domain.hardware import accelerators
from tpujob.domain.spec.yaml import describe, shown
from tpujob.errors import BadSpec

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


# Checks --------------------------------------------------------------------------------------------------------------


def optional(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the check with None allowed, as the JSON form leaves nothing out."""
    return lambda value: None if value is None else check(value)


def text(limit: int) -> Callable[[Any], Any]:
    """Text that is not blank."""

    def check(value: Any) -> Any:
        if not _text(value, limit).strip():
            raise ValueError("must not be empty")
        return value

    return check


def _text(value: Any, limit: int) -> str:
    if not isinstance(value, str):
        hint = "; put it in quotes" if isinstance(value, (int, float)) else ""
        raise ValueError(f"must be text, not {describe(value)}{hint}")
    if len(value) > limit:
        raise ValueError(f"must have at most {limit:,} characters, not {len(value):,}")
    if _NOT_TEXT.search(value):
        raise ValueError("must not hold a NUL or half a character")
    return value


def matching(pattern: str, allowed: str) -> Callable[[Any], str]:
    """Text of that pattern, described by `allowed`."""

    def check(value: Any) -> str:
        if not re.fullmatch(pattern, _text(value, 10_000)):
            raise ValueError(f"must be {allowed}, not {value[:60]!r}")
        return value

    return check


def or_empty(check: Callable[[Any], str]) -> BeforeValidator:
    """That check, for texts that are not empty; empty means not given."""
    return BeforeValidator(lambda value: "" if value in ("", None) else check(value))


def one_of(names: Iterable[str], what: str) -> Callable[[Any], str]:
    """One of a closed list; anything else is answered with the nearest of them."""
    known = tuple(names)

    def check(value: Any) -> str:
        given = _text(value, 10_000)
        if given in known:
            return given
        near = difflib.get_close_matches(given[:60], known, n=3)
        meant = f"; did you mean {' or '.join(near)}?" if near else ""
        listed = f"; allowed: {', '.join(known)}" if len(known) < 10 else ""
        raise ValueError(f"{shown(given)} is not a {what}{listed or meant}")

    return check


def names(
    what: str, check: Callable[[Any], str], most: int = MAX_ITEMS
) -> Callable[[Any], tuple[str, ...]]:
    """One name, or a list of names in order of preference; doubles are dropped."""

    def check_all(value: Any) -> tuple[str, ...]:
        given = items(value, f"{what} or a list of them", str, most=most)
        return tuple(dict.fromkeys(map(check, given)))

    return check_all


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


def mapping(what: str) -> Callable[[Any], Any]:
    """A mapping of a sensible size; its keys and values are checked one by one after this."""

    def check(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise ValueError(f"must be a mapping of {what}, not {describe(value)}")
        entries = cast("Mapping[Any, Any]", value)
        if len(entries) > MAX_ENTRIES:
            raise ValueError(f"must have at most {MAX_ENTRIES} entries, not {len(entries):,}")
        return entries

    return check


def count(limit: int, least: int = 0) -> Callable[[Any], int]:
    """A whole number from `least`."""

    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"must be a whole number, not {describe(value)}")
        if not least <= value <= limit:
            raise ValueError(f"must be from {least} to {limit:,}, not {describe(value)}")
        return value

    return check


def time_span(limit: str) -> Callable[[Any], int]:
    """A time with its unit, as seconds."""

    def check(value: Any) -> int:
        if not isinstance(value, str) or not re.fullmatch(_DURATION, value):
            raise ValueError(
                f"must be a time with its unit, such as 90s, 15m or 1h30m, not {describe(value)}"
            )
        if seconds(value) > seconds(limit):
            raise ValueError(f"must be at most {limit}, not {value}")
        return seconds(value)

    return check


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


def accelerator(value: Any) -> str:
    try:
        return accelerators.find(_text(value, 10_000)).type
    except BadSpec as error:
        raise ValueError(error.message) from None


def zone(value: Any) -> str:
    """A zone: one of the table, or what can be one."""
    if isinstance(value, str) and re.fullmatch(accelerators.ZONE, value):
        return value
    return one_of(accelerators.all_zones(), "zone with TPUs")(value)


def region(value: Any) -> str:
    """The same for a region."""
    if isinstance(value, str) and re.fullmatch(accelerators.REGION, value):
        return value
    return one_of(accelerators.all_regions(), "region with TPUs")(value)


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


def _regex(value: Any) -> str | None:
    if value is None:
        return None
    given = text(1024)(value)
    try:
        found = re.compile(given)
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from None
    if found.search(""):
        raise ValueError("must not match an empty line, as it would match every line")
    return given


def _step_regex(value: Any) -> str | None:
    given = _regex(value)
    if given is not None and "step" not in re.compile(given).groupindex:
        raise ValueError(r"has no group that names the step: write '(?P<step>\d+)' where it stands")
    return given


# Types: a check, and what the schema tells an editor -----------------------------------------------------------------

_TYPES = [
    *accelerators.ALL,
    *(t.replace("v5litepod-", "v5e-") for t in accelerators.ALL if t.startswith("v5litepod-")),
]


def _one_or_many(known: Iterable[str], pattern: str, at_least: int) -> WithJsonSchema:
    """Those that are known, which an editor completes, and what else is well-formed."""
    one = {"type": "string", "anyOf": [{"enum": list(known)}, {"pattern": f"^{pattern}$"}]}
    many = {"type": "array", "items": one, "minItems": at_least, "maxItems": MAX_ITEMS}
    return WithJsonSchema({"anyOf": [one, many]})


def _entries(key: str, value: str | list[str]) -> WithJsonSchema:
    return WithJsonSchema(
        {
            "type": "object",
            "propertyNames": {"pattern": f"^{key}$"},
            "additionalProperties": {"type": value},
            "maxProperties": MAX_ENTRIES,
        }
    )


def schema_of(pattern: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": f"^{pattern}$"})


def nullable(pattern: str = "") -> WithJsonSchema:
    """Return the schema of a text, or of one of that pattern, that may be left out."""
    text = {"type": "string", "pattern": f"^{pattern}$"} if pattern else {"type": "string"}
    return WithJsonSchema({"anyOf": [text, {"type": "null"}]})


def _whole(limit: int, least: int = 0) -> WithJsonSchema:
    return WithJsonSchema({"type": "integer", "minimum": least, "maximum": limit})


_TIME = schema_of(_DURATION)

Name = Annotated[
    str,
    BeforeValidator(
        matching(_NAME, "1 to 40 of a-z, 0-9 and -, beginning with a letter and not ending in -")
    ),
    schema_of(_NAME),
]
Types = Annotated[
    tuple[str, ...],
    BeforeValidator(_types),
    _one_or_many(_TYPES, rf"{accelerators.GENERATION}-[0-9]{{1,6}}", 1),
]
Zones = Annotated[
    tuple[str, ...],
    BeforeValidator(names("a zone", zone)),
    _one_or_many(accelerators.all_zones(), accelerators.ZONE, 0),
]
Pricing = Annotated[
    Literal["spot", "on-demand", "reserved"],
    BeforeValidator(one_of(("spot", "on-demand", "reserved"), "pricing")),
]
RuntimeVersion = Annotated[
    str | None,
    BeforeValidator(optional(matching(_RUNTIME_VERSION, "1 to 80 of a-z, 0-9, - and ."))),
    nullable(_RUNTIME_VERSION),
]
Slices = Annotated[int, BeforeValidator(count(64, 1)), _whole(64, 1)]
Args = Annotated[
    dict[
        Annotated[
            str, BeforeValidator(matching(_ARG_NAME, "a-z, 0-9 and _, beginning with a letter"))
        ],
        Annotated[Any, AfterValidator(scalar)],
    ],
    BeforeValidator(mapping("argument names to values")),
    _entries(_ARG_NAME, ["string", "number", "boolean"]),
]
Env = Annotated[
    dict[
        Annotated[str, BeforeValidator(_env_name)],
        Annotated[str, BeforeValidator(lambda value: _text(value, 8192))],
    ],
    BeforeValidator(mapping("variable names to values")),
    _entries(f"(?![Tt][Pp][Uu][Jj][Oo][Bb]_){_ENV_NAME}", "string"),
]


_SECRET = {"type": "string", "pattern": f"^(?![Tt][Pp][Uu][Jj][Oo][Bb]_){_ENV_NAME}$"}
Secrets = Annotated[
    tuple[str, ...],
    BeforeValidator(names("the name of a secret", _env_name, secrets.MOST)),
    WithJsonSchema(
        {"anyOf": [_SECRET, {"type": "array", "items": _SECRET, "maxItems": secrets.MOST}]}
    ),
]
CHANNEL = r"[a-z][-a-z0-9]{0,38}[a-z0-9]"
channel = matching(CHANNEL, "the name of a channel: 2 to 40 of a-z, 0-9 and -")
_CHANNEL = {"type": "string", "pattern": f"^{CHANNEL}$"}
Channels = Annotated[
    tuple[str, ...],
    BeforeValidator(names("a channel", channel)),
    WithJsonSchema(
        {"anyOf": [_CHANNEL, {"type": "array", "items": _CHANNEL, "maxItems": MAX_ITEMS}]}
    ),
]
Command = Annotated[str | None, BeforeValidator(optional(text(MAX_TEXT)))]
Folder = Annotated[str | None, BeforeValidator(optional(text(1024)))]
Preemptions = Annotated[int, BeforeValidator(count(10_000)), _whole(10_000)]
Failures = Annotated[int, BeforeValidator(count(1_000)), _whole(1_000)]
#: Text in a file and in JSON, seconds in the program.
Hold = Annotated[int, BeforeValidator(time_span("7d")), PlainSerializer(time_text), _TIME]
Grace = Annotated[int, BeforeValidator(time_span("10m")), PlainSerializer(time_text), _TIME]
Stall = Annotated[int, BeforeValidator(time_span("7d")), PlainSerializer(time_text), _TIME]
Ttl = Annotated[int, BeforeValidator(time_span("90d")), PlainSerializer(time_text), _TIME]
Wait = Annotated[
    int | None,
    BeforeValidator(optional(time_span("90d"))),
    PlainSerializer(optional(time_text)),
    nullable(_DURATION),
]
OnBadHost = Annotated[
    Literal["swap", "release"],
    BeforeValidator(one_of(("swap", "release"), "way to treat a bad host")),
]
Pattern = Annotated[str | None, BeforeValidator(_regex)]
StepPattern = Annotated[str | None, BeforeValidator(_step_regex)]
