"""What is wrong with a job file, in sentences: pydantic's findings as problems with place, reason and what is allowed.

None of pydantic's own wording gets out of here.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from tpujob.domain.spec.yaml import Document, KeyPath, describe, shown, where
from tpujob.errors import BadSpec

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

M = TypeVar("M", bound=BaseModel)

MAX_SHOWN = 20

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


def validate(model: type[M], data: Any, document: Document | None = None, *, of: str) -> M:
    """Return the record in the data of what `of` names, such as a job file. Raises BadSpec that says everything that
    is wrong, each with its line where there is a document."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        allowed, found = keys_of(model), error.errors(include_url=False)
    raise bad_spec([_problem(one, allowed, of) for one in found], document)


def keys_of(model: type[BaseModel], at: KeyPath = ()) -> Allowed:
    """Return the keys of a mapping of that kind, and of all mappings in it. Fields that are not written have none."""
    fields = {f.alias or name: f for name, f in model.model_fields.items() if not f.exclude}
    found: dict[KeyPath, Collection[str]] = {at: tuple(fields)}
    for key, field in fields.items():
        for path, part in _parts(field.annotation, (*at, key)):
            found |= keys_of(part, path)
    return found


def _parts(kind: Any, at: KeyPath) -> Iterator[tuple[KeyPath, type[BaseModel]]]:
    """The kinds of mappings in a type: itself, or those of an optional value, a list, or a mapping to them."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield at, kind
    elif (origin := get_origin(kind)) in (tuple, dict):
        yield from _parts(get_args(kind)[origin is dict], (*at, EACH))
    elif origin in (Annotated, Union, UnionType):
        for one in get_args(kind)[: 1 if origin is Annotated else None]:
            yield from _parts(one, at)


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
