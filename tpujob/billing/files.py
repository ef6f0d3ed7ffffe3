"""The rows of one export file with their place in it. What kind of file it is, its first bytes say, not its name.

CSV as `bq query --format=csv` writes it, JSON lines as `bq extract` does, or one JSON list as `bq query --format=json`
does; each also compressed with gzip.
"""

import contextlib
import csv
import gzip
import io
import json
import zlib
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import IO, Any, cast

from tpujob.domain.money.billing import columns
from tpujob.errors import BadRequest

Rows = Iterator[
    tuple[str, dict[str, Any]]
]  #: where a row stands, such as `line 7`, and its columns

CHUNK = 1 << 20  #: characters
LONGEST_ROW = 8 * CHUNK
_HOW = "export it with: bq extract --destination_format=NEWLINE_DELIMITED_JSON --compression=GZIP TABLE gs://..."
_FOREIGN = {b"PAR1": "Parquet", b"Obj\x01": "Avro", b"PK\x03\x04": "a ZIP archive"}


def rows(path: Path) -> Rows:
    """Every row of the file, in order. Raises BadRequest, naming the file and the place in it."""
    where = "the beginning"
    try:
        with _opened(path) as file:
            for where, row in _rows(path, file):
                yield where, row
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadRequest(
            f"{path} is cut off or damaged after {where}: {error}",
            hint="Fetch the file again. Nothing of it was used.",
        ) from None
    except UnicodeDecodeError:
        raise BadRequest(f"{path} is no text after {where}", hint=_HOW) from None
    except OSError as error:
        raise BadRequest(f"{path} cannot be read: {error.strerror or error}") from None


@contextlib.contextmanager
def _opened(path: Path) -> Generator[IO[str]]:
    with path.open("rb") as raw:
        head = raw.read(4)
        raw.seek(0)
        if head in _FOREIGN:
            raise BadRequest(f"{path} is {_FOREIGN[head]}, and neither CSV nor JSON", hint=_HOW)
        plain = gzip.GzipFile(fileobj=raw) if head[:2] == b"\x1f\x8b" else raw
        with io.TextIOWrapper(plain, encoding="utf-8-sig", newline="") as text:
            yield text


def _rows(path: Path, file: IO[str]) -> Rows:
    first = file.readline(CHUNK)
    while first and not first.strip():
        first = file.readline(CHUNK)
    start = first.lstrip()[:1]
    if not start:
        raise BadRequest(f"{path} is empty", hint=_HOW)
    if start == "{":
        return _of_json_lines(path, first, file)
    return _of_json_list(path, first, file) if start == "[" else _of_csv(path, first, file)


# CSV -----------------------------------------------------------------------------------------------------------------


def _of_csv(path: Path, first: str, file: IO[str]) -> Rows:
    csv.field_size_limit(CHUNK)
    names = [columns.name(title) for title in next(csv.reader([first]))]
    _check_columns(path, names)
    reader = csv.reader(file, strict=True)
    try:
        for cells in reader:
            if len(cells) == len(names):
                yield f"line {reader.line_num + 1}", dict(zip(names, cells, strict=True))
            elif cells:
                raise _bad(path, reader.line_num + 1, f"has {len(cells)} cells, not {len(names)}")
    except csv.Error as error:
        raise _bad(path, reader.line_num + 1, f"is no CSV: {error}") from None


def _check_columns(path: Path, names: list[str]) -> None:
    known = set(names)
    if not known & {*columns.REQUIRED, "sku_description"}:
        shown = ", ".join(names[:5])[:80]
        raise BadRequest(f"{path} is no billing export: its columns are {shown!r}", hint=_HOW)
    missing = [name for name in columns.REQUIRED_OF_TABLES if name not in known]
    if missing:
        raise BadRequest(
            f"{path}: the column `{missing[0]}` is missing"
            + (f", and {len(missing) - 1} more" if missing[1:] else ""),
            hint="Select every column; TO_JSON_STRING(labels) AS labels, and credits and system_labels likewise.",
        )
    multiplied = [name for name in columns.UNNESTED if name in known]
    if multiplied:
        raise BadRequest(
            f"{path}: the column `{multiplied[0]}` means that a cost stands in several rows",
            hint="Leave UNNEST out of the query; select TO_JSON_STRING(labels) AS labels, and credits likewise.",
        )


# JSON ----------------------------------------------------------------------------------------------------------------


def _of_json_lines(path: Path, first: str, file: IO[str]) -> Rows:
    decode: Callable[[str], Any] = json.JSONDecoder(parse_float=str).decode
    number, text = 1, first
    while text:
        if text.strip():
            try:
                row = decode(text)
            except ValueError:
                end = "" if text.endswith("\n") else "; the file ends there: is it cut off?"
                raise _bad(path, number, f"is no JSON{end}") from None
            yield f"line {number}", _object(path, f"line {number}", row)
        number, text = number + 1, file.readline()


def _of_json_list(path: Path, first: str, file: IO[str]) -> Rows:
    decode = json.JSONDecoder(parse_float=str).raw_decode
    text, at, number = first.lstrip()[1:], 0, 0
    while True:
        at = _skip(text, at)
        if text[at : at + 1] == "]":
            return
        try:
            row, at = decode(text, at)
        except ValueError:
            more = file.read(CHUNK)
            if not more or len(text) - at > LONGEST_ROW:
                raise BadRequest(
                    f"{path}: the list of rows breaks off, or is no JSON, after row {number}",
                    hint="Fetch the file again. Nothing of it was used.",
                ) from None
            text, at = text[at:] + more, 0
            continue
        number += 1
        yield f"row {number}", _object(path, f"row {number}", row)


def _skip(text: str, at: int) -> int:
    while text[at : at + 1] and text[at] in " \t\r\n,":
        at += 1
    return at


def _object(path: Path, where: str, row: Any) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise BadRequest(f"{path}: {where} is no JSON object", hint=_HOW)
    flat = columns.flatten(cast(dict[str, Any], row))
    if not any(name in flat for name in columns.REQUIRED):
        shown = ", ".join(list(flat)[:5])[:80]
        raise BadRequest(
            f"{path} is no billing export: {where} has the columns {shown!r}", hint=_HOW
        )
    return flat


def _bad(path: Path, line: int, problem: str) -> BadRequest:
    return BadRequest(f"{path}:{line}: this line {problem}", hint="Nothing of the file was used.")
