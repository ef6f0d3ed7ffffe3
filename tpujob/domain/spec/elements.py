"""The elements of an array or a sweep: the same job file with `{index}` and the parameters of a row filled in."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from shlex import quote
from typing import Any

from tpujob.domain.spec import group
from tpujob.domain.spec.fields import value_text
from tpujob.domain.spec.group import INDEX, Row
from tpujob.domain.spec.jobspec import JobSpec
from tpujob.domain.spec.shell import BRACES, WORD, fill, placeholders
from tpujob.domain.spec.yaml import plain


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
    row = {n: max(values, key=lambda v: len(quote(value_text(v)))) for n, values in matrix.items()}
    return _element_spec(spec, max(size(spec), 1) - 1, row)


def warnings(spec: JobSpec) -> list[str]:
    """Return a warning for each unknown name in braces, for each parameter that a bundled program does not use, and for
    each value that may be meant as no word or several words of a command."""
    if not spec.is_group:
        return []
    parameters = (INDEX, *(spec.matrix or {}))
    texts = (spec.run.command or "", *spec.run.args.values(), *spec.run.env.values())
    names = [m[1] for text in texts if isinstance(text, str) for m in BRACES.finditer(text)]
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
    words = dict.fromkeys(p.name for p in placeholders(spec.run.command or "") if p.quoting == WORD)
    split = (
        f"{{{name}}} is one word of the command, also with the value {value[:60]!r}; "
        f"$TPUJOB_PARAM_{name.upper()} without quotes becomes several words, or none"
        for name in words
        for value in [
            v for v in map(value_text, (spec.matrix or {}).get(name, ())) if _is_no_word(v)
        ][:1]
    )
    return [*unchanged, *unused, *split]


def _is_no_word(value: str) -> bool:
    """Return whether a value may be meant as the options of a command: `--fast --lr 1`, or none."""
    return not value or (value.startswith("-") and len(value.split()) > 1)


def _element_spec(spec: JobSpec, index: int, row: Row) -> JobSpec:
    values = {name: value_text(value) for name, value in {**row, INDEX: index}.items()}

    def text(template: str) -> str:
        return BRACES.sub(lambda m: values.get(m[1], m[0]), template)

    def value(template: Any) -> Any:
        if not isinstance(template, str):
            return template
        whole = BRACES.fullmatch(template)
        return _argument(values[whole[1]]) if whole and whole[1] in values else text(template)

    run = spec.run.model_copy(
        update={
            "command": spec.run.command and fill(spec.run.command, values),
            "args": {name: value(arg) for name, arg in spec.run.args.items()},
            "env": {name: text(variable) for name, variable in spec.run.env.items()},
        }
    )
    # without channels, as the group reports its end
    changes = {"name": f"{spec.name}-{index}", "run": run, "notify": ()}
    no_group = {"array": None, "matrix": None, "exclude": (), "at_once": None}
    return spec.model_copy(update=changes | no_group)


def _argument(text: str) -> Any:
    """Return the value of an argument: true, false or a number, unless the number would be written otherwise."""
    value = plain(text)
    same = isinstance(value, int) or (isinstance(value, float) and value_text(value) == text)
    return value if same else text
