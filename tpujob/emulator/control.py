"""The emulator's control interface: JSON over HTTP on a Unix socket.

`client.py` is the other side; the commands' signatures say what each takes.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from tpujob.emulator.farm import image
from tpujob.emulator.faults import PER_HOUR, chaos, schedule
from tpujob.emulator.faults.commands import COMMANDS, Answer, arguments, bad_request, perform
from tpujob.emulator.http_messages import Request, Response, json_response
from tpujob.emulator.http_server import HttpThread
from tpujob.emulator.status import status
from tpujob.emulator.tpu.records import ApiError, Latencies
from tpujob.emulator.tpu.world import World
from tpujob.errors import BadSpec
from tpujob.lib import unix_sockets

_LONGEST_BODY = 64 * 1024
_FASTEST = 1000.0  #: times the usual rate of chaos
_HTTP_STATUS = {"NOT_FOUND": 404, "FAILED_PRECONDITION": 409}


class ControlServer:
    """Serves from the constructor to `stop`, on the socket `path` in `folder`."""

    def __init__(self, world: World, folder: Path) -> None:
        self._control = Control(world)
        self.path = unix_sockets.place(folder, "control.sock")
        self._http = HttpThread(self._answer, self.path, name="control")

    def stop(self) -> None:
        self._http.stop()

    async def _answer(self, request: Request) -> Response:
        try:
            values = await request.json_object(_LONGEST_BODY)
        except ValueError as error:
            return json_response({"error": str(error)}, 400)
        status, answer = self._control.perform(request.method, request.path, values)
        return json_response(answer, status)


class Control:
    """The commands of one world, and the schedule of faults that runs in it, if any."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._running: schedule.Schedule | None = None
        self._commands: dict[tuple[str, str], Callable[[Mapping[str, Any]], Answer]] = {
            ("GET", "/status"): lambda _: status(self._world, self._plan()),
            ("POST", "/chaos"): lambda given: self._chaos(**arguments(self._chaos, given)),
            ("POST", "/schedule"): lambda given: self._schedule(given.get("steps")),
            ("POST", "/end-plan"): lambda _: self._end_plan(),
            ("POST", "/settings"): self._settings,
            ("POST", "/profile"): lambda given: self._profile(**arguments(self._profile, given)),
            **{("POST", f"/{name}"): partial(perform, world, name) for name in COMMANDS},
        }

    def perform(self, method: str, path: str, values: dict[str, Any]) -> tuple[int, Answer]:
        """One command: an HTTP status and the answer."""
        command = self._commands.get((method, path))
        if command is None:
            return 404, {"error": f"there is no {method} {path}"}
        try:
            with self._world.lock:
                self._world.advance()
                return 200, command(values)
        except ApiError as error:
            return _HTTP_STATUS.get(error.code, 400), {"error": error.message}
        except BadSpec as error:
            return 400, {"error": error.message}

    def _chaos(
        self, seed: int, rate: float = 1.0, for_s: float | None = None, only: str = ""
    ) -> Answer:
        """Faults at random, the same for the same seed, rate and kinds (`only`: with commas between them); `rate` is a
        multiple of the usual one. Replaces the running plan. Answers with the next faults."""
        kinds = [kind.strip() for kind in only.split(",") if kind.strip()]
        for kind in kinds:
            if kind not in PER_HOUR:
                raise bad_request(f"{kind!r} is none of {', '.join(PER_HOUR)}")
        if not 0 < rate <= _FASTEST:
            raise bad_request(f"the rate must be above 0, and at most {_FASTEST:g}")
        return self._begin(f"chaos {seed}", chaos.steps(seed, rate, kinds, for_s))

    def _schedule(self, steps: Any) -> Answer:
        """Faults at their times, unless a step is invalid. Replaces the running plan. Answers with the next faults."""
        return self._begin("schedule", schedule.parse(steps))

    def _settings(self, given: Mapping[str, Any]) -> Answer:
        """Change latencies; answers with all of them."""
        world = self._world
        world.latencies = replace(world.latencies, **arguments(Latencies, given))
        return asdict(world.latencies)

    def _profile(self, name: str) -> Answer:
        """What is installed on hosts that come up from now on; answers with that, and in what it falls short."""
        if name not in image.IMAGES:
            raise bad_request(f"{name!r} is none of {', '.join(image.IMAGES)}")
        self._world.image = name
        lacks = image.shortcomings() if name == image.BARE else []
        return {"profile": name, "shortcomings": lacks}

    def _begin(self, name: str, steps: Iterable[schedule.Step]) -> Answer:
        self._end_plan()
        self._running = schedule.Schedule(self._world, name, steps)
        return self._plan() or {"next": []}

    def _end_plan(self) -> Answer:
        """Faults that the schedule has set remain."""
        if self._running is not None:
            self._running.stop()
        self._running = None
        return {}

    def _plan(self) -> Answer | None:
        return self._running.view() if self._running else None
