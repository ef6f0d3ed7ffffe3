"""The page for a request that fails: what happened, and what to do. It needs no other request, which might be refused,
so it has no link, no script and no picture.
"""

import base64
import hashlib
from collections.abc import Iterable
from html import escape

from starlette.responses import HTMLResponse, Response
from starlette.types import Scope

from tpujob.errors import TpujobError
from tpujob.web.middleware.errors import reply, wants_page

STYLE = """
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 34rem; margin: 15vh auto; padding: 0 1rem }
h1 { font-size: 1.3rem } code { font: .95em ui-monospace, monospace }
"""
_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


def answer(scope: Scope, error: TpujobError, status: int = 0, *, again_s: int = 0) -> Response:
    """What a request gets in place of its answer: a page if a browser asks for one, else the API's form. `again_s`:
    seconds after which the browser asks again."""
    if not wants_page(scope):
        return reply(error, status)
    headers = {"content-security-policy": POLICY} | ({"refresh": str(again_s)} if again_s else {})
    hint = [
        *error.hint.splitlines(),
        *([f"This page asks again every {again_s} s"] * bool(again_s)),
    ]
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
    """What is between backquotes is code."""
    parts = escape(line).split("`")
    return "".join(f"<code>{part}</code>" if n % 2 else part for n, part in enumerate(parts))
