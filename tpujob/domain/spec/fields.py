"""The types of the job file's values: each is a check, and a schema that tells an editor what is allowed.

A check raises ValueError with half a sentence that follows the key's name. `jobspec.py` has the fields.
"""

import difflib
import json
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar, cast, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict
from pydantic_core import core_schema

from tpujob.domain import members, secrets
from tpujob.domain.hardware import accelerators
from tpujob.domain.hardware.pricing import PRICINGS, RUN_FOR
from tpujob.domain.spec.yaml import describe, shown
from tpujob.errors import BadRequest, BadSpec

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler

V = TypeVar("V")

Schema = dict[str, Any]  #: a JSON schema, for editors
Scalar = str | int | float | bool
#: the variable by which a program says that it goes on with another number of chips
ELASTIC = "TPUJOB_ELASTIC"

_NAME = r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?"
_RUNTIME_VERSION = r"[a-z0-9]([-a-z0-9.]{0,78}[a-z0-9])?"
_ENV_NAME = secrets.NAME
_ARG_NAME = r"[a-z][a-z0-9_]{0,63}"
_NOT_TEXT = re.compile("[\0\ud800-\udfff]")
_DURATION = r"(?=[0-9])([0-9]{1,9}d)?([0-9]{1,9}h)?([0-9]{1,9}m)?([0-9]{1,9}s)?"

MAX_TEXT = 16 * 1024  #: characters of a command or of setup
MAX_ITEMS = 50  #: items of a list
MAX_ENTRIES = 100  #: entries of a mapping


class SpecPart(BaseModel):
    """A mapping of a job file with a closed set of keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, serialize_by_alias=True)


@dataclass(frozen=True, slots=True)
class Checked(Generic[V]):
    """A check of a value, to be called, or to stand in `Annotated`."""

    check: Callable[[Any], V]
    schema: Schema | None = None  #: None: the schema of the type
    text: Callable[[Any], Any] | None = None  #: returns the value's form in JSON; None: the value

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
    """Return the check with None allowed, as the JSON form leaves nothing out."""
    schema, to_text = check.schema, check.text
    return Checked(
        lambda value: None if value is None else check(value),
        schema and {"anyOf": [*schema.get("anyOf", (schema,)), {"type": "null"}]},
        to_text and (lambda value: None if value is None else to_text(value)),
    )


def text(limit: int) -> Checked[str]:
    """Return a check for text that is not blank, with at most `limit` characters."""

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
    """Return a check for text of the pattern, which `allowed` describes."""

    def check(value: Any) -> str:
        if not re.fullmatch(pattern, _text(value, 10_000)):
            raise ValueError(f"must be {allowed}, not {value[:60]!r}")
        return value

    return Checked(check, schema_of(pattern))


def schema_of(pattern: str) -> Schema:
    return {"type": "string", "pattern": f"^{pattern}$"}


def or_empty(check: Checked[str]) -> Checked[str]:
    """Return the check with empty text, or None, allowed: no value."""
    return Checked(lambda value: "" if value in ("", None) else check(value))


def one_of(allowed: Collection[str], kind: str) -> Checked[str]:
    """Return a check for a word of a closed list; its error suggests similar words."""

    def check(value: Any) -> str:
        if not isinstance(value, str) and len(allowed) < 10:
            raise ValueError(f"must be one of {', '.join(allowed)}, not {describe(value)}")
        word = _text(value, 10_000)
        if word in allowed:
            return word
        near = difflib.get_close_matches(word[:60], allowed, n=3)
        meant = f"; did you mean {' or '.join(near)}?" if near else ""
        listed = f"; allowed: {', '.join(allowed)}" if len(allowed) < 10 else ""
        raise ValueError(f"{shown(word)} is not a {kind}{listed or meant}")

    return Checked(check, {"type": "string", "enum": [*allowed]})


@dataclass(frozen=True, slots=True)
class Word:
    """A check for a word of the `Literal` that it annotates."""

    kind: str  #: what the word names, in errors

    def __get_pydantic_core_schema__(
        self, source: Any, handler: "GetCoreSchemaHandler"
    ) -> core_schema.CoreSchema:
        check = one_of(get_args(source), self.kind)
        return core_schema.no_info_before_validator_function(check, handler(source))


def names(kind: str, check: Checked[str], limit: int = MAX_ITEMS) -> Checked[tuple[str, ...]]:
    """Return a check for a name or a list of names in order of preference, without doubles."""
    name_schema = check.schema

    def check_all(value: Any) -> tuple[str, ...]:
        listed = items(value, f"{kind} or a list of them", str, limit=limit)
        return tuple(dict.fromkeys(map(check, listed)))

    list_schema = {"type": "array", "items": name_schema, "maxItems": limit}
    return Checked(check_all, name_schema and {"anyOf": [name_schema, list_schema]})


def items(value: Any, expected: str, *single: type, limit: int = MAX_ITEMS) -> Sequence[Any]:
    """Return the items of a list; a value of a `single` type counts as a list of one item."""
    if isinstance(value, single):
        return (value,)
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"must be {expected}, not {describe(value)}")
    listed = cast("Sequence[Any]", value)
    if len(listed) > limit:
        raise ValueError(f"must list at most {limit}, not {len(listed)}")
    return listed


def mapping(expected: str, schema: Schema | None = None) -> Checked[Mapping[Any, Any]]:
    """Return a check for a mapping of at most `MAX_ENTRIES` entries. It does not check keys and values."""

    def check(value: Any) -> Mapping[Any, Any]:
        if not isinstance(value, Mapping):
            raise ValueError(f"must be a mapping of {expected}, not {describe(value)}")
        entries = cast("Mapping[Any, Any]", value)
        if len(entries) > MAX_ENTRIES:
            raise ValueError(f"must have at most {MAX_ENTRIES} entries, not {len(entries):,}")
        return entries

    return Checked(check, schema and {"type": "object", "maxProperties": MAX_ENTRIES, **schema})


def _member(value: Any) -> str:
    try:
        return members.name_of(_text(value, 10_000))
    except BadRequest:
        raise ValueError(f"must be a login or an e-mail address, not {value[:60]!r}") from None


#: the name of a user as the list of members has it, so that `Ada@Example.org` is ada@example.org
member = Checked(_member)


def by_member(expected: str) -> Checked[Mapping[Any, Any]]:
    """Return the check `mapping` for one whose keys are `member`: no two of them name the same user."""
    entries = mapping(expected)

    def check(value: Any) -> Mapping[Any, Any]:
        names = [members.folded(str(key)) for key in entries(value)]
        if doubles := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"names {doubles[0][:60]!r} twice")
        return value

    return Checked(check)


def count(limit: int, least: int = 0) -> Checked[int]:
    """Return a check for a whole number from `least` to `limit`."""

    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"must be a whole number, not {describe(value)}")
        if not least <= value <= limit:
            raise ValueError(f"must be from {least} to {limit:,}, not {describe(value)}")
        return value

    return Checked(check, {"type": "integer", "minimum": least, "maximum": limit})


def time_span(limit: str, least: str = "0s") -> Checked[int]:
    """Return a check for a time with its unit: text in files and JSON, seconds in the program."""

    def check(value: Any) -> int:
        if not isinstance(value, str) or not re.fullmatch(_DURATION, value):
            raise ValueError(
                f"must be a time with its unit, such as 90s, 15m or 1h30m, not {describe(value)}"
            )
        if seconds(value) > seconds(limit):
            raise ValueError(f"must be at most {limit}, not {value}")
        if seconds(value) < seconds(least):
            raise ValueError(f"must be at least {least}, not {value}")
        return seconds(value)

    return Checked(check, schema_of(_DURATION), time_text)


_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


@lru_cache(1024)
def seconds(text: str) -> int:
    """Return the seconds of a text such as `1h30m`."""
    return sum(int(n) * _UNITS[unit] for n, unit in re.findall(r"([0-9]+)([dhms])", text))


def time_text(seconds: int) -> str:
    """Return the text of the seconds, which `seconds` reads back: `1h30m` for 5400."""
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
    """Check a zone: any well-formed name, as new zones appear."""
    if isinstance(value, str) and re.fullmatch(accelerators.ZONE, value):
        return value
    return one_of(accelerators.all_zones(), "zone with TPUs")(value)


@Checked
def region(value: Any) -> str:
    """Check a region: any well-formed name."""
    if isinstance(value, str) and re.fullmatch(accelerators.REGION, value):
        return value
    return one_of(accelerators.all_regions(), "region with TPUs")(value)


@Checked
def generation(value: Any) -> str:
    """Check a generation: one that is known, or a well-formed name."""
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
    if value.upper().startswith("TPUJOB_") and value != ELASTIC:
        raise ValueError("must not begin with TPUJOB_, as tpujob sets those itself")
    return value


def scalar(value: Any) -> Scalar:
    """Check a value that is text, a number, true or false."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"must be a finite number, not {value}")
    if isinstance(value, int) and abs(value) >= 2**63:
        raise ValueError("must fit in 64 bits")
    if isinstance(value, (bool, int, float)):
        return value
    if not isinstance(value, str):
        hint = "; quotes make it text" if value is None else ""
        raise ValueError(f"must be text, a number, true or false, not {describe(value)}{hint}")
    return _text(value, 4096)


def value_text(value: Scalar) -> str:
    """Return the value as programs get it: `true`, `0.001`, or the text itself."""
    return value if isinstance(value, str) else json.dumps(value)


def _variable(value: Any) -> str:
    if value is None:
        raise ValueError('must have a value: write "" for an empty text, "null" for that word')
    return _text(value if isinstance(value, str) else value_text(scalar(value)), 8192)


def _regex(value: Any) -> str:
    pattern = text(1024)(value)
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from None
    if compiled.search(""):
        raise ValueError("must not match an empty line, as it would match every line")
    return pattern


def _step_regex(value: Any) -> str:
    pattern = _regex(value)
    if "step" not in re.compile(pattern).groupindex:
        raise ValueError(r"has no group that names the step: write '(?P<step>\d+)' where it stands")
    return pattern


# Types: a check, and what the schema tells an editor -----------------------------------------------------------------


def _one_or_many(words: Collection[str], pattern: str, at_least: int) -> Schema:
    """Return the schema of a word or a list of words: an editor completes `words`; others must match the pattern."""
    word = {"type": "string", "anyOf": [{"enum": list(words)}, {"pattern": f"^{pattern}$"}]}
    several = {"type": "array", "items": word, "minItems": at_least, "maxItems": MAX_ITEMS}
    return {"anyOf": [word, several]}


def _entries(key: str, value: str | list[str]) -> Schema:
    return {"propertyNames": {"pattern": f"^{key}$"}, "additionalProperties": {"type": value}}


Name = Annotated[
    str, matching(_NAME, "1 to 40 of a-z, 0-9 and -, beginning with a letter and not ending in -")
]
Types = Annotated[
    tuple[str, ...],
    Checked(
        _types, _one_or_many(accelerators.SPELLINGS, rf"{accelerators.GENERATION}-[0-9]{{1,6}}", 1)
    ),
]
Zones = Annotated[
    tuple[str, ...],
    Checked(names("a zone", zone), _one_or_many(accelerators.all_zones(), accelerators.ZONE, 0)),
]
Pricing = Annotated[str, one_of(PRICINGS, "pricing")]
_pricing = one_of(PRICINGS, "pricing")


def _pricings(value: Any) -> tuple[str, ...]:
    pricings = names("a pricing", _pricing)(value)
    if not pricings:
        raise ValueError("must name at least one pricing, such as spot")
    return pricings


def _one_or_list(names: tuple[str, ...]) -> Any:
    return names[0] if len(names) == 1 else [*names]


_PRICINGS = {
    "anyOf": [
        _pricing.schema,
        {"type": "array", "items": _pricing.schema, "minItems": 1, "maxItems": MAX_ITEMS},
    ]
}
Pricings = Annotated[tuple[str, ...], Checked(_pricings, _PRICINGS, _one_or_list)]
RuntimeVersion = Annotated[
    str | None, optional(matching(_RUNTIME_VERSION, "1 to 80 of a-z, 0-9, - and ."))
]
Slices = Annotated[int, count(64, 1)]
Race = Annotated[int | None, optional(count(5, 1))]
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
        Annotated[str, Checked(_variable)],
    ],
    mapping("variable names to values", _entries(_ENV_SCHEMA, ["string", "number", "boolean"])),
]
Secrets = Annotated[
    tuple[str, ...],
    names("the name of a secret", Checked(_env_name, schema_of(_ENV_SCHEMA)), secrets.MAX_SECRETS),
]
CHANNEL = r"[a-z][-a-z0-9]{0,38}[a-z0-9]"
channel = matching(CHANNEL, "the name of a channel: 2 to 40 of a-z, 0-9 and -")
Channels = Annotated[tuple[str, ...], names("a channel", channel)]
Command = Annotated[str | None, optional(text(MAX_TEXT))]
Folder = Annotated[str | None, optional(text(1024))]
Preemptions = Annotated[int, count(10_000)]
Failures = Annotated[int, count(1_000)]
Attempts = Annotated[int | None, optional(count(10_000, 1))]
Hold = Annotated[int, time_span("7d")]
Grace = Annotated[int, time_span("10m")]
Stall = Annotated[int, time_span("7d")]
Ttl = Annotated[int, time_span("90d")]
Wait = Annotated[int | None, optional(time_span("90d"))]
RunFor = Annotated[int | None, optional(time_span(*RUN_FOR))]
_RESERVATION = r"(projects/[a-z][-a-z0-9:.]{0,62}/(locations/[-a-z0-9]{1,30}/)?reservations/)?[a-z][-a-z0-9]{0,62}"
_reservation = matching(_RESERVATION, "a name, or projects/P/reservations/NAME")
Reservation = Annotated[str, Checked(or_empty(_reservation), schema_of(f"({_RESERVATION})?"))]
OnBadHost = Annotated[Literal["swap", "release"], Word("way to treat a bad host")]
Pattern = Annotated[str | None, optional(Checked(_regex))]
Patterns = Annotated[tuple[str, ...], names("a pattern", Checked(_regex, {"type": "string"}), 16)]
StepPattern = Annotated[str | None, optional(Checked(_step_regex))]
