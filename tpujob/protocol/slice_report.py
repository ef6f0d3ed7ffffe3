"""What the hosts of a slice say of their attempt, in one object that one of them writes, the speaker.

The object is `paths.report_path` of the speaker. Its metadata has the reports of all hosts, as `summary`, so that a
list call reads them: what all of them say alike is there once, anything else as a column with a value for each host.
`mac` signs the text. What does not fit into the metadata is in the body alone, and its hash in the summary. Where not
even what decides fits, the summary has no host at all: whoever reads it needs the body of each such object.

The body is lines: its own signature, a head, curves (`series.py`), the report of each host, the evidence of those that
have any. It can be read without the metadata, which may already be newer.

Reports are as `report.py` has them. What is None is the same as what is missing.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, cast

from tpujob.protocol import limits, signing
from tpujob.protocol.report import ReportDocument

SUMMARY, MAC = "summary", "mac"  #: the names in the metadata
#: what leaves the summary first: it rarely changes, so that a reader keeps it
RARE = ("physical", "versions", "maintenance", "verdict", "unreached", "metrics", "error", "loss")
#: a summary has these of each host, or it has no hosts
NEEDED = ("host", "seq", "age", "phase")
#: what a summary without hosts counts instead, as each change of it is a hint to look
HINTS = ("phase", "notice")
Document = Dict[str, Any]


class Word(NamedTuple):
    """The newest report of a host, as the speaker has it."""

    host: int
    said: ReportDocument  #: with `seq` and `phase`
    age: float = 0.0  #: seconds since the speaker heard it
    evidence: bytes = b""  #: a line of JSON, as `ship/evidence.py` makes it


class Summary(NamedTuple):
    """What the metadata says."""

    by: int  #: the speaker
    at: Optional[
        float
    ]  #: when it was made, by the storage's clock; None: the speaker does not know that
    words: List[Word]  #: without evidence; by host; none: they are in the body alone
    left: str = ""  #: the hash of what is in the body alone; empty: nothing is
    fields: Tuple[str, ...] = ()  #: the names of what that is


class Body(NamedTuple):
    by: int
    at: Optional[float]
    words: List[Word]  #: with all that there is; by host


# Writing -------------------------------------------------------------------------------------------------------------


def pack(
    words: Sequence[Word],
    *,
    by: int,
    at: Optional[float],
    key: str,
    series: bytes = b"",
    most: int = limits.MAX_METADATA,
) -> Tuple[Dict[str, str], bytes]:
    """Metadata of at most so many bytes, and a body that is short enough to be read. `by`, `at`: see `Summary`."""
    words = sorted(words, key=lambda word: word.host)
    rows = [_row(word) for word in words]
    columns = {name: _column(rows, name) for name in sorted({n for row in rows for n in row})}
    head = {"v": 1, "by": by, "at": at, "n": len(rows)}
    text = _text({**head, "columns": columns})
    room = most - len(SUMMARY) - len(MAC) - 64
    left: Document = {}
    for name in _order(columns):
        if len(text) <= room:
            break
        left[name] = columns.pop(name)
        text = _text({**head, **_told(left), "fields": sorted(left), "columns": columns})
    if len(text) > room:
        bare: Document = {**head, "n": 0, **_told({**left, **columns}), "columns": {}}
        counts = {name: Counter(str(row.get(name) or "") for row in rows) for name in HINTS}
        texts = [_text({**bare, **counts}), _text(bare)]  # some agent may have phases of its own
        text = texts[0] if len(texts[0]) <= room else texts[1]
    assert len(text) <= room, "a summary of no host has a few numbers"
    return {SUMMARY: text, MAC: signing.sign(key, "slice", text)}, _body(head, words, key, series)


def _told(left: Document) -> Document:
    return {"left": signing.digest(_text(left).encode())[:16]}


def _row(word: Word) -> Document:
    row = {name: value for name, value in word.said.items() if value is not None}
    return {**row, "host": word.host, "age": int(max(0.0, word.age))}


def _column(rows: Sequence[Document], name: str) -> Document:
    """The values of all rows: `all`, what most of them have, and `but`, the others by their place; or, where that is
    shorter, `each`. Whole numbers are counted from the least or, as a clock may be far off, the middle one, `from`."""
    values = [row.get(name) for row in rows]
    texts = [_text(value) for value in values]
    usual = Counter(texts).most_common(1)[0][0]
    odd = {str(n): value for n, value in enumerate(values) if texts[n] != usual}
    column: Document = {"all": json.loads(usual), "but": odd} if odd else {"all": json.loads(usual)}
    if len(odd) < 2:
        return column
    forms: List[Document] = [column, {"each": values}]
    if all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        numbers = sorted(cast(List[int], values))
        for base in (numbers[0], numbers[len(numbers) // 2]):
            each = [value - base for value in cast(List[int], values)]
            forms.append({"each": each, "from": base})
    return min(forms, key=lambda made: len(_text(made)))


def _order(columns: Mapping[str, Document]) -> List[str]:
    """In which columns leave a summary that is too long."""
    size = {name: len(_text(column)) for name, column in columns.items()}
    may = [name for name in columns if name not in NEEDED and size[name] > 64]
    return sorted(may, key=lambda name: (name not in RARE, -size[name]))


def _body(head: Document, words: Sequence[Word], key: str, series: bytes) -> bytes:
    lines = [_text(head).encode(), series]
    lines += [_text(_row(word)).encode() for word in words]
    room = limits.MAX_BODY - sum(len(line) + 1 for line in lines) - 64
    for word in words:
        line = b"%d " % word.host + word.evidence.replace(b"\n", b" ")
        if word.evidence and len(line) < room:
            lines.append(line)
            room -= len(line) + 1
    rest = b"\n".join(lines)
    return signing.sign(key, "slice body", rest).encode() + b"\n" + rest


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


#: what comes of reading what is signed, and has another form
_ODD = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)

# Reading -------------------------------------------------------------------------------------------------------------


def is_slice(metadata: Mapping[str, str]) -> bool:
    """Whether an object speaks for several hosts; else it is the report of one, of an agent that did not know this."""
    return SUMMARY in metadata


def read_summary(metadata: Mapping[str, str], key: str) -> Optional[Summary]:
    """What the metadata says; None: it is not signed with that key, or no summary."""
    text = metadata.get(SUMMARY, "")
    if not signing.verify(key, metadata.get(MAC), "slice", text):
        return None
    try:
        said = json.loads(text)
        if not 0 <= said["n"] <= limits.MOST_HOSTS:
            return None
        rows: List[Document] = [{} for _ in range(said["n"])]
        for name, column in said["columns"].items():
            for n, value in enumerate(_values(column, len(rows))):
                if value is not None:
                    rows[n][name] = value
        words = [_word(row) for row in rows]
        left, fields = said.get("left", ""), tuple(said.get("fields", ()))
        if not all(isinstance(text, str) for text in (left, *fields)):
            return None
        return Summary(_host(said["by"]), _time(said["at"]), words, left, fields)
    except _ODD:
        return None  # of a version that this one does not know


def _values(column: Document, rows: int) -> List[Any]:
    if "each" in column:
        least = column.get("from", 0)
        return [value + least for value in column["each"]] if least else list(column["each"])
    values = [column["all"]] * rows
    for place, value in column.get("but", {}).items():
        values[int(place)] = value
    return values


def _word(row: Document, evidence: bytes = b"") -> Word:
    age = _finite(row.pop("age"))
    if age < 0:
        raise ValueError("the report is not made yet")
    return Word(_host(row["host"]), cast(ReportDocument, row), age, evidence)


def _host(value: object) -> int:
    if type(value) is not int or not 0 <= value <= limits.MOST_HOSTS:
        raise ValueError("no number of a host")
    return value


def _time(value: object) -> Optional[float]:
    return None if value is None else _finite(value)


def _finite(value: object) -> float:
    if type(value) not in (int, float) or not math.isfinite(cast(float, value)):
        raise ValueError("no finite number")
    return float(cast(float, value))


def read_body(body: bytes, key: str) -> Optional[Body]:
    """What a body says; None: it is not signed with that key, or it is none."""
    mac, _, rest = body.partition(b"\n")
    if not signing.verify(key, mac.decode("ascii", "replace"), "slice body", rest):
        return None
    try:
        head, _, *lines = rest.split(b"\n")
        said = json.loads(head)
        rows = [json.loads(line) for line in lines[: said["n"]]]
        parts = [line.partition(b" ") for line in lines[said["n"] :]]
        evidence = {int(host): text for host, _, text in parts}
        words = [_word(row, evidence.get(row["host"], b"")) for row in rows]
        return Body(_host(said["by"]), _time(said["at"]), words)
    except _ODD:
        return None


def series_of(body: bytes) -> bytes:
    """The curves in a body, or in the beginning of one; also in one of an agent before this. Only `read_body` tells
    whether hosts have signed it."""
    lines = body.split(b"\n", 3)
    place = 2 if len(lines[0]) == 64 else 1
    return lines[place] if len(lines) > place else b""


def completed(summary: Summary, body: Body) -> List[Word]:
    """The words of a summary with what it has left to its body, or to an earlier one that had the same."""
    if not summary.words:
        return list(body.words)
    known = {word.host: cast(Document, word.said) for word in body.words}
    found: List[Word] = []
    for word in summary.words:
        more = known.get(word.host, {})
        said: Document = {name: more[name] for name in summary.fields if name in more}
        said.update(word.said)
        found.append(word._replace(said=cast(ReportDocument, said)))
    return found
