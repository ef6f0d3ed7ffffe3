"""The elements of an array or a sweep: the same job file with `{index}` and the parameters of a row filled in."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from tpujob.domain.spec import group
from tpujob.domain.spec.group import INDEX, PARAMETER, Row, value_text
from tpujob.domain.spec.jobspec import JobSpec

#: not after `$`, which is the shell's
_BRACES = re.compile(rf"(?<!\$)\{{({PARAMETER})\}}")


@dataclass(frozen=True, slots=True)
class Element:
    index: int
    params: dict[str, str]  #: the row of the matrix, as text
    spec: JobSpec


def size(spec: JobSpec) -> int:
    """How many elements it makes; 0: it is no group."""
    return group.count(spec.array, spec.matrix, spec.exclude)


def at_once(spec: JobSpec) -> int | None:
    """How many elements may have a slice at once; None: all of them."""
    return spec.array.at_once if spec.array and spec.array.at_once else spec.at_once


def elements(spec: JobSpec, first: int = 0, count: int | None = None) -> Iterator[Element]:
    """The elements from that index on, at most so many; each is made when it is asked for."""
    every = group.rows(spec.array, spec.matrix, spec.exclude)
    rows = islice(every, first, None if count is None else first + count)
    for index, row in enumerate(rows, first):
        params = {name: value_text(value) for name, value in row.items()}
        yield Element(index, params, _filled(spec, index, row))


def longest(spec: JobSpec) -> JobSpec:
    """An element with the longest text of each parameter: if it may be that long, so may all the others."""
    row = {n: max(v, key=lambda one: len(value_text(one))) for n, v in (spec.matrix or {}).items()}
    return _filled(spec, max(size(spec), 1) - 1, row)


def warnings(spec: JobSpec) -> list[str]:
    """A warning for each name in braces that is no parameter, and for each parameter that a bundled program is not
    given: it reads its arguments alone."""
    if not spec.is_group:
        return []
    known = (INDEX, *(spec.matrix or {}))
    texts = (spec.run.command or "", *spec.run.args.values(), *spec.run.env.values())
    names = [m[1] for text in texts if isinstance(text, str) for m in _BRACES.finditer(text)]
    stay = (
        f"{{{name}}} stays as it is: the parameters are {', '.join(known)}"
        for name in dict.fromkeys(names)
        if name not in known
    )
    unused = (
        f"{name} changes nothing: write {{{name}}} in the arguments of the program"
        for name in spec.matrix or ()
        if spec.run.workload and name not in names
    )
    return [*stay, *unused]


def _filled(spec: JobSpec, index: int, row: Row) -> JobSpec:
    known = {**row, INDEX: index}

    def text(given: str) -> str:
        return _BRACES.sub(lambda m: value_text(known[m[1]]) if m[1] in known else m[0], given)

    def value(given: Any) -> Any:
        if not isinstance(given, str):
            return given
        whole = _BRACES.fullmatch(given)
        return known[whole[1]] if whole and whole[1] in known else text(given)

    run = spec.run.model_copy(
        update={
            "command": spec.run.command and text(spec.run.command),
            "args": {name: value(given) for name, given in spec.run.args.items()},
            "env": {name: text(given) for name, given in spec.run.env.items()},
        }
    )
    own = {"name": f"{spec.name}-{index}", "run": run, "notify": ()}  # the group reports its end
    none = {"array": None, "matrix": None, "exclude": (), "at_once": None}
    return spec.model_copy(update=own | none)
