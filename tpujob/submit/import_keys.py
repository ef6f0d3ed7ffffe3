"""A mapping of another tool's file, read key by key. Each key is noted with what became of it, so that none is lost."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, TypeVar

from tpujob.domain.spec import yaml
from tpujob.domain.spec.yaml import Document, KeyPath, describe, shown
from tpujob.errors import BadSpec

T = TypeVar("T")

Outcome = Literal["kept", "dropped", "warning", "question"]
#: stands in published examples for a value of one's own
PLACEHOLDER = "..."
_NAMES = {str: "text", int: "a number", bool: "true or false", list: "a list", dict: "a mapping"}


@dataclass(frozen=True, slots=True)
class KeyNote:
    """What became of one key of a file."""

    source: str
    line: int
    key: str
    outcome: Outcome
    text: str  #: the key of the job file, or the reason


def documents(text: str, source: str) -> Iterator[Document]:
    """The documents of a file, each with the lines of the whole file. Raises BadSpec."""
    starts = [match.start() for match in re.finditer(r"^---(?=\s|$)", text, re.M)]
    for start, end in pairwise([0, *starts, len(text)]):
        if re.sub(r"^(---)?\s*(#.*)?$", "", text[start:end], flags=re.M).strip():
            yield yaml.load("\n" * text.count("\n", 0, start) + text[start:end], source)


class ImportReading:
    """All that one import reads. `table` says what becomes of keys: outcome -> key of the job file, or reason -> keys.
    A section may note something else of a key, and warn of it."""

    def __init__(self, table: Mapping[Outcome, Mapping[str, str]]) -> None:
        self.notes: list[KeyNote] = []
        self.sections: list[Section] = []
        self.usual: dict[str, list[tuple[Outcome, str]]] = {}
        for outcome, texts in table.items():
            for text, keys in texts.items():
                for key in keys.split():
                    self.usual.setdefault(key, []).append((outcome, text))

    def finish(self) -> tuple[KeyNote, ...]:
        """What became of every key, in the order of the files."""
        for section in self.sections:
            section.finish()
        return tuple(sorted(dict.fromkeys(self.notes), key=lambda one: (one.source, one.line)))


class Section:
    """One mapping of a document; empty where there is none."""

    def __init__(
        self,
        document: Document,
        reading: ImportReading,
        path: KeyPath = (),
        label: str = "",
        value: Any = None,
    ) -> None:
        self._document, self._reading, self._path, self._label = document, reading, path, label
        self._settled: set[str] = set()
        self.source, self.unknown = document.source, "tpujob has no such key"
        value = value if path else document.data
        self.values: dict[str, Any] = {}
        if value is not None and not isinstance(value, dict):
            raise self.error("", f"must be a mapping, not {describe(value)}")
        self.values |= value or {}
        reading.sections.append(self)

    def __contains__(self, key: str) -> bool:
        return self.values.get(key) not in (None, PLACEHOLDER)

    def get(self, key: str, *types: type) -> Any:
        """The value; None if there is none. Raises BadSpec if it is of none of the types."""
        if key not in self:
            return None
        value = self.values[key]
        if types and (type(value) not in types):
            wanted = " or ".join(_NAMES[one] for one in types)
            raise self.error(key, f"must be {wanted}, not {describe(value)}")
        return value

    def text(self, key: str) -> str:
        """The text; empty if there is none."""
        return self.get(key, str) or ""

    def items(self, key: str) -> list[Any]:
        """The values of a list; a text is a list of itself."""
        value = self.get(key, list, str, int)
        return [*value] if isinstance(value, list) else [] if value is None else [value]

    def child(self, key: str, label: str = "") -> "Section":
        """The mapping below a key."""
        self._settled.add(key)
        at, label = (*self._path, key), label or self._shown(key)
        return Section(self._document, self._reading, at, label, self.get(key))

    def children(self, key: str, label: str = "") -> list["Section"]:
        """The mappings in the list below a key."""
        self._settled.add(key)
        at, label = (*self._path, key), label or f"{self._shown(key)}[]"
        values = enumerate(self.get(key, list) or ())
        return [Section(self._document, self._reading, (*at, n), label, one) for n, one in values]

    def checked(self, key: str, check: Callable[[Any], T], value: Any = None) -> T:
        """What `check` makes of a value, or of the key's. Raises BadSpec with the line where it refuses it."""
        try:
            return check(self.get(key) if value is None else value)
        except (BadSpec, ValueError) as error:
            raise self.error(key, str(error)) from None

    def note(self, key: str, outcome: Outcome, text: str) -> None:
        """Note what became of a key, or of the whole mapping."""
        if outcome != "warning":
            self._settled.add(key)
        note = KeyNote(self.source, self.line(key), self._shown(key), outcome, text)
        self._reading.notes.append(note)

    def finish(self) -> None:
        """Note what became of the keys of which it has not been noted."""
        for key, value in self.values.items():
            if value == PLACEHOLDER:
                self.note(key, "question", "a placeholder, left out; write the value")
            elif key not in self._settled:
                unknown = ("dropped", self.unknown if key in self else "it is empty")
                usual = self._reading.usual.get(self._shown(key), ()) if key in self else ()
                for row in usual or [unknown]:
                    self.note(key, *row)

    def line(self, key: str = "") -> int:
        """The line of a key, or of the mapping itself."""
        return self._document.line((*self._path, key) if key in self.values else self._path)

    @property
    def place(self) -> str:
        return f"{self.source}:{self.line()}"

    def error(self, key: str, text: str, hint: str = "") -> BadSpec:
        """The error to raise about a key, or about the whole mapping."""
        what = f"{self._shown(key)}: " if self._shown(key) else ""
        return BadSpec(f"{self.source}:{self.line(key)}: {what}{text}", hint=hint)

    def _shown(self, key: str) -> str:
        return ".".join(part for part in (self._label, shown(key) if key else "") if part)
