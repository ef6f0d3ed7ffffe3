"""The emulator's own HTTP interface, for faults by command: JSON in, JSON out, a bearer token, loopback only.

`client.py` is the other side and says what each command takes.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

from tpujob.emulator.commands import COMMANDS, Answer, Parameters, bad_request
from tpujob.emulator.faults import chaos, schedule, script
from tpujob.emulator.faults.script import Coming, Script
from tpujob.emulator.status import status
from tpujob.emulator.tpu.records import ApiError
from tpujob.emulator.tpu.world import World
from tpujob.errors import BadSpec

_LONGEST_BODY = 64 * 1024
_FASTEST = 1000.0  #: times the usual rate of chaos
_HTTP_STATUS = {"NOT_FOUND": 404, "FAILED_PRECONDITION": 409}


class ControlServer:
    """Serves until `stop`. `url` and `token` are what a client needs."""

    def __init__(self, world: World, port: int = 0, token: str = "") -> None:
        self.token = token or secrets.token_urlsafe(24)
        self._server = ThreadingHTTPServer(
            ("127.0.0.1", port), _handler_class(Control(world), self.token)
        )
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


class Control:
    """The commands of one world, and the plan of faults that runs in it, if any."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._script: Script | None = None
        self._commands: dict[tuple[str, str], Callable[[Parameters], Answer]] = {
            ("GET", "/status"): lambda _: status(self._world, self._plan()),
            ("POST", "/chaos"): self._chaos,
            ("POST", "/schedule"): self._schedule,
        }
        for name, command in COMMANDS.items():
            self._commands["POST", f"/{name}"] = partial(command, world)

    def perform(self, method: str, path: str, values: dict[str, Any]) -> tuple[int, Answer]:
        """One command: an HTTP status and the answer."""
        command = self._commands.get((method, path))
        if command is None:
            return 404, {"error": f"there is no {method} {path}"}
        try:
            with self._world.lock:
                self._world.advance()
                return 200, command(Parameters(values))
        except ApiError as error:
            return _HTTP_STATUS.get(error.code, 400), {"error": error.message}
        except BadSpec as error:
            return 400, {"error": error.message}

    def _chaos(self, given: Parameters) -> Answer:
        """Answers with the first faults that will come."""
        if given.flag("off"):
            self._end_plan()
            return {}
        seed, rate = int(given.number("seed")), given.number("rate", 1)
        only = given.texts("only")
        unknown = [kind for kind in only if kind not in chaos.PER_HOUR]
        if unknown:
            raise bad_request(f"{unknown[0]!r} is none of {', '.join(chaos.PER_HOUR)}")
        if not 0 < rate <= _FASTEST:
            raise bad_request(f"the rate must be above 0, and at most {_FASTEST:g}")
        planned = chaos.until(chaos.plan(seed, rate, only), given.number_or_none("for_s"))
        return self._begin(f"chaos {seed}", script.of_chaos(planned))

    def _schedule(self, given: Parameters) -> Answer:
        """Answers with the first steps."""
        steps = [] if given.flag("off") else schedule.parse(given.raw("steps"))
        if not steps:
            self._end_plan()
            return {"next": []}
        return self._begin("schedule", script.of_schedule(steps))

    def _begin(self, name: str, coming: Iterable[Coming]) -> Answer:
        self._end_plan()
        self._script = Script(self._world, name, coming, _perform)
        return self._plan() or {"next": []}

    def _end_plan(self) -> None:
        if self._script is not None:
            self._script.stop()
        self._script = None

    def _plan(self) -> Answer | None:
        return self._script.view() if self._script else None


def _perform(world: World, do: str, values: Mapping[str, Any]) -> Answer:
    return COMMANDS[do](world, Parameters(dict(values)))


def _handler_class(control: Control, token: str) -> type[BaseHTTPRequestHandler]:
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
            self._send(*control.perform(method, self.path.partition("?")[0], values))

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
