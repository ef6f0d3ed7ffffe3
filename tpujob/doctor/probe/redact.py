"""Removes from answers what names a project, a person or a machine, and what opens a door. Pure.

Equal values get equal replacements within one run, so that it can still be seen which answers speak of the same thing.
What is known to be secret by name is replaced wherever it stands; the rest is found by its form.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, cast

#: fields whose whole value is removed, whatever it is
_SECRET = re.compile(r"(access|id|refresh)?_?token$|private_?key|password|authorization", re.I)
#: fields whose value is a number of ours in disguise
_NUMBERED = frozenset({"uid", "uniqueid", "unique_id", "projectnumber", "etag"})

#: the form of what is removed, and the word that stands for it; the first that matches counts
_FORMS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"-----BEGIN [^-]+-----.*?(-----END [^-]+-----|\Z)", re.S), "key"),
    (re.compile(r"\bya29\.[\w.-]+|\beyJ[\w-]+\.[\w-]+\.[\w-]*|\bBearer\s+[\w.~+/=-]+"), "token"),
    (re.compile(r"\b(?:AAAA[B-E][A-Za-z0-9+/]{16,}={0,3})"), "key"),
    (re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"), "mail"),
    # 0.0.0.0/8 has no hosts, and libtpu's versions have this form
    (re.compile(r"(?<![\w.])(?!0\.)(?:\d{1,3}\.){3}\d{1,3}(?![\w.])"), "ip"),
    (
        re.compile(r"(?<![\w:])(?:[0-9a-f]{1,4}:){5,7}[0-9a-f]{1,4}(?![\w:])", re.I),
        "ip",
    ),  # not a time
    (re.compile(r"(?<![\w:])(?:[0-9a-f]{1,4}:)+(?::[0-9a-f]{1,4})+(?![\w:])", re.I), "ip"),
    (re.compile(r"(?<=projects/)[a-z0-9][-a-z0-9.:]*"), "project"),
    (re.compile(r"(?<=PROJECT_ID: ')[^']+"), "project"),  # in `tpu-env`
    (re.compile(r"(?<=reservations/)(?!-)[a-z0-9][-a-z0-9]*"), "reservation"),
    (re.compile(r"(?<=networks/)[a-z][-a-z0-9]*"), "network"),  # subnetworks, too
    (re.compile(r"(?<=gs://)[a-z0-9][-a-z0-9_.]{2,}"), "bucket"),
    (re.compile(r"(?<=/b/)[a-z0-9][-a-z0-9_.]{2,}"), "bucket"),
    (re.compile(r"(?<=t1v-n-)[0-9a-f]+"), "machine"),  # the name of a TPU VM
    (re.compile(r"\b[0-9]{9,21}\b"), "number"),
)


class Redactor:
    """One for a run. `known`: texts that are removed wherever they stand, with the word for each."""

    def __init__(self, known: Mapping[str, str]) -> None:
        self._names: dict[str, str] = {}
        #: the longest first: one may be part of another
        self._known = [
            (re.compile(rf"(?<![A-Za-z0-9]){re.escape(text)}(?![A-Za-z0-9])"), word)
            for text, word in sorted(known.items(), key=lambda one: -len(one[0]))
            if text
        ]

    def text(self, said: str) -> str:
        for pattern, word in (*self._known, *_FORMS):
            said = pattern.sub(self._replacing(word), said)
        return said

    def json(self, value: Any, field: str = "") -> Any:
        """The same structure; keys are redacted, too."""
        if isinstance(value, Mapping):
            of = cast("Mapping[str, Any]", value)
            return {self.text(str(key)): self.json(one, str(key)) for key, one in of.items()}
        if isinstance(value, list | tuple):
            return [self.json(one, field) for one in cast("list[Any]", value)]
        if _SECRET.search(field) and value not in ("", None):
            return self._name(str(value), "secret")
        if field.lower() in _NUMBERED:
            return self._name(str(value), "number")
        return self.text(value) if isinstance(value, str) else value

    def _replacing(self, word: str) -> Callable[[re.Match[str]], str]:
        return lambda found: self._name(found[0], word)

    def _name(self, value: str, word: str) -> str:
        """`project-1`; the same for the same value."""
        if value in self._names.values():
            return value
        if value not in self._names:
            count = sum(name.startswith(f"{word}-") for name in self._names.values())
            self._names[value] = f"{word}-{count + 1}"
        return self._names[value]
