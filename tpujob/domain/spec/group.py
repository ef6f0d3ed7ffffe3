"""Arrays and sweeps: the parts of a job file that make many jobs of one. `elements.py` makes the jobs."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Annotated, Any, cast

from pydantic import AfterValidator, Field

from tpujob.domain.spec import fields as kinds
from tpujob.domain.spec.errors import Problem
from tpujob.domain.spec.fields import Checked, value_text
from tpujob.domain.spec.shell import PARAMETER, fill
from tpujob.domain.spec.yaml import describe, plain

MAX_ELEMENTS = 10_000  #: most elements of a group
MAX_KEYS = 20  #: keys of a matrix
MAX_NAME = 40  #: characters of an element's name
INDEX = "index"  #: in braces: the number of the element

_RANGE = r"0-([0-9]{1,9})(?:%([0-9]{1,9}))?"


# Fields --------------------------------------------------------------------------------------------------------------

_SCALAR = {"type": ["string", "number", "boolean"]}
_count = kinds.count(MAX_ELEMENTS, 1)

Count = Annotated[int, _count]
AtOnce = Annotated[int | None, kinds.optional(_count)]


class ArraySpec(kinds.SpecPart):
    """Elements that differ in their index alone."""

    count: Count = Field(description="Number of elements, up to 10,000; they count from 0.")
    at_once: AtOnce = Field(None, description="Elements that may have a slice at once.")


def _array(value: Any) -> Any:
    """Return the fields of an ArraySpec from a number of elements, a range such as 0-99%8, or a mapping."""
    if isinstance(value, (Mapping, ArraySpec)):
        return cast("Any", value)
    if not isinstance(value, str):
        return {"count": _count(value)}
    if ":" in value:
        raise ValueError("has no steps; compute the value from TPUJOB_INDEX, or use a matrix")
    match = re.fullmatch(_RANGE, value)
    if match is None:
        raise ValueError(
            f"must be a number of elements, or a range that begins at 0, such as 0-99 or 0-99%8, not {describe(value)}"
        )
    last, at_once = match.groups()
    if at_once is not None and not 1 <= int(at_once) <= MAX_ELEMENTS:
        raise ValueError(f"must have a number from 1 to {MAX_ELEMENTS:,} after %, not {at_once}")
    return {"count": _count(int(last) + 1), "at_once": at_once and int(at_once)}


def _parameter(value: Any) -> str:
    name = kinds.matching(PARAMETER, "letters, digits and _, the first no digit")(value)
    if name.lower() == INDEX:
        raise ValueError(f"must not be {name}, which is the number of the element")
    return name


def _values(value: Any) -> tuple[Any, ...]:
    """Return a list's values, each text, a number, true or false. Raise ValueError for one that is there twice."""
    if not isinstance(value, (list, tuple)) or not value:
        raise ValueError(f"must be a list of values, not {describe(value) if value else 'empty'}")
    values = tuple(map(kinds.scalar, cast("list[Any]", value)))
    _check_distinct([*map(value_text, values)])
    return values


def _check_distinct(texts: list[str]) -> None:
    seen: set[str] = set()
    for text in texts:
        if text in seen:
            raise ValueError(f"has {text[:60]} twice")
        seen.add(text)


def _matrix(value: Any) -> Any:
    matrix = kinds.mapping("parameters to lists of values")(value)
    if not 1 <= len(matrix) <= MAX_KEYS:
        raise ValueError(f"must have from 1 to {MAX_KEYS} parameters, not {len(matrix)}")
    _check_distinct([f"TPUJOB_PARAM_{name}".upper() for name in matrix])
    return matrix


def _rows(value: Any) -> tuple[Any, ...]:
    expected = "a list of rows such as {lr: 0.1}"
    rows = kinds.items(value, expected, Mapping)
    for row in rows:
        if not isinstance(row, Mapping) or not row:
            raise ValueError(f"must be {expected}, not {describe(row)}")
    return tuple(rows)


_ARRAYS = [_count.schema, kinds.schema_of(_RANGE), ArraySpec.model_json_schema()]
_MATRIX = {
    "type": "object",
    "propertyNames": {"pattern": f"^{PARAMETER}$"},
    "additionalProperties": {"type": "array", "items": _SCALAR, "minItems": 1},
    "minProperties": 1,
    "maxProperties": MAX_KEYS,
}
_ROW = {"type": "object", "additionalProperties": _SCALAR}

Array = Annotated[ArraySpec | None, kinds.optional(Checked(_array, {"anyOf": _ARRAYS}))]
Matrix = Annotated[
    dict[Annotated[str, Checked(_parameter)], Annotated[tuple[Any, ...], Checked(_values)]] | None,
    kinds.optional(Checked(_matrix, _MATRIX)),
]
Exclude = Annotated[
    tuple[dict[str, Annotated[Any, AfterValidator(kinds.scalar)]], ...],
    Checked(_rows, {"type": "array", "items": _ROW}),
]


Row = Mapping[str, Any]  #: a row of a matrix: the value of each parameter


def rows(array: Array, matrix: Matrix, exclude: Exclude) -> Iterator[Row]:
    """Yield the parameters of each element; the first key of a matrix changes slowest. Without a group, none."""
    if array is not None:
        yield from ({} for _ in range(array.count))
        return
    if matrix is None:
        return
    exclusions = [
        {name: _named(value, matrix[name]) for name, value in row.items()} for row in exclude
    ]
    for values in product(*matrix.values()):
        row = dict(zip(matrix, values, strict=True))
        row_texts = {name: value_text(value) for name, value in row.items()}
        if not any(
            all(row_texts[name] in texts for name, texts in excluded.items())
            for excluded in exclusions
        ):
            yield row


def _named(value: Any, values: Sequence[Any]) -> set[str]:
    """Return the texts of a parameter's values that a value of `exclude` names: its own, or else the same number."""
    texts = {*map(value_text, values)}
    if (text := value_text(value)) in texts:
        return {text}
    number = plain(text)
    kind = (bool,) if isinstance(number, bool) else (int, float)
    return {text for text in texts if type(plain(text)) in kind and plain(text) == number}


def count(array: Array, matrix: Matrix, exclude: Exclude) -> int:
    if array is None and matrix is not None and not exclude:
        return prod(map(len, matrix.values()))
    return array.count if array else sum(1 for _ in rows(array, matrix, exclude))


def problems(
    name: str, array: Array, matrix: Matrix, exclude: Exclude, at_once: AtOnce
) -> list[Problem]:
    """Return the problems of the parts together; each part itself is well-formed."""
    problems: list[Problem] = []
    if exclude and matrix is None:
        problems.append(Problem(("exclude",), "goes with a matrix"))
    if at_once is not None and matrix is None and array is None:
        problems.append(Problem(("at_once",), "goes with an array or a matrix"))
    if at_once is not None and array is not None and array.at_once is not None:
        problems.append(Problem(("at_once",), "is in array, too; write it once"))
    if matrix is not None and array is not None:
        text = "goes without array: write the index as one more parameter"
        problems.append(Problem(("matrix",), text))
    problems += _problems_of_exclude(matrix or {}, exclude)
    if problems or (array is None and matrix is None):
        return problems
    combinations = prod(map(len, (matrix or {}).values()))
    made = combinations if combinations > 10 * MAX_ELEMENTS else count(array, matrix, exclude)
    if made > MAX_ELEMENTS:
        problems.append(Problem(("matrix",), f"makes {made:,} jobs, more than {MAX_ELEMENTS:,}"))
    if not made:
        problems.append(Problem(("exclude",), "leaves out every row of the matrix"))
    last = f"-{max(made, 1) - 1}"
    longest = MAX_NAME - len(last)
    if len(name) > longest:
        text = f"must have at most {longest} characters, as the last job is {name}{last}"
        problems.append(Problem(("name",), text))
    return problems


def problems_of_command(command: str | None, matrix: Matrix) -> list[Problem]:
    """Return a problem if the command cannot take a value of the matrix as one word."""
    for name, values in (matrix or {}).items():
        for value in map(value_text, values):
            try:
                fill(command or "", {name: value})
            except ValueError as error:
                return [Problem(("run", "command"), str(error))]
    return []


def _problems_of_exclude(matrix: Row, exclude: Exclude) -> Iterator[Problem]:
    for index, row in enumerate(exclude if matrix else ()):
        for name, value in row.items():
            if name not in matrix:
                text = f"is not a parameter of the matrix: {', '.join(matrix)}"
                yield Problem(("exclude", index, name), text)
            elif not _named(value, matrix[name]):
                text = f"the matrix has no value {value_text(value)[:60]} of {name}"
                yield Problem(("exclude", index, name), text)
