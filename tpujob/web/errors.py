"""Turns errors into answers: one JSON form for all errors, and a page with the same text for browsers."""

import base64
import hashlib
import logging
import math
from collections.abc import Callable, Iterable
from html import escape
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse
from starlette.routing import Match, Route
from starlette.types import Scope

from tpujob.errors import BadRequest, Forbidden, NotFound, TpujobError
from tpujob.web.security.connections import LOOPBACK

log = logging.getLogger(__name__)


def add_handlers(app: FastAPI, shown: Callable[[Request, TpujobError, int], Response]) -> None:
    """Answer every error of a request as JSON, or with the page that `shown` makes of it if a browser requests one."""

    def answer(request: Request, error: Exception) -> Response:
        ours, status = _as_tpujob_error(request, error)
        page = wants_page(request.scope)
        answer = shown(request, ours, status) if page else reply(ours, status)
        if status == 405:
            answer.headers["allow"] = ", ".join(sorted(_allowed(request)))
        return answer

    for kind in (
        TpujobError,
        RequestValidationError,
        HTTPException,
        ClientDisconnect,
        RecursionError,
    ):
        app.add_exception_handler(kind, answer)


def wants_page(scope: Scope) -> bool:
    """Return whether a browser shows the answer to a person."""
    path, headers = scope["path"], dict(scope["headers"])
    asks = b"text/html" in headers.get(b"accept", b"")
    return asks and not path.startswith("/v1/") and not path.endswith(".json")


def reply(error: TpujobError, status: int = 0) -> JSONResponse:
    """Return the JSON answer to a request that raised `error`."""
    wait = getattr(error, "retry_after", None)
    headers = None if wait is None else {"retry-after": str(max(1, math.ceil(wait)))}
    return JSONResponse(error.as_json(), status or error.http_status, headers)


def _as_tpujob_error(request: Request, error: Exception) -> tuple[TpujobError, int]:
    """Return the error as a TpujobError, and the status of its answer."""
    if isinstance(error, Forbidden):
        request_line = ascii(f"{request.method} {request.scope['path']}"[:200])
        principal = request.scope.get("state", {}).get("principal")
        log.warning(
            "refused: %s by %s: %s", request_line, ascii(principal), ascii(error.message)[:300]
        )
    match error:
        case TpujobError():
            return error, error.http_status
        case RequestValidationError():
            return BadRequest("; ".join(map(_sentence, error.errors()[:5]))), 400
        case HTTPException():
            return _no_route(request, error), error.status_code
        case RecursionError():
            return BadRequest("the request is nested too deeply"), 400
        case _:
            return BadRequest("the request was cut off"), 400


def _sentence(problem: Any) -> str:
    where = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "literal_error":
        allowed = problem["ctx"]["expected"].removesuffix(" or ''")
        value = str(problem["input"])[:80]
        return f"{problem['loc'][-1]}: there is no {value!r}; one of {allowed}"
    return f"{where}: {problem['msg']}"[:300]


def _allowed(request: Request) -> set[str]:
    """Return the verbs that the request's path can have."""
    routes = [r for r in request.app.routes if isinstance(r, Route)]
    found = (r.methods or () for r in routes if r.matches(request.scope)[0] is Match.PARTIAL)
    return {verb for methods in found for verb in methods}


def _no_route(request: Request, error: HTTPException) -> TpujobError:
    path, person = request.scope["path"][:200], wants_page(request.scope)
    at = request.url.replace(path="/openapi.json", query="", fragment="")
    if at.hostname not in LOOPBACK:  # TLS ends before this process
        at = at.replace(scheme="https")
    hint = "" if person else f"All paths: {at}"
    if error.status_code == 404:
        text = f"there is no page {path}" if person else f"there is no {path}"
        return NotFound(text, hint=hint)
    if error.status_code == 405:
        return BadRequest(f"{request.method} is not allowed here", hint=hint)
    return BadRequest(str(error.detail)[:300])


# The page ------------------------------------------------------------------------------------------------------------
# It needs no other request, which might be refused, so it has no link, no script and no picture.


STYLE = """
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 34rem; margin: 15vh auto; padding: 0 1rem }
h1 { font-size: 1.3rem } code { font: .95em ui-monospace, monospace }
"""
_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


def answer(scope: Scope, error: TpujobError, status: int = 0, *, again_s: int = 0) -> Response:
    """Return the answer to a failed request: a page for a browser, else JSON. `again_s`: seconds after which the
    browser retries."""
    if not wants_page(scope):
        return reply(error, status)
    headers = {"content-security-policy": POLICY} | ({"refresh": str(again_s)} if again_s else {})
    hint = [*error.hint.splitlines(), *([f"This page retries every {again_s} s"] * bool(again_s))]
    return HTMLResponse(page(error.message, hint), status or error.http_status, headers)


def page(message: str, hint: Iterable[str]) -> str:
    head = f'<meta charset="utf-8"><title>tpujob</title><style>{STYLE}</style>'
    view = '<meta name="viewport" content="width=device-width, initial-scale=1">'
    title = escape(message[:1].upper() + message[1:])
    advice = "".join(f"<p>{_marked(line)}</p>" for line in hint)
    return (
        f'<!doctype html><html lang="en">{head}{view}'
        f"<main><p><b>tpujob</b></p><h1>{title}</h1>{advice}</main></html>"
    )


def _marked(line: str) -> str:
    """Show what is between backquotes as code."""
    parts = escape(line).split("`")
    return "".join(f"<code>{part}</code>" if n % 2 else part for n, part in enumerate(parts))
