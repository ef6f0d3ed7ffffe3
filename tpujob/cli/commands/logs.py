"""`tpujob logs`: prints the output of a program, whole or while it is written, or searches it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from tpujob.cli.backend import retrying_client
from tpujob.cli.errors import job_continues, on_interrupt
from tpujob.cli.options import Follow, JobRef, Json, flag, moment, option
from tpujob.cli.output import flush, get_screen, note, say, say_bytes, say_json_line, say_json_list
from tpujob.cli.render.lines import log_line, log_text, numbered_line
from tpujob.domain import text as blocks
from tpujob.domain.text import many, seconds
from tpujob.errors import BadRequest, NotFound
from tpujob.protocol.limits import MAX_LINE
from tpujob.wiring.retrying import RetryingClient

if TYPE_CHECKING:
    from tpujob.api import LogBlock, LogLine, LogPage, SearchQuery, WindowLine, WindowQuery

POLL = 1.0  #: seconds between looks for new output
MAX_TAIL = 5000  #: lines that the backend returns at once
AROUND = 10  #: lines of context before and after a line


@dataclass(frozen=True, slots=True)
class LogSource:
    """The output of a job, or of one host or attempt of a job, and the client that reads it."""

    retrying: RetryingClient
    job: str
    host: int | None  #: None: all hosts
    attempt: int | None  #: None: the newest

    def page(self, cursor: str, tail: int | None = None, since: float | None = None) -> LogPage:
        place = {**self.filters(), "cursor": cursor, "tail": tail, "since": since}
        return self.retrying.ask(lambda api: api.logs(self.job, **place))  # pyright: ignore[reportArgumentType]

    def block(self, cursor: str) -> LogBlock:
        where = self.filters()
        return self.retrying.ask(lambda api: api.log_block(self.job, **where, cursor=cursor))

    def filters(self) -> dict[str, int]:
        filters = {"host": self.host, "attempt": self.attempt}
        return {name: value for name, value in filters.items() if value is not None}


def logs(
    job: JobRef,
    follow: Follow = False,
    host: Annotated[int | None, option("K", "Only this host.", "--host", min=0)] = None,
    attempt: Annotated[
        int | None, option("N", "Attempt; default: the newest.", "--attempt", min=1)
    ] = None,
    tail: Annotated[int | None, option("N", "Last N lines.", "--tail", "-n", min=0)] = None,
    since: Annotated[
        float | None,
        option(
            "TIME", "From then on: 10m ago, 14:30, or 2026-11-29T14:30.", "--since", parser=moment
        ),
    ] = None,
    until: Annotated[
        float | None, option("TIME", "Up to then, as for --since.", "--until", parser=moment)
    ] = None,
    times: Annotated[bool, flag("The local time before each line.", "--times", "-t")] = False,
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
    raw: Annotated[bool, flag("The bytes of the program alone.", "--raw")] = False,
    as_json: Json = False,
) -> None:
    """Print a job's output, all hosts merged."""
    searches = bool(grep) + (line is not None) + (traceback is not None)
    if searches > 1:
        raise BadRequest("--grep, --line and --traceback do not go together", hint="Choose one.")
    timed = times or since is not None or until is not None
    if searches and (follow or tail is not None or raw or timed):
        raise BadRequest(
            "--grep, --line and --traceback go without --follow, --tail, --since, --until, --times and --raw"
        )
    if (regexp or ignore_case or count) and not grep:
        raise BadRequest("--regexp, --ignore-case and --count go with --grep", hint="--grep TEXT")
    if raw and (as_json or tail is not None or timed):
        raise BadRequest("--raw goes without --json, --tail, --since, --until and --times")
    if since is not None and tail is not None:
        raise BadRequest("--since and --tail do not go together", hint="Choose one.")
    retrying = retrying_client()
    job_id = retrying.ask(lambda api: api.get(job))["id"]
    source = LogSource(retrying, job_id, host, attempt)
    if grep:
        query: SearchQuery = {"text": grep, "regexp": regexp, "ignore_case": ignore_case}
        if count:
            _, total = next(_search(source, {**query, "limit": 1}))
            say(str(total))
        else:
            _print_matches(source, query, as_json=as_json)
    elif line is not None:
        _print_line(source, host or 0, line, around, as_json=as_json)
    elif traceback is not None:
        _print_traceback(source, traceback, around, as_json=as_json)
    else:
        with on_interrupt(*job_continues(job_id)):
            lines = _up_to(until, _lines(source, follow, tail, since))
            if timed and not as_json:
                _print_lines(lines, prefix=source.host is None, times=times)
            elif not as_json:
                _print_output(source, follow=follow, tail=tail, raw=raw)
            elif follow:
                for entry in lines:
                    say_json_line(entry)
            else:
                say_json_list(lines)


# The whole output ----------------------------------------------------------------------------------------------------


def _print_output(source: LogSource, *, follow: bool, tail: int | None, raw: bool) -> None:
    color = get_screen().color
    prefix = source.host is None
    cursor = ""
    if tail is not None:
        page = source.page("", tail)
        for line in page["lines"]:
            say(log_line(line, prefix=prefix, color=color))
        if len(page["lines"]) == MAX_TAIL < tail:
            note(f"tpujob: only the last {MAX_TAIL:,} lines were shown, not {tail:,}")
        cursor = page["cursor"]
        if page["done"] or not follow:
            return
    for data in _blocks(source, follow, cursor):
        if raw:
            say_bytes(blocks.raw(blocks.of_program(data)))
        else:
            say(log_text(data, prefix=prefix, color=color), end="")
        if follow:
            flush()


def _blocks(source: LogSource, follow: bool, cursor: str) -> Iterator[bytes]:
    """Yield blocks up to the end of the output so far; when following, until the job has ended."""
    last_note = ""
    while True:
        block = source.block(cursor)
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


def _print_lines(lines: Iterable[LogLine], *, prefix: bool, times: bool) -> None:
    color = get_screen().color
    for line in lines:
        say(log_line(line, prefix=prefix, color=color, time=times))


def _up_to(until: float | None, lines: Iterable[LogLine]) -> Iterator[LogLine]:
    """Yield the lines up to the first that is later."""
    for line in lines:
        if until is not None and (seconds(line["at"]) or 0.0) > until:
            return
        yield line


def _lines(
    source: LogSource, follow: bool, tail: int | None, since: float | None
) -> Iterator[LogLine]:
    """Yield lines up to the end of the output so far; when following, until the job has ended."""
    cursor = ""
    while True:
        page = source.page(cursor) if cursor else source.page("", tail, since)
        cursor = page["cursor"]
        yield from page["lines"]
        if page["done"] or not (page["lines"] or follow):
            return
        if not page["lines"]:
            flush()
            time.sleep(POLL)


# Searches and single lines -------------------------------------------------------------------------------------------


def _search(source: LogSource, query: SearchQuery) -> Iterator[tuple[list[WindowLine], int]]:
    """Yield pages of matches, each with the number of all matches."""
    request: SearchQuery = {"limit": 1000, "width": MAX_LINE, **query, **source.filters()}  # pyright: ignore[reportAssignmentType]
    while True:
        answer = source.retrying.ask(
            lambda api, request=request: api.log_search(source.job, request)
        )
        if not answer["complete"]:  # the same request continues the search
            done, size = answer["searched"] >> 20, answer["bytes"] >> 20
            note(f"tpujob: searched {done:,} of {size:,} MiB")
            continue
        matches, total = answer["matches"], answer["matching"]
        if not total:
            note("tpujob: no match in this attempt; --attempt N searches another")
        yield matches, total
        if not matches or answer["first"] + len(matches) > total:
            return
        last = matches[-1]
        request = {**request, "of": last["host"], "line": last["line"], "after": True}


def _print_matches(source: LogSource, query: SearchQuery, *, as_json: bool) -> None:
    lines = (line for matches, _ in _search(source, query) for line in matches)
    if as_json:
        say_json_list(lines)
        return
    color = get_screen().color
    for line in lines:
        say(numbered_line(line, prefix=source.host is None, hit=True, color=color))


def _print_line(source: LogSource, host: int, number: int, around: int, *, as_json: bool) -> None:
    """Print a line of `host` with its context: lines of the source's host, or of all hosts. Raises NotFound."""
    place: WindowQuery = {"of": host, "line": number, "width": MAX_LINE, **source.filters()}  # pyright: ignore[reportAssignmentType]

    def window(side: str, lines: int) -> list[WindowLine]:
        if not lines:
            return []
        request: WindowQuery = {**place, "side": side, "lines": lines}  # pyright: ignore[reportAssignmentType]
        return source.retrying.ask(lambda api: api.log_window(source.job, request))["lines"]

    def is_hit(line: WindowLine) -> bool:
        return (line["host"], line["line"]) == (host, number)

    hits = [line for line in window("around", 3) if is_hit(line)]
    if not hits:
        raise NotFound(f"host {host} has no line {number:,}: it was dropped, or is not written yet")
    lines = [*window("before", around), *hits, *window("after", around)]
    if as_json:
        say_json_list(lines)
        return
    color = get_screen().color
    for line in lines:
        say(numbered_line(line, prefix=source.host is None, hit=is_hit(line), color=color))


def _print_traceback(source: LogSource, number: int, around: int, *, as_json: bool) -> None:
    """Print a traceback with its host's lines around it; a negative number counts from the last. Raises NotFound."""
    tracebacks: list[WindowLine] = []
    total = 0
    for matches, count in _search(source, {"traceback": True}):
        tracebacks += matches
        total = count
        if 0 < number <= len(tracebacks):
            break
    if not total:
        return
    if not 1 <= abs(number) <= total:
        raise NotFound(f"there are {many(total, 'traceback')}, no traceback {number}")
    if number < 0:
        number += total + 1
    start = tracebacks[number - 1]
    following = f"; the next: --traceback {number + 1}" if number < total else ""
    note(f"tpujob: traceback {number} of {total:,}, host {start['host']}{following}")
    host_source = LogSource(source.retrying, source.job, start["host"], source.attempt)
    _print_line(host_source, start["host"], start["line"], around, as_json=as_json)
