"""A strict reader of YAML that keeps the line of every key. Knows nothing of the keys' meaning.

Reads the parser's events, so a hostile file that nests, repeats or grows beyond the limits below is refused early.
Scalars follow YAML 1.2 (`1e-3` is a number; `no` and `12:30` are text). Errors name the file and the wrong line.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import yaml

from tpujob.errors import BadSpec

MAX_BYTES = 256 * 1024
MAX_VALUES = 10_000  #: the values of an alias count for each of its uses
MAX_DEPTH = 12

#: a place in a document: keys and list indexes from the top
KeyPath = tuple[str | int, ...]
#: in a path that stands for many: any item of a list, or of a mapping with the user's own keys
EACH = "[]"


@dataclass(frozen=True, slots=True)
class Document:
    """A mapping, with the lines of its parts."""

    source: str
    data: dict[str, Any]
    lines: Mapping[KeyPath, int]  #: numbered from 1; for the value of a key, the line of the key

    def line(self, path: KeyPath) -> int:
        """Return the line of the part at the path, or of the nearest part around it."""
        while path not in self.lines:
            path = path[:-1]
        return self.lines[path]


def load(text: str, source: str, as_written: Collection[KeyPath] = ()) -> Document:
    """Return the mapping in the text, from the file `source`. Raise BadSpec for other text. `as_written`: paths of
    values that stay text even if they look like numbers, true or false."""
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise BadSpec(
            f"{source}: is longer than {MAX_BYTES // 1024} KiB, the most that it may have"
        )
    text = text.removeprefix("\ufeff")
    try:
        return _Reader(text, source, as_written).document()
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error, text, source) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        code = error.character if isinstance(error.character, int) else ord(error.character)
        raise BadSpec(f"{source}:{line}: the character U+{code:04X} is not allowed") from None


def _syntax_error(error: yaml.MarkedYAMLError, text: str, source: str) -> BadSpec:
    mark = error.problem_mark or error.context_mark
    number = mark.line if mark else 0
    lines = text.splitlines()
    line = lines[number] if number < len(lines) else ""
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return BadSpec(f"{source}:{number + 1}: a tab in the indentation; indent with spaces")
    problem = ", ".join(part for part in (error.context, error.problem) if part)
    escape = "unknown escape character" in (error.problem or "")
    hint = r"in double quotes \ begins an escape: write it in single quotes" if escape else ""
    return BadSpec(f"{source}:{number + 1}: not valid YAML: {problem}", hint=hint)


class _Unquoted(str):
    """An unquoted scalar, as it was written."""

    __slots__ = ()


class _Reader:
    """A single pass over the parser's events of a text, then one over its values."""

    def __init__(self, text: str, source: str, as_written: Collection[KeyPath]) -> None:
        self._source, self._as_written = source, as_written
        self._events: Iterator[yaml.Event] = yaml.parse(  # pyright: ignore[reportUnknownMemberType]
            text, Loader=yaml.SafeLoader
        )
        self._lines: dict[KeyPath, int] = {}
        #: a value and the number of values in it, by anchor
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._values = 0

    def document(self) -> Document:
        next(self._events)  # the stream's start
        start = next(self._events)
        first = next(self._events) if isinstance(start, yaml.DocumentStartEvent) else start
        self._lines[()] = _line(first)
        if not isinstance(first, yaml.MappingStartEvent):
            data = None if first is start else self._read(self._value(first, ()), ())
            if data is None:
                raise BadSpec(f"{self._source}: the file is empty")
            raise self._bad(first, f"must hold a mapping of keys to values, not {describe(data)}")
        data = self._value(first, ())
        next(self._events)  # the document's end
        after = next(self._events)
        if isinstance(after, yaml.DocumentStartEvent):
            raise self._bad(after, "a second document begins here; the file may hold one")
        return Document(self._source, self._read(data, ()), self._lines)

    def _value(self, event: yaml.Event, path: KeyPath) -> Any:
        """Return the value that begins with `event`, and consume its events."""
        before = self._values
        self._count(event, 1)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        if len(path) > MAX_DEPTH:
            raise self._bad(event, f"nested more than {MAX_DEPTH} levels deep")
        if getattr(event, "tag", None) is not None:
            raise self._bad(event, "tags (`!…`) are not allowed; write the plain value")
        if isinstance(event, yaml.MappingStartEvent):
            value = self._mapping(path)
        elif isinstance(event, yaml.SequenceStartEvent):
            value = self._sequence(path)
        else:
            value = self._scalar(event)
        anchor = getattr(event, "anchor", None)
        if anchor is not None:
            self._anchors[anchor] = (value, self._values - before)
        return value

    def _mapping(self, path: KeyPath) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent) or event.tag is not None or event.anchor:
                raise self._bad(event, "a key must be plain text")
            key = event.value
            if key in mapping:
                first = self._lines[(*path, key)]
                raise self._bad(event, f"{where((*path, key))}: given twice, first in line {first}")
            self._lines[(*path, key)] = _line(event)
            mapping[key] = self._value(next(self._events), (*path, key))
        return mapping

    def _sequence(self, path: KeyPath) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            item_path = (*path, len(items))
            self._lines[item_path] = _line(event)
            items.append(self._value(event, item_path))
        return items

    def _scalar(self, event: yaml.Event) -> Any:
        assert isinstance(event, yaml.ScalarEvent)
        quoted = event.style is not None  # or a block
        return event.value if quoted else _Unquoted(event.value)

    def _read(self, value: Any, path: KeyPath) -> Any:
        """Return a value with its unquoted scalars read, unless they stay as they were written."""
        if isinstance(value, dict):
            items = cast("dict[str, Any]", value).items()
            return {key: self._read(part, (*path, key)) for key, part in items}
        if isinstance(value, list):
            parts = cast("list[Any]", value)
            return [self._read(part, (*path, n)) for n, part in enumerate(parts)]
        if not isinstance(value, _Unquoted):
            return value
        is_item = bool(path) and isinstance(
            path[-1], int
        )  # `null` in a list is a word of its author
        if (is_item or _PLAIN.get(value, value) is not None) and any(
            len(path) == len(pattern)
            and all(b in (EACH, a) for a, b in zip(path, pattern, strict=True))
            for pattern in self._as_written
        ):
            return str(value)
        if re.fullmatch(r"[-+]?[0-9]{19,}|0[xo][0-9a-fA-F]{16,}", value):
            line = Document(self._source, {}, self._lines).line(path)
            text = "the number is too large; put it in quotes if it is text"
            raise BadSpec(f"{self._source}:{line}: {text}")
        return plain(str(value))

    def _alias(self, event: yaml.AliasEvent) -> Any:
        if event.anchor not in self._anchors:
            raise self._bad(event, f"the alias *{event.anchor} stands for nothing above")
        value, size = self._anchors[event.anchor]
        self._count(event, size)
        return value

    def _count(self, event: yaml.Event, values: int) -> None:
        self._values += values
        if self._values > MAX_VALUES:
            prefix = "with its aliases written out, " if self._anchors else ""
            raise self._bad(event, f"{prefix}the file holds more than {MAX_VALUES:,} values")

    def _bad(self, event: yaml.Event, text: str) -> BadSpec:
        return BadSpec(f"{self._source}:{_line(event)}: {text}")


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1


_PLAIN = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_SPECIAL = re.compile(r"([-+]?)\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


def plain(text: str) -> Any:
    """Return the value of an unquoted scalar by YAML 1.2; `007` stays text, as a number would lose its zeros."""
    if text in _PLAIN:
        return _PLAIN[text]
    if _INT.fullmatch(text):
        return int(text, 0)
    if _SPECIAL.fullmatch(text):
        return float(text.replace(".", ""))
    if _FLOAT.fullmatch(text) and not re.fullmatch(r"[-+]?0[0-9]+", text):
        return float(text)
    return text


def where(path: KeyPath) -> str:
    """Return the path as text: `tpu.zones[1]`. Keys that are no plain words are quoted."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + shown(part)
    return text


def shown(word: str) -> str:
    """Return a word from a file, safe to print: quoted unless it is plain, and cut to 60 characters."""
    return word if re.fullmatch(r"[A-Za-z0-9_][-A-Za-z0-9_./]{0,59}", word) else repr(word[:60])


def describe(value: Any) -> str:
    """Return a few words that describe the value in an error."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return (
            f"the number {value}" if isinstance(value, float) or abs(value) < 10**18 else "a number"
        )
    if isinstance(value, str):
        return f"the text {value[:60]!r}"
    return "a list" if isinstance(value, (list, tuple)) else "a mapping"
