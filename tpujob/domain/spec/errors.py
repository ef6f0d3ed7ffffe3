"""What is wrong with a job file, in sentences: pydantic's findings as problems with place, reason and what is allowed.

None of pydantic's own wording gets out of here.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import ValidationError

from tpujob.domain.spec.yaml import Document, KeyPath, describe, shown, where
from tpujob.errors import BadSpec

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

MAX_SHOWN = 20

#: Keys that are planned and have no effect yet: refused by name, so that no job file relies on them.
NOT_YET: Mapping[KeyPath, Collection[str]] = {
    (): {"finish_by"},
}

#: In a path of `Allowed`: any item of a list, or of a mapping with keys of the user's own.
EACH = "[]"

#: The keys of each mapping that has a closed set of them, by its path.
Allowed = Mapping[KeyPath, Collection[str]]


@dataclass(frozen=True, slots=True)
class Problem:
    path: KeyPath
    text: str

    def __str__(self) -> str:
        return f"{where(self.path)}: {self.text}" if self.path else self.text


def problems(error: ValidationError, allowed: Allowed, *, of: str = "a job file") -> list[Problem]:
    """One problem for each finding; `of` is what the file is."""
    return [_problem(found, allowed, of) for found in error.errors(include_url=False)]


def bad_spec(found: Iterable[Problem], document: Document | None = None) -> BadSpec:
    """One error that says them all, in the order of the file; with file and line where there is a file."""
    if document is None:
        lines = [str(problem) for problem in found]
    else:
        placed = sorted((document.line(problem.path), str(problem)) for problem in found)
        lines = [f"{document.source}:{line}: {text}" for line, text in placed]
    if len(lines) > MAX_SHOWN:
        lines[MAX_SHOWN:] = [f"... and {len(lines) - MAX_SHOWN} more"]
    return BadSpec("\n".join(lines))


def _problem(found: ErrorDetails, allowed: Allowed, of: str) -> Problem:
    path = found["loc"]
    if found["type"] == "value_error":
        if len(path) > 1 and path[-1] == "[key]":  # pydantic's mark for a bad key of a mapping
            return Problem(path[:-1], f"the name {found['ctx']['error']}")  # pyright: ignore[reportTypedDictNotRequiredAccess]
        return Problem(path, str(found["ctx"]["error"]))  # pyright: ignore[reportTypedDictNotRequiredAccess]
    if found["type"] == "extra_forbidden":
        return Problem(path, _unknown_key(path, allowed, of))
    if found["type"] == "missing":
        return Problem(path, "is missing, and required")
    if found["type"] in ("model_type", "model_attributes_type", "dict_type"):
        keys = ", ".join(sorted(allowed.get(_any_item(path, allowed), ())))
        return Problem(
            path, f"must be a mapping with keys of {keys}; not {describe(found['input'])}"
        )
    if found["type"] == "bool_type":
        return Problem(path, f"must be true or false, not {describe(found['input'])}")
    return Problem(path, f"{describe(found['input'])} is not allowed here")


def _unknown_key(path: KeyPath, allowed: Allowed, of: str) -> str:
    parent, key = path[:-1], str(path[-1])
    here = sorted(allowed[_any_item(parent, allowed)])
    listed = f"Allowed in {where(parent) or of}: {', '.join(here)}"
    if key in NOT_YET.get(parent, ()):
        return f"not supported yet. {listed}"
    near = difflib.get_close_matches(key[:60], here, n=1, cutoff=0.6)
    elsewhere = [
        where((*other, key)).replace(f".'{EACH}'", EACH)
        for other, keys in allowed.items()
        if key in keys
    ]
    meant = [*near, *elsewhere]
    hint = f"; did you mean {' or '.join(shown(word) for word in meant)}?" if meant else "."
    return f"no such key{hint} {listed}"


def _any_item(path: KeyPath, allowed: Allowed) -> KeyPath:
    """The path as `allowed` has it: a part that it does not name is EACH."""
    found: KeyPath = ()
    for part in path:
        named = (*found, part)
        known = any(other[: len(named)] == named for other in allowed)
        found = named if known else (*found, EACH)
    return found
