"""Errors of a job file: translates pydantic's errors into our sentences with place, reason and allowed values."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from tpujob.domain.spec.yaml import EACH, Document, KeyPath, describe, shown, where
from tpujob.errors import BadSpec

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

M = TypeVar("M", bound=BaseModel)

MAX_SHOWN = 20  #: most problems in one error

#: the keys of each mapping with a closed set of keys, by the mapping's path, in which EACH may stand
Allowed = Mapping[KeyPath, Collection[str]]


@dataclass(frozen=True, slots=True)
class Problem:
    """An error in a job file, at a path."""

    path: KeyPath
    text: str

    def __str__(self) -> str:
        return f"{where(self.path)}: {self.text}" if self.path else self.text


def validate(model: type[M], data: Any, document: Document | None = None, *, of: str) -> M:
    """Return the model of the data. Raise BadSpec with all errors, and with lines if there is a document. `of` says
    what the data is: `a job file`."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        errors = error.errors(include_url=False)
    allowed = keys_of(model)
    raise bad_spec([_problem(error, allowed, of) for error in errors], document)


def keys_of(model: type[BaseModel], at: KeyPath = ()) -> Allowed:
    """Return the keys of the model and of all mappings in it, without fields that users cannot write."""
    fields = {f.alias or name: f for name, f in model.model_fields.items() if not f.exclude}
    keys_by_path: dict[KeyPath, Collection[str]] = {at: tuple(fields)}
    for key, field in fields.items():
        for path, part in _mappings_in(field.annotation, (*at, key)):
            keys_by_path |= keys_of(part, path)
    return keys_by_path


def _mappings_in(kind: Any, at: KeyPath) -> Iterator[tuple[KeyPath, type[BaseModel]]]:
    """Yield each model in a type with its path: the type itself, or one in an optional value, a list or a mapping."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield at, kind
    elif (origin := get_origin(kind)) in (tuple, dict):
        yield from _mappings_in(get_args(kind)[origin is dict], (*at, EACH))
    elif origin in (Annotated, Union, UnionType):
        for part in get_args(kind)[: 1 if origin is Annotated else None]:
            yield from _mappings_in(part, at)


def bad_spec(problems: Iterable[Problem], document: Document | None = None) -> BadSpec:
    """Return one error with the first `MAX_SHOWN` problems. With a document they have file and line, in its order."""
    if document is None:
        lines = [str(problem) for problem in problems]
    else:
        placed = sorted((document.line(problem.path), str(problem)) for problem in problems)
        lines = [f"{document.source}:{line}: {text}" for line, text in placed]
    if len(lines) > MAX_SHOWN:
        lines[MAX_SHOWN:] = [f"... and {len(lines) - MAX_SHOWN} more"]
    return BadSpec("\n".join(lines))


def _problem(error: ErrorDetails, allowed: Allowed, of: str) -> Problem:
    path = error["loc"]
    if error["type"] == "value_error":
        reason = error["ctx"]["error"]  # pyright: ignore[reportTypedDictNotRequiredAccess]
        if len(path) > 1 and path[-1] == "[key]":  # pydantic's mark for a bad key of a mapping
            return Problem(path[:-1], f"the name {reason}")
        return Problem(path, str(reason))
    if error["type"] == "extra_forbidden":
        return Problem(path, _unknown_key(path, allowed, of))
    if error["type"] == "missing":
        return Problem(path, "is missing, and required")
    if error["type"] == "model_type":
        keys = ", ".join(sorted(allowed[_generic_path(path, allowed)]))
        return Problem(path, f"must be a mapping (keys: {keys}), not {describe(error['input'])}")
    if error["type"] == "bool_type":
        return Problem(path, f"must be true or false, not {describe(error['input'])}")
    return Problem(path, f"{describe(error['input'])} is not allowed here")


def _unknown_key(path: KeyPath, allowed: Allowed, of: str) -> str:
    parent, key = path[:-1], str(path[-1])
    if key == "<<" or key.startswith("x-"):
        return "no such key: merges (`<<`) and keys of your own (`x-`) do not exist; an alias (`*name`) repeats a value"
    siblings = sorted(allowed[_generic_path(parent, allowed)])
    listed = f"Allowed in {where(parent) or of}: {', '.join(siblings)}"
    similar = difflib.get_close_matches(key[:60], siblings, n=1, cutoff=0.6)
    elsewhere = [
        where((*parent_path, key)).replace(f".'{EACH}'", EACH)
        for parent_path, keys in allowed.items()
        if key in keys
    ]
    meant = [*similar, *elsewhere]
    hint = f"; did you mean {' or '.join(shown(word) for word in meant)}?" if meant else "."
    return f"no such key{hint} {listed}"


def _generic_path(path: KeyPath, allowed: Allowed) -> KeyPath:
    """Return the path as `allowed` has it: EACH replaces every part that is no key there."""
    result: KeyPath = ()
    for part in path:
        extended = (*result, part)
        is_key = any(other[: len(extended)] == extended for other in allowed)
        result = extended if is_key else (*result, EACH)
    return result
