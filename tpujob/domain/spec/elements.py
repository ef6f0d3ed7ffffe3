"""The elements of an array or a sweep: the same job file with `{index}` and the parameters of a row filled in."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from tpujob.domain.spec import group
from tpujob.domain.spec.group import INDEX, PARAMETER, Row, value_text
from tpujob.domain.spec.jobspec import JobSpec

#: a name in braces; `${NAME}` is left to the shell
_BRACES = re.compile(rf"(?<!\$)\{{({PARAMETER})\}}")


@dataclass(frozen=True, slots=True)
class Element:
    """One job of an array or a sweep."""

    index: int
    params: dict[str, str]  #: the row of the matrix, as text
    spec: JobSpec


def size(spec: JobSpec) -> int:
    """Return the number of elements that the spec makes; 0: the spec is no group."""
    return group.count(spec.array, spec.matrix, spec.exclude)


def at_once(spec: JobSpec) -> int | None:
    """Return how many elements may have a slice at once; None: all."""
    return spec.array.at_once if spec.array and spec.array.at_once else spec.at_once


def elements(spec: JobSpec, first: int = 0, count: int | None = None) -> Iterator[Element]:
    """Yield the elements from index `first` on, at most `count`, each made when it is needed."""
    rows = group.rows(spec.array, spec.matrix, spec.exclude)
    rows = islice(rows, first, None if count is None else first + count)
    for index, row in enumerate(rows, first):
        params = {name: value_text(value) for name, value in row.items()}
        yield Element(index, params, _element_spec(spec, index, row))


def longest(spec: JobSpec) -> JobSpec:
    """Return an element with the longest text of each parameter: if its length is allowed, so is that of all others."""
    matrix = spec.matrix or {}
    row = {name: max(values, key=lambda v: len(value_text(v))) for name, values in matrix.items()}
    return _element_spec(spec, max(size(spec), 1) - 1, row)


def warnings(spec: JobSpec) -> list[str]:
    """Return a warning for each unknown name in braces, and for each parameter that a bundled program does not use."""
    if not spec.is_group:
        return []
    parameters = (INDEX, *(spec.matrix or {}))
    texts = (spec.run.command or "", *spec.run.args.values(), *spec.run.env.values())
    names = [m[1] for text in texts if isinstance(text, str) for m in _BRACES.finditer(text)]
    unchanged = (
        f"{{{name}}} stays as it is: the parameters are {', '.join(parameters)}"
        for name in dict.fromkeys(names)
        if name not in parameters
    )
    unused = (
        f"{name} changes nothing: write {{{name}}} in the arguments of the program"
        for name in spec.matrix or ()
        if spec.run.workload and name not in names
    )
    return [*unchanged, *unused]


def _element_spec(spec: JobSpec, index: int, row: Row) -> JobSpec:
    values = {**row, INDEX: index}

    def text(template: str) -> str:
        return _BRACES.sub(lambda m: value_text(values[m[1]]) if m[1] in values else m[0], template)

    def value(template: Any) -> Any:
        if not isinstance(template, str):
            return template
        whole = _BRACES.fullmatch(template)
        return values[whole[1]] if whole and whole[1] in values else text(template)

    run = spec.run.model_copy(
        update={
            "command": spec.run.command and text(spec.run.command),
            "args": {name: value(arg) for name, arg in spec.run.args.items()},
            "env": {name: text(variable) for name, variable in spec.run.env.items()},
        }
    )
    # without channels, as the group reports its end
    changes = {"name": f"{spec.name}-{index}", "run": run, "notify": ()}
    no_group = {"array": None, "matrix": None, "exclude": (), "at_once": None}
    return spec.model_copy(update=changes | no_group)
