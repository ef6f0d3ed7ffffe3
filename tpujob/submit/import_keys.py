"""Reads the mappings of another tool's file, and notes the outcome of every key, so that no key is lost silently."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, TypeVar

from tpujob.domain.spec import yaml
from tpujob.domain.spec.yaml import Document, KeyPath, describe, shown
from tpujob.errors import BadSpec

T = TypeVar("T")

Outcome = Literal["kept", "dropped", "warning", "question"]
#: the placeholder for the user's own value in published examples
PLACEHOLDER = "..."
_NAMES = {
    str: "text",
    int: "a number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "a mapping",
}


@dataclass(frozen=True, slots=True)
class KeyNote:
    """The outcome of one key of a file."""

    source: str
    line: int
    key: str
    outcome: Outcome
    text: str  #: the new key in the job file, or the reason


def documents(text: str, source: str, as_written: Collection[KeyPath] = ()) -> Iterator[Document]:
    """Yield the documents of a file, with line numbers of the whole file; `as_written` as in `yaml.load`. Raise BadSpec
    for invalid YAML."""
    starts = [match.start() for match in re.finditer(r"^---(?=\s|$)", text, re.M)]
    for start, end in pairwise([0, *starts, len(text)]):
        if re.sub(r"^(---)?\s*(#.*)?$", "", text[start:end], flags=re.M).strip():
            lines = "\n" * text.count("\n", 0, start) + text[start:end]
            yield yaml.load(lines, source, as_written)


class ImportReading:
    """The sections and the notes of one import. `table` has the usual outcome of keys: outcome -> new key, or reason ->
    keys. A section may note another outcome, or warn of a key."""

    def __init__(self, table: Mapping[Outcome, Mapping[str, str]]) -> None:
        self.notes: list[KeyNote] = []
        self.sections: list[Section] = []
        self.usual: dict[str, list[tuple[Outcome, str]]] = {}
        for outcome, texts in table.items():
            for text, keys in texts.items():
                for key in keys.split():
                    self.usual.setdefault(key, []).append((outcome, text))

    def finish(self) -> tuple[KeyNote, ...]:
        """Return the notes on all keys, in the order of the files."""
        for section in self.sections:
            section.finish()
        return tuple(sorted(dict.fromkeys(self.notes), key=lambda note: (note.source, note.line)))


class Section:
    """A mapping of a document; empty if the document has none there."""

    def __init__(
        self,
        document: Document,
        reading: ImportReading,
        path: KeyPath = (),
        label: str = "",
        value: Any = None,
    ) -> None:
        self._document, self._reading, self._path, self._label = document, reading, path, label
        self._noted: set[str] = set()
        self.source = document.source
        self.unknown = "tpujob has no such key"  #: the note on a key that no table has
        self.values: dict[str, Any] = {}
        value = value if path else document.data
        if value is not None and not isinstance(value, dict):
            raise self.error("", f"must be a mapping, not {describe(value)}")
        self.values |= value or {}
        reading.sections.append(self)

    def __contains__(self, key: str) -> bool:
        return self.values.get(key) not in (None, PLACEHOLDER)

    def get(self, key: str, *types: type) -> Any:
        """Return the value; None: there is none. Raise BadSpec if it has none of the types."""
        if key not in self:
            return None
        value = self.values[key]
        if types and type(value) not in types:
            expected = " or ".join(_NAMES[kind] for kind in types)
            raise self.error(key, f"must be {expected}, not {describe(value)}")
        return value

    def text(self, key: str) -> str:
        """Return the text of a key; empty: there is none."""
        return self.get(key, str) or ""

    def items(self, key: str) -> list[Any]:
        """Return the values of a list; a text or a number counts as a list of one value."""
        value = self.get(key, list, str, int)
        if value is None:
            return []
        return [*value] if isinstance(value, list) else [value]

    def child(self, key: str, label: str = "") -> "Section":
        """Return the mapping below a key."""
        self._noted.add(key)
        return self._below((key,), label or self._shown(key), self.get(key))

    def children(self, key: str, label: str = "") -> list["Section"]:
        """Return the mappings in the list below a key."""
        self._noted.add(key)
        label = label or f"{self._shown(key)}[]"
        values = enumerate(self.get(key, list) or ())
        return [self._below((key, number), label, value) for number, value in values]

    def _below(self, path: KeyPath, label: str, value: Any) -> "Section":
        return Section(self._document, self._reading, (*self._path, *path), label, value)

    def checked(self, key: str, check: Callable[[Any], T], value: Any = None) -> T:
        """Return the result of `check` for a value; default: that of the key. Raise BadSpec if it fails."""
        try:
            return check(self.get(key) if value is None else value)
        except (BadSpec, ValueError) as error:
            raise self.error(key, str(error)) from None

    def note(self, key: str, outcome: Outcome, text: str) -> None:
        """Add a note on a key, or on the whole mapping."""
        if outcome != "warning":
            self._noted.add(key)
        note = KeyNote(self.source, self.line(key), self._shown(key), outcome, text)
        self._reading.notes.append(note)

    def finish(self) -> None:
        """Add the usual notes on all keys that have none."""
        for key, value in self.values.items():
            if value == PLACEHOLDER:
                self.note(key, "question", "a placeholder, left out; write the value")
            elif key not in self._noted:
                unknown = ("dropped", self.unknown if key in self else "it is empty")
                usual = self._reading.usual.get(self._shown(key), ()) if key in self else ()
                for row in usual or [unknown]:
                    self.note(key, *row)

    def line(self, key: str = "") -> int:
        """Return the line of a key, or of the mapping itself."""
        return self._document.line((*self._path, key) if key in self.values else self._path)

    @property
    def place(self) -> str:
        """The file and the line of the mapping."""
        return f"{self.source}:{self.line()}"

    def error(self, key: str, text: str, hint: str = "") -> BadSpec:
        """Return an error about a key, or about the whole mapping."""
        prefix = f"{self._shown(key)}: " if self._shown(key) else ""
        return BadSpec(f"{self.source}:{self.line(key)}: {prefix}{text}", hint=hint)

    def _shown(self, key: str) -> str:
        return ".".join(part for part in (self._label, shown(key) if key else "") if part)
