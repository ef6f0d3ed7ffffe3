"""`tpujob logs`: what a program wrote, whole or as it comes, or a part of it that is looked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from tpujob.cli.backend import RetryingClient
from tpujob.cli.errors import goes_on, on_interrupt
from tpujob.cli.options import Follow, JobRef, Json, flag, option
from tpujob.cli.output import flush, note, say, say_bytes, say_json_line, say_json_list, screen
from tpujob.cli.render.lines import log_line, log_text, numbered_line
from tpujob.domain import text as blocks
from tpujob.domain.text import many
from tpujob.errors import BadRequest, NotFound

if TYPE_CHECKING:
    from tpujob.api import LogBlock, LogLine, LogPage, SearchAsked, WindowAsked, WindowLine

POLL = 1.0  #: seconds between looks for new output
MOST_TAIL = 5000  #: lines that the backend gives at once
AROUND = 10  #: lines that are shown before and after one that is looked for
WIDTH = 64 * 1024  #: bytes of a line: no agent writes longer ones


@dataclass(frozen=True, slots=True)
class Read:
    """What is read, and by whom."""

    retrying: RetryingClient
    job: str
    host: int | None
    attempt: int | None

    def page(self, cursor: str, tail: int | None = None) -> LogPage:
        where = self.asked()
        return self.retrying.ask(lambda api: api.logs(self.job, **where, cursor=cursor, tail=tail))

    def block(self, cursor: str) -> LogBlock:
        where = self.asked()
        return self.retrying.ask(lambda api: api.log_block(self.job, **where, cursor=cursor))

    def asked(self) -> dict[str, int]:
        given = {"host": self.host, "attempt": self.attempt}
        return {name: value for name, value in given.items() if value is not None}


def logs(
    job: JobRef,
    follow: Follow = False,
    host: Annotated[int | None, option("K", "Only this host.", "--host", min=0)] = None,
    attempt: Annotated[
        int | None, option("N", "Attempt; default: the newest.", "--attempt", min=1)
    ] = None,
    tail: Annotated[int | None, option("N", "Last N lines.", "--tail", "-n", min=0)] = None,
    grep: Annotated[str, option("TEXT", "Lines with TEXT, numbered.", "--grep")] = "",
    regexp: Annotated[bool, flag("TEXT is a regular expression (RE2).", "--regexp", "-E")] = False,
    ignore_case: Annotated[bool, flag("Ignore case.", "--ignore-case", "-i")] = False,
    count: Annotated[bool, flag("Count matching lines.", "--count", "-c")] = False,
    line: Annotated[
        int | None, option("N", "Line N of host K; default: host 0.", "--line", min=1)
    ] = None,
    traceback: Annotated[
        int | None, option("N", "N-th traceback; -1: the last.", "--traceback")
    ] = None,
    around: Annotated[
        int, option("N", "Context of --line and --traceback.", "--around", min=0)
    ] = AROUND,
    raw: Annotated[bool, flag("Keep escape sequences.", "--raw")] = False,
    as_json: Json = False,
) -> None:
    """Print a job's output, all hosts merged."""
    _check(follow=follow, tail=tail, sought=[grep or None, line, traceback], raw=raw, json=as_json)
    retrying = RetryingClient()
    job_id = retrying.ask(lambda api: api.get(job))["id"]
    read = Read(retrying, job_id, host, attempt)
    if grep:
        asked: SearchAsked = {"text": grep, "regexp": regexp, "ignore_case": ignore_case}
        _count(read, asked) if count else _grep(read, asked, as_json=as_json)
    elif line is not None:
        _line(read, host or 0, line, around, as_json=as_json)
    elif traceback is not None:
        _traceback(read, traceback, around, as_json=as_json)
    else:
        with on_interrupt(*goes_on(job_id, "logs {} -f")):
            if not as_json:
                _print(read, follow=follow, tail=tail, raw=raw)
            elif follow:
                for one in _pages(read, follow, tail):
                    say_json_line(one)
            else:
                say_json_list(_pages(read, follow, tail))


def _check(*, follow: bool, tail: int | None, sought: list[object], raw: bool, json: bool) -> None:
    """Raises BadRequest for options that contradict each other."""
    looked_for = sum(one is not None for one in sought)
    if looked_for > 1:
        raise BadRequest("--grep, --line and --traceback do not go together", hint="Choose one.")
    if looked_for and (follow or tail is not None or raw):
        raise BadRequest("--grep, --line and --traceback go without --follow, --tail and --raw")
    if raw and (json or tail is not None):
        raise BadRequest("--raw goes without --json and --tail")


# All of it -----------------------------------------------------------------------------------------------------------


def _print(read: Read, *, follow: bool, tail: int | None, raw: bool) -> None:
    color, prefix, cursor = screen().color, read.host is None, ""
    if tail is not None:
        page = read.page("", tail)
        for one in page["lines"]:
            say(log_line(one, prefix=prefix, color=color))
        if len(page["lines"]) == MOST_TAIL < tail:
            note(f"tpujob: only the last {MOST_TAIL:,} lines were shown, not {tail:,}")
        cursor = page["cursor"]
        if page["done"] or not follow:
            return
    for data in _blocks(read, follow, cursor):
        if raw:
            say_bytes(blocks.raw(data))
        else:
            say(log_text(data, prefix=prefix, color=color), end="")
        if follow:
            flush()


def _blocks(read: Read, follow: bool, cursor: str) -> Iterator[bytes]:
    """Block after block, to the end of the output so far; when following, until the job has ended."""
    last_note = ""
    while True:
        block = read.block(cursor)
        cursor = block.cursor
        if block.data:
            yield block.data
        if block.note not in ("", last_note):
            last_note = block.note
            note(f"tpujob: {last_note}")
        if block.done or not (block.more or follow):
            return
        if not block.more:
            flush()
            time.sleep(POLL)


def _pages(read: Read, follow: bool, tail: int | None) -> Iterator[LogLine]:
    cursor = ""
    while True:
        page = read.page(cursor, None if cursor else tail)
        cursor = page["cursor"]
        yield from page["lines"]
        if page["done"] or not (page["lines"] or follow):
            return
        if not page["lines"]:
            time.sleep(POLL)


# What is looked for --------------------------------------------------------------------------------------------------


def _search(read: Read, asked: SearchAsked) -> Iterator[tuple[list[WindowLine], int]]:
    """Matches as they are found, and how many there are in all."""
    wanted: SearchAsked = {"limit": 1000, "width": WIDTH, **asked, **read.asked()}  # pyright: ignore[reportAssignmentType]
    while True:
        found = read.retrying.ask(lambda api, now=wanted: api.log_search(read.job, now))
        if not found["complete"]:  # asking again goes on
            done, size = found["searched"] >> 20, found["bytes"] >> 20
            note(f"tpujob: searched {done:,} of {size:,} MiB")
            continue
        yield found["matches"], found["matching"]
        if not found["matches"] or found["first"] + len(found["matches"]) > found["matching"]:
            return
        last = found["matches"][-1]
        wanted = {**wanted, "of": last["host"], "line": last["line"], "after": True}


def _count(read: Read, asked: SearchAsked) -> None:
    _, matching = next(_search(read, {**asked, "limit": 1}))
    say(str(matching))


def _grep(read: Read, asked: SearchAsked, *, as_json: bool) -> None:
    found = (line for matches, _ in _search(read, asked) for line in matches)
    if as_json:
        say_json_list(found)
        return
    color, prefix = screen().color, read.host is None
    for line in found:
        say(numbered_line(line, prefix=prefix, hit=True, color=color))


def _line(read: Read, of: int, number: int, around: int, *, as_json: bool) -> None:
    """A line of a host, with those around it: of that host, or of all when none was named."""
    place: WindowAsked = {"of": of, "line": number, "width": WIDTH, **read.asked()}  # pyright: ignore[reportAssignmentType]

    def window(side: str, lines: int) -> list[WindowLine]:
        asked: WindowAsked = {**place, "side": side, "lines": lines}  # pyright: ignore[reportAssignmentType]
        return read.retrying.ask(lambda api: api.log_window(read.job, asked))["lines"]

    here = [x for x in window("around", 3) if (x["host"], x["line"]) == (of, number)]
    if not here:
        raise NotFound(f"host {of} has no line {number:,}: it was dropped, or is not written yet")
    found = [*_some(window, "before", around), *here, *_some(window, "after", around)]
    if as_json:
        say_json_list(iter(found))
        return
    color = screen().color
    for line in found:
        hit = (line["host"], line["line"]) == (of, number)
        say(numbered_line(line, prefix=read.host is None, hit=hit, color=color))


def _some(
    window: Callable[[str, int], list[WindowLine]], side: str, lines: int
) -> list[WindowLine]:
    return window(side, lines) if lines else []


def _traceback(read: Read, wanted: int, around: int, *, as_json: bool) -> None:
    """That traceback, and what its host wrote around it."""
    found: list[WindowLine] = []
    matching = 0
    for matches, total in _search(read, {"traceback": True}):
        found, matching = found + matches, total
        if 0 < wanted <= len(found):
            break
    if not matching:
        note("tpujob: there is no traceback")
        return
    if not 1 <= abs(wanted) <= matching:
        raise NotFound(f"there are {many(matching, 'traceback')}, no traceback {wanted}")
    number = wanted if wanted > 0 else matching + 1 + wanted
    at = found[number - 1]
    following = f"; the next: --traceback {number + 1}" if number < matching else ""
    note(f"tpujob: traceback {number} of {matching:,}, host {at['host']}{following}")
    only = Read(read.retrying, read.job, at["host"], read.attempt)
    _line(only, at["host"], at["line"], around, as_json=as_json)
