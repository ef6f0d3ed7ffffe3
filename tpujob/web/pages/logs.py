"""The page of a job's output: some lines at any place of an attempt, a search in all of them, and the whole as text."""

import shlex
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import cast

from fastapi import FastAPI, Request
from fastapi.responses import Response, StreamingResponse

from tpujob.api import JobsApi, LogMatches, SearchAsked, WindowAsked, WindowLine
from tpujob.domain import text
from tpujob.domain.text import seconds
from tpujob.errors import BadRequest
from tpujob.web.pages.frame import PageContent, PageRequest
from tpujob.web.pages.query import PageQuery
from tpujob.web.schemas import Caller, JobRef

#: what an address may say: which lines, what is looked for (`q`; `re`: it is a pattern; `i`: whatever the case; `tb`:
#: tracebacks), one line in full (`whole`), and the form of times
FILTERS = ("attempt", "host", "of", "line", "part", "side", "q", "re", "i", "tb", "whole", "times")
LINES = 150
WHOLE = 64 * 1024  #: bytes of one line
TIMES = ("utc", "local", "since")


def load_logs(asked: PageRequest) -> PageContent:
    api, query = asked.api, asked.query
    job = api.get(asked.job)
    if asked.again:  # the end of the open attempt alone: the script asks for lines by itself
        query = query.but(attempt=asked.again)
        found, place = None, WindowAsked({**_of(query), "lines": 1})
    else:
        found = search(api, asked.job, query)
        place = _place(query, found)
    window = api.log_window(asked.job, place)
    times = _times(query)
    attempt = str(window["attempt"] or "")
    here = query.but(attempt=attempt)  # a link must not mean another attempt tomorrow
    data = {"job": job["id"], "window": window, "found": found}
    return PageContent(
        data,
        f"Logs · {job['name']}",
        command(job["id"], asked.query),
        live=None if window["done"] else job["id"],
        again=attempt,
        shown={
            "asked": here,
            "here": _here(place),
            "shown": {(line["host"], line["line"]) for line in window["lines"]},
            "job": job,
            "link": partial(link, here),
            "raw": raw_of(here),
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
        _ = api.log_block
        asked = PageQuery.read(request.url.query, ("attempt", "host"))
        number, packs = api.get(job)["id"], request.url.path.endswith(".gz")
        blocks = whole(api, job, asked)
        first = next(blocks, b"")  # an error is raised before the answer begins
        parts = (part for some in ((first,), blocks) for part in some)
        name = f"tpujob-{number}.log" + (".gz" if packs else "")
        kind = "attachment" if packs else "inline"
        return StreamingResponse(
            _packed(parts) if packs else parts,
            media_type="application/gzip" if packs else "text/plain; charset=utf-8",
            headers={"content-disposition": f'{kind}; filename="{name}"'},
        )

    _ = serve_text


def whole(api: JobsApi, job: str, asked: PageQuery) -> Iterator[bytes]:
    """Return the whole log of one attempt, block by block; that of one host as it was written."""
    of = _of(asked)
    host, attempt = of.get("host"), of.get("attempt") or len(api.get(job)["attempts"]) or None
    form = text.with_hosts if host is None else text.raw
    cursor, more = "", True
    while more:
        block = api.log_block(job, host=host, attempt=attempt, cursor=cursor)
        cursor, more = block.cursor, block.more
        yield form(block.data)


def _packed(parts: Iterator[bytes]) -> Iterator[bytes]:
    packer = zlib.compressobj(1, wbits=31)
    for part in parts:
        yield packer.compress(part)
    yield packer.flush()


def search(api: JobsApi, job: str, asked: PageQuery) -> LogMatches | None:
    """The match at the place or behind it, and those beside it; None: nothing is looked for."""
    if not (asked.one("q") or asked.one("tb")):
        return None
    wish = {**_of(asked), **_line(asked), "limit": 2}
    wish |= {"traceback": True} if asked.one("tb") else _text(asked)
    return api.log_search(job, cast(SearchAsked, wish))


def _place(asked: PageQuery, found: LogMatches | None) -> WindowAsked:
    """Return the place that is shown: the one asked for, else that of the first match, else the end."""
    wish: WindowAsked = {**_of(asked), **_line(asked), "lines": LINES}
    if part := asked.one("part"):
        wish["part"] = _part(part)
    if asked.one("q"):
        wish |= _text(asked)
    if asked.one("side") in ("after", "before"):
        wish["side"] = "after" if asked.one("side") == "after" else "before"
    if asked.one("whole"):
        wish |= {"lines": 1, "width": WHOLE}
    if found and found["matches"] and "line" not in wish and "part" not in wish:
        first = found["matches"][0]
        wish |= {"of": first["host"], "line": first["line"]}
    return wish


def _here(place: WindowAsked) -> tuple[int, int] | None:
    """Return the line that the address points at."""
    if "line" not in place or "side" in place:
        return None
    return place.get("of", place.get("host", 0)), place["line"]


def _of(asked: PageQuery) -> WindowAsked:
    found = WindowAsked()
    if attempt := asked.one("attempt"):
        found["attempt"] = _number("attempt", attempt)
    if host := asked.one("host"):
        found["host"] = _number("host", host)
    return found


def _line(asked: PageQuery) -> WindowAsked:
    found = WindowAsked()
    if line := asked.one("line"):
        found["line"] = _number("line", line)
        if of := asked.one("of"):
            found["of"] = _number("of", of)
    return found


def _text(asked: PageQuery) -> WindowAsked:
    return {
        "text": asked.one("q"),
        "regexp": bool(asked.one("re")),
        "ignore_case": bool(asked.one("i")),
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


def _times(asked: PageQuery) -> str:
    times = asked.one("times", "utc")
    if times not in TIMES:
        raise BadRequest(f"times must be one of {', '.join(TIMES)}")
    return times


def command(job: str, asked: PageQuery) -> str:
    """Return the command that prints the same."""
    words = ["tpujob", "logs", job]
    for name in ("attempt", "host"):
        if value := asked.one(name):
            words += [f"--{name}", value]
    if text := asked.one("q"):
        words += ["--grep", text]
        words += ["--regexp"] * bool(asked.one("re")) + ["--ignore-case"] * bool(asked.one("i"))
    elif asked.one("tb"):
        words += ["--traceback", "1"]
    elif line := asked.one("line"):
        if (of := asked.one("of")) and not asked.one("host"):
            words += ["--host", of]
        words += ["--line", line]
    return shlex.join(words)


def link(asked: PageQuery, line: WindowLine) -> str:
    """Return the link to that line, valid as long as the job exists."""
    of = "" if asked.one("host") else str(line["host"])
    return str(asked.but(line=str(line["line"]), of=of, part="", side="", whole=""))


def raw_of(asked: PageQuery) -> str:
    """The query of the whole as text."""
    return str(PageQuery({name: asked.many(name) for name in ("attempt", "host")}))


def teller(times: str, began_at: str) -> Callable[[str], str]:
    """Return a function that formats the time of a line: of the day in UTC, or since the attempt began."""
    began = seconds(began_at) or 0.0

    def since(at: str) -> str:
        passed = max(0.0, (seconds(at) or 0.0) - began)
        minutes, rest = divmod(passed, 60)
        return f"{int(minutes // 60):3}:{int(minutes % 60):02}:{rest:06.3f}"

    return since if times == "since" else lambda at: at[11:23]
