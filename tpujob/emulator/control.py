"""The emulator's own HTTP interface, for faults by command: JSON in, JSON out, a bearer token, loopback only.

`GET /status`; `POST /preempt /maintain /slow /stockout /quota /api-error /break-host /settings`. `client.py` is the
other side and says what each takes.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable
from dataclasses import asdict, fields, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

from tpujob.emulator import drills, serve
from tpujob.emulator.faults import CallFault
from tpujob.emulator.records import ApiError, Latencies, Node, Pricing
from tpujob.emulator.status import status
from tpujob.emulator.world import World
from tpujob.errors import BadSpec

_LONGEST_BODY = 64 * 1024
_HTTP_STATUS = {"NOT_FOUND": 404, "FAILED_PRECONDITION": 409}

Answer = dict[str, Any]
Command = Callable[[World, "Body"], Answer]


class ControlServer:
    """Serves until `stop`. `url` and `token` are what a client needs."""

    def __init__(self, world: World, port: int = 0, token: str = "") -> None:
        self.token = token or secrets.token_urlsafe(24)
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler_class(world, self.token))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="control", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Body:
    """The parameters of one command. Raises ApiError for one of the wrong kind."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    def text(self, key: str, default: str | None = None) -> str:
        value = self._values.get(key, default)
        if not isinstance(value, str):
            raise _bad(f"{key} must be a text")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self._values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
            raise _bad(f"{key} must be a number from 0")
        return float(value)

    def flag(self, key: str) -> bool:
        return self._values.get(key, False) is True

    def has(self, key: str) -> bool:
        return self._values.get(key) is not None


def _status(world: World, _body: Body) -> Answer:
    return status(world)


def _preempt(world: World, body: Body) -> Answer:
    return _which(drills.preempt(world, body.text("target", ""), body.number("notice_s", 30)))


def _maintain(world: World, body: Body) -> Answer:
    return _which(drills.maintain(world, body.text("target", ""), body.number("window_s", 60)))


def _slow(world: World, body: Body) -> Answer:
    host, factor = int(body.number("host", 0)), body.number("factor")
    return _which(drills.slow(world, body.text("target", ""), host, factor))


def _stockout(world: World, body: Body) -> Answer:
    lasts = body.number("for_s") if body.has("for_s") else None
    zone, type = body.text("zone"), body.text("type", "")
    drills.stockout(world, zone, type, lasts=lasts, off=body.flag("off"), fail=body.flag("fail"))
    return {}


def _quota(world: World, body: Body) -> Answer:
    limit = int(body.number("limit")) if body.has("limit") else None
    every: tuple[Pricing, ...] = ("spot", "on-demand", "reserved")
    asked = body.text("pricing", "")
    if asked and asked not in every:
        raise _bad(f"pricing must be one of {', '.join(every)}")
    pricings: list[Pricing] = [pricing for pricing in every if asked in ("", pricing)]
    drills.quota(world, body.text("zone"), body.text("type"), limit, pricings)
    return {}


def _api_error(world: World, body: Body) -> Answer:
    when = body.text("when", "pre")
    if when not in ("pre", "post"):
        raise _bad("when must be pre or post")
    fault = CallFault(
        method=serve.method_name(world, body.text("method")),
        code=body.text("code", "UNAVAILABLE").upper(),
        count=int(body.number("count", 1)),
        when=when,
        delay=body.number("delay_s", 0),
        message=body.text("message", ""),
    )
    drills.fail_calls(world, fault)
    return {}


def _break_host(world: World, body: Body) -> Answer:
    drills.break_host(world, body.text("physical"), body.text("fault", ""))
    return {}


def _settings(world: World, body: Body) -> Answer:
    """Change how long things take; answers with all of it."""
    given = {f.name: body.number(f.name) for f in fields(Latencies) if body.has(f.name)}
    world.latencies = replace(world.latencies, **given)
    return asdict(world.latencies)


_COMMANDS: dict[tuple[str, str], Command] = {
    ("GET", "/status"): _status,
    ("POST", "/preempt"): _preempt,
    ("POST", "/maintain"): _maintain,
    ("POST", "/slow"): _slow,
    ("POST", "/stockout"): _stockout,
    ("POST", "/quota"): _quota,
    ("POST", "/api-error"): _api_error,
    ("POST", "/break-host"): _break_host,
    ("POST", "/settings"): _settings,
}


def perform(world: World, method: str, path: str, values: dict[str, Any]) -> tuple[int, Answer]:
    """One command: an HTTP status and the answer."""
    command = _COMMANDS.get((method, path))
    if command is None:
        return 404, {"error": f"there is no {method} {path}"}
    try:
        with world.lock:
            world.advance()
            return 200, command(world, Body(values))
    except ApiError as error:
        return _HTTP_STATUS.get(error.code, 400), {"error": error.message}
    except BadSpec as error:
        return 400, {"error": error.message}


def _which(node: Node) -> Answer:
    return {"slice": node.id, "zone": node.zone, "state": str(node.state)}


def _bad(said: str) -> ApiError:
    return ApiError("INVALID_ARGUMENT", said)


def _handler_class(world: World, token: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 10  # a client that sends nothing does not keep a thread

        def do_GET(self) -> None:
            self._answer("GET")

        def do_POST(self) -> None:
            self._answer("POST")

        def log_message(self, format: str, *args: Any) -> None:
            """Commands are in the world's own history."""

        def _answer(self, method: str) -> None:
            given = self.headers.get("Authorization", "")
            if not secrets.compare_digest(given.encode(), f"Bearer {token}".encode()):
                self._send(401, {"error": "the token is missing or wrong"})
                return
            try:
                values = self._read()
            except ValueError as error:
                self._send(400, {"error": str(error)})
                return
            self._send(*perform(world, method, self.path.partition("?")[0], values))

        def _read(self) -> dict[str, Any]:
            length = int(self.headers.get("Content-Length") or 0)
            if not 0 <= length <= _LONGEST_BODY:
                raise ValueError(f"a body may have {_LONGEST_BODY} bytes")
            values = json.loads(self.rfile.read(length) or b"{}")
            if not isinstance(values, dict):
                raise ValueError("the body must be a JSON object")
            return cast(dict[str, Any], values)

        def _send(self, status: int, answer: Answer) -> None:
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(data)

    return Handler
