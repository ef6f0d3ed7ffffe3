"""The page of a job's output: some lines at any place of an attempt, a search in all of them, and the whole as text."""

import shlex
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import cast

from fastapi import FastAPI, Request
from fastapi.responses import Response, StreamingResponse

from tpujob.api import JobsApi, JobView, LogMatches, SearchQuery, WindowLine, WindowQuery
from tpujob.domain import text
from tpujob.domain.text import seconds
from tpujob.errors import BadRequest
from tpujob.service.authorization import authorize
from tpujob.web.pages.frame import PageContent, PageRequest
from tpujob.web.pages.query import PageQuery
from tpujob.web.schemas import Caller, JobRef, caller_of

#: names in the query: lines, a search (`q`; `re`: a regular expression; `i`: ignore case; `tb`: tracebacks), one line
#: in full (`whole`), and the form of times
FILTERS = ("attempt", "host", "of", "line", "part", "side", "q", "re", "i", "tb", "whole", "times")
LINES = 150
WHOLE = 64 * 1024  #: bytes of one line
TIMES = ("utc", "local", "since")


def load_logs(request: PageRequest) -> PageContent:
    api, query = request.api, request.query
    job = api.get(request.job)
    if request.again:  # the end of the open attempt alone: the script asks for lines by itself
        query = query.but(attempt=request.again)
        matches, place = None, WindowQuery({**_attempt_and_host(query), "lines": 1})
    else:
        matches = search(api, request.job, query)
        place = _place(query, matches)
    window = api.log_window(request.job, place)
    times = _times(query)
    attempt = str(window["attempt"] or "")
    pinned = query.but(attempt=attempt)  # a link must not mean another attempt tomorrow
    data = {"job": job["id"], "window": window, "found": matches}
    return PageContent(
        data,
        f"Logs · {job['name']}",
        command(job["id"], request.query),
        live=None if window["done"] else job["id"],
        again=attempt,
        shown={
            "asked": pinned,
            "here": _pointed_line(place),
            "shown": {(line["host"], line["line"]) for line in window["lines"]},
            "job": job,
            "link": partial(link, pinned),
            "raw": raw_of(pinned),
            "attempts": [attempt["number"] for attempt in job["attempts"]],
            "times": times,
            "time_text": teller(times, window["began_at"]),
        },
    )


def add_text(app: FastAPI) -> None:
    """Serve the whole output as text, plain and packed."""

    @app.get("/jobs/{job}/logs.txt", include_in_schema=False)
    @app.get("/jobs/{job}/logs.txt.gz", include_in_schema=False)
    def serve_text(api: Caller, job: JobRef, request: Request) -> Response:
        authorize(caller_of(request), "log_block")
        query = PageQuery.read(request.url.query, ("attempt", "host"))
        view, packs = api.get(job), request.url.path.endswith(".gz")
        blocks = whole(api, view, query)
        first = next(blocks)  # an error is raised before the answer begins
        parts = chain((first,), blocks)
        name = f"tpujob-{view['id']}.log" + (".gz" if packs else "")
        kind = "attachment" if packs else "inline"
        return StreamingResponse(
            _packed(parts) if packs else parts,
            media_type="application/gzip" if packs else "text/plain; charset=utf-8",
            headers={"content-disposition": f'{kind}; filename="{name}"'},
        )

    _ = serve_text


def whole(api: JobsApi, job: JobView, query: PageQuery) -> Iterator[bytes]:
    """Yield the whole log of one attempt in blocks: of all hosts with their numbers, or of one host verbatim."""
    place = _attempt_and_host(query)
    host, attempt = place.get("host"), place.get("attempt") or len(job["attempts"]) or None
    form = text.with_hosts if host is None else text.raw
    cursor, has_more = "", True
    while has_more:
        block = api.log_block(job["id"], host=host, attempt=attempt, cursor=cursor)
        cursor, has_more = block.cursor, block.more
        yield form(block.data)


def _packed(parts: Iterator[bytes]) -> Iterator[bytes]:
    packer = zlib.compressobj(1, wbits=31)
    for part in parts:
        yield packer.compress(part)
    yield packer.flush()


def search(api: JobsApi, job: str, query: PageQuery) -> LogMatches | None:
    """Return the matches at or after the requested line; None if the query has no search."""
    if not (query.one("q") or query.one("tb")):
        return None
    window = {**_attempt_and_host(query), **_line_fields(query), "limit": 2}
    window |= {"traceback": True} if query.one("tb") else _search_fields(query)
    return api.log_search(job, cast(SearchQuery, window))


def _place(query: PageQuery, matches: LogMatches | None) -> WindowQuery:
    """Return the window to show: the requested lines, else those of the first match, else the end."""
    window: WindowQuery = {**_attempt_and_host(query), **_line_fields(query), "lines": LINES}
    if part := query.one("part"):
        window["part"] = _part(part)
    if query.one("q"):
        window |= _search_fields(query)
    if query.one("side") in ("after", "before"):
        window["side"] = "after" if query.one("side") == "after" else "before"
    if query.one("whole"):
        window |= {"lines": 1, "width": WHOLE}
    if matches and matches["matches"] and "line" not in window and "part" not in window:
        first = matches["matches"][0]
        window |= {"of": first["host"], "line": first["line"]}
    return window


def _pointed_line(place: WindowQuery) -> tuple[int, int] | None:
    """Return host and number of the line that the address names; None if it names none."""
    if "line" not in place or "side" in place:
        return None
    return place.get("of", place.get("host", 0)), place["line"]


def _attempt_and_host(query: PageQuery) -> WindowQuery:
    place = WindowQuery()
    if attempt := query.one("attempt"):
        place["attempt"] = _number("attempt", attempt)
    if host := query.one("host"):
        place["host"] = _number("host", host)
    return place


def _line_fields(query: PageQuery) -> WindowQuery:
    place = WindowQuery()
    if line := query.one("line"):
        place["line"] = _number("line", line)
        if of := query.one("of"):
            place["of"] = _number("of", of)
    return place


def _search_fields(query: PageQuery) -> WindowQuery:
    return {
        "text": query.one("q"),
        "regexp": bool(query.one("re")),
        "ignore_case": bool(query.one("i")),
    }


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 12):
        raise BadRequest(f"{name} must be a number, but is {text[:40]!r}")
    return int(text)


def _part(text: str) -> float:
    try:
        part = float(text)
    except ValueError:
        part = -1.0
    if not 0 <= part <= 1:
        raise BadRequest(f"part must be a number from 0 to 1, but is {text[:40]!r}")
    return part


def _times(query: PageQuery) -> str:
    times = query.one("times", "utc")
    if times not in TIMES:
        raise BadRequest(f"times must be one of {', '.join(TIMES)}")
    return times


def command(job: str, query: PageQuery) -> str:
    """Return the command that prints the same lines."""
    words = ["tpujob", "logs", job]
    for name in ("attempt", "host"):
        if value := query.one(name):
            words += [f"--{name}", value]
    if text := query.one("q"):
        words += ["--grep", text]
        words += ["--regexp"] * bool(query.one("re")) + ["--ignore-case"] * bool(query.one("i"))
    elif query.one("tb"):
        words += ["--traceback", "1"]
    elif line := query.one("line"):
        if (of := query.one("of")) and not query.one("host"):
            words += ["--host", of]
        words += ["--line", line]
    return shlex.join(words)


def link(query: PageQuery, line: WindowLine) -> str:
    """Return the link to that line, valid as long as the job exists."""
    of = "" if query.one("host") else str(line["host"])
    return str(query.but(line=str(line["line"]), of=of, part="", side="", whole=""))


def raw_of(query: PageQuery) -> str:
    """Return the query of the whole log as text."""
    return str(PageQuery({name: query.many(name) for name in ("attempt", "host")}))


def teller(times: str, began_at: str) -> Callable[[str], str]:
    """Return a function that formats the time of a line: of the day in UTC, or since the attempt began."""
    began = seconds(began_at) or 0.0

    def since(at: str) -> str:
        passed = max(0.0, (seconds(at) or 0.0) - began)
        minutes, rest = divmod(passed, 60)
        return f"{int(minutes // 60):3}:{int(minutes % 60):02}:{rest:06.3f}"

    return since if times == "since" else lambda at: at[11:23]
