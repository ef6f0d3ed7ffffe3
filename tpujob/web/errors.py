"""How an error leaves the backend: one form in JSON, whoever raised it."""

from __future__ import annotations

import logging
import math
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from tpujob.errors import BadRequest, Forbidden, NotFound, TpujobError

log = logging.getLogger(__name__)


def error_body(error: TpujobError) -> dict[str, dict[str, str | int]]:
    """An error as the backend sends it; `adapters/remote.py` reads it back."""
    told: dict[str, str | int] = {
        "type": type(error).__name__,
        "message": error.message,
        "hint": error.hint,
        "exit_code": error.exit_code,
    }
    cause = getattr(error, "cause", "")
    return {"error": told | ({"cause": str(cause)} if cause else {})}


def add_handlers(app: FastAPI) -> None:
    """Every error that a request raises is answered in that form."""
    app.add_exception_handler(TpujobError, _explained)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(HTTPException, _no_route)
    app.add_exception_handler(ClientDisconnect, _cut)
    app.add_exception_handler(RecursionError, _too_deep)


def reply(error: TpujobError, status: int = 0) -> JSONResponse:
    """The answer to a request that raised it."""
    wait = getattr(error, "retry_after", None)
    headers = None if wait is None else {"retry-after": str(max(1, math.ceil(wait)))}
    return JSONResponse(error_body(error), status or error.http_status, headers)


def _explained(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, TpujobError)
    if isinstance(error, Forbidden):
        asked = ascii(f"{request.method} {request.url.path}"[:200])
        who = request.scope.get("state", {}).get("principal")
        log.warning("refused: %s by %s: %s", asked, ascii(who), ascii(error.message)[:300])
    return reply(error)


def _malformed(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    return reply(BadRequest("; ".join(map(_sentence, error.errors()[:5]))))


def _sentence(problem: Any) -> str:
    where = ".".join(str(part) for part in problem["loc"])
    return f"{where}: {problem['msg']}"[:300]


def _no_route(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return reply(NotFound(f"there is no {request.url.path[:200]}", hint="see /docs"))
    if error.status_code == 405:
        return reply(BadRequest(f"{request.method} is not allowed here", hint="see /docs"), 405)
    return reply(BadRequest(str(error.detail)[:300]), error.status_code)


def _cut(_: Request, _error: Exception) -> JSONResponse:
    return reply(BadRequest("the request was cut off"))


def _too_deep(_: Request, _error: Exception) -> JSONResponse:
    return reply(BadRequest("the request is nested too deeply"))
