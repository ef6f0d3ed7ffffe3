"""The emulator's control interface: JSON over HTTP on a Unix socket.

`client.py` is the client; the signature of a command's function lists the parameters that it takes.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from starlette.responses import Response

from tpujob.emulator import CHAOS_PER_HOUR, schedule
from tpujob.emulator.cloud import rules
from tpujob.emulator.cloud.records import ApiError, Latencies, Node, Queued, check_known, invalid
from tpujob.emulator.farm import image
from tpujob.emulator.fault_commands import COMMANDS, Answer, arguments, perform
from tpujob.emulator.http_server import HttpThread, Request, json_response
from tpujob.emulator.tpu.served_world import ServedWorld
from tpujob.errors import BadSpec
from tpujob.lib import unix_sockets
from tpujob.protocol import JOB_LABEL

_MAX_BODY = 64 * 1024
_FASTEST = 1000.0  #: times the usual rate of chaos
_HTTP_STATUS = {"NOT_FOUND": 404, "FAILED_PRECONDITION": 409}


class ControlServer:
    """A server on the socket `path` in `folder`, from the constructor to `stop`."""

    def __init__(self, world: ServedWorld, folder: Path) -> None:
        self._control = Control(world)
        self.path = unix_sockets.place(folder, "control.sock")
        self._http = HttpThread(self._answer, self.path, name="control")

    def stop(self) -> None:
        self._http.stop()

    async def _answer(self, request: Request) -> Response:
        try:
            values = await request.json_object(_MAX_BODY)
        except ValueError as error:
            return json_response({"error": str(error)}, 400)
        status, answer = self._control.perform(request.method, request.path, values)
        return json_response(answer, status)


class Control:
    """The commands for one world, and the schedule of faults that runs in the world, if any."""

    def __init__(self, world: ServedWorld) -> None:
        self._world = world
        self._running: schedule.Schedule | None = None
        self._commands: dict[tuple[str, str], Callable[[Mapping[str, Any]], Answer]] = {
            ("GET", "/status"): lambda _: status(self._world, self._plan()),
            ("POST", "/chaos"): lambda values: self._chaos(**arguments(self._chaos, values)),
            ("POST", "/schedule"): self._schedule,
            ("POST", "/end-plan"): lambda _: self._end_plan(),
            ("POST", "/settings"): self._settings,
            ("POST", "/profile"): lambda values: self._profile(**arguments(self._profile, values)),
            **{("POST", f"/{name}"): partial(perform, world, name) for name in COMMANDS},
        }

    def perform(self, method: str, path: str, values: dict[str, Any]) -> tuple[int, Answer]:
        """Carry out one command; return an HTTP status and the answer."""
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
        """Start faults at random times, in place of the running plan; return the next faults. `rate` is a multiple of
        the usual rate; `only` lists kinds, separated by commas. The same seed, rate and kinds give the same faults."""
        kinds = [kind.strip() for kind in only.split(",") if kind.strip()]
        for kind in kinds:
            check_known(kind, CHAOS_PER_HOUR)
        if not 0 < rate <= _FASTEST:
            raise invalid(f"the rate must be above 0, and at most {_FASTEST:g}")
        return self._begin(f"chaos {seed}", schedule.chaos_steps(seed, rate, kinds, for_s))

    def _schedule(self, values: Mapping[str, Any]) -> Answer:
        """Replace the running plan by a list of faults; return the next faults. Raise ApiError for an invalid step."""
        return self._begin("schedule", schedule.parse(values.get("steps")))

    def _settings(self, values: Mapping[str, Any]) -> Answer:
        """Change latencies; return all of them."""
        world = self._world
        world.latencies = replace(world.latencies, **arguments(Latencies, values))
        return asdict(world.latencies)

    def _profile(self, name: str) -> Answer:
        """Choose the image of hosts that come up from now on. Return its name and its shortcomings on this machine."""
        check_known(name, image.IMAGES)
        self._world.image = name
        lacks = image.shortcomings() if name == image.BARE else []
        return {"profile": name, "shortcomings": lacks}

    def _begin(self, name: str, steps: Iterable[schedule.Step]) -> Answer:
        self._end_plan()
        self._running = schedule.Schedule(self._world, name, steps)
        return self._plan() or {"next": []}

    def _end_plan(self) -> Answer:
        """Stop the schedule. Faults that it has set remain."""
        if self._running is not None:
            self._running.stop()
        self._running = None
        return {}

    def _plan(self) -> Answer | None:
        return self._running.view() if self._running else None


# The world as JSON, for `tpujob emulator status` ---------------------------------------------------------------------


def status(world: ServedWorld, plan: dict[str, Any] | None) -> dict[str, Any]:
    """Return the state of the world. `plan`: the view of the running schedule, None without one."""
    now = world.clock()
    held = {node.queued for node in world.nodes.values()}
    waiting = [q for q in world.queued.values() if q.name not in held]
    slices = [_slice_view(world, record, now) for record in (*world.nodes.values(), *waiting)]
    return {
        "zones": [_zone_view(world, zone) for zone in sorted(world.stock.hosts)],
        "slices": sorted(slices, key=lambda s: s["name"]),
        "faults": _faults_view(world, now),
        "schedule": plan,
        "profile": world.image,
        "cut": world.cut,
        "billed": {"operations": world.billed.counts(), "calls": dict(sorted(world.calls.items()))},
        "recent": [{"at": round(at, 3), "text": text} for at, text in world.history],
    }


def _zone_view(world: ServedWorld, zone: str) -> dict[str, Any]:
    hosts = list(world.stock.hosts[zone].values())
    stock = {
        generation: {
            "hosts": sum(h.generation == generation for h in hosts),
            "used": sum(h.generation == generation and bool(h.used_by) for h in hosts),
        }
        for generation in dict.fromkeys(h.generation for h in hosts)
    }
    return {"zone": zone, "stock": stock, "bad": [h.name for h in hosts if h.fault]}


def _slice_view(world: ServedWorld, record: Node | Queued, now: float) -> dict[str, Any]:
    """Return the view of a node, or of a queued resource without nodes."""
    node = record if isinstance(record, Node) else None
    queued = world.queued.get(record.queued) if isinstance(record, Node) else record
    spec = record.spec if isinstance(record, Node) else record.specs[0][1]
    gone_at = node.preempted_at if node else None
    return {
        "name": record.id,
        "request": queued.id if queued else "",
        "zone": record.zone,
        "type": spec.type,
        "pricing": spec.pricing,
        "job": spec.labels.get(JOB_LABEL, ""),
        "state": str(node.state) if node else "",
        "queued": str(queued.state) if queued else "",
        "initiator": queued.initiator if queued else "",
        "age_s": round(now - record.created_at, 1),
        "gone_in_s": None if gone_at is None else round(gone_at - now, 1),
        "maintenance": node is not None and node.maintenance_until > now,
        "unreachable": node is not None and node.unreachable,
        "error": queued.error.message if queued and queued.error else "",
        "hosts": _host_views(world, node) if node else [],
    }


def _host_views(world: ServedWorld, node: Node) -> list[dict[str, Any]]:
    addresses = node.addresses or ("",) * len(node.physical)
    return [
        {
            "index": index,
            "physical": physical,
            "address": address,
            "fault": host.fault if (host := world.stock.find(physical)) else "",
            "factor": node.slowed.get(index, 1),
            "silent": index in node.silent,
            "hung": index in node.hung,
        }
        for index, (physical, address) in enumerate(zip(node.physical, addresses, strict=True))
    ]


def _faults_view(world: ServedWorld, now: float) -> dict[str, Any]:
    faults = world.faults
    lasting = [s for s in faults.stockouts if s.until is None or s.until > now]
    return {
        "stockouts": [
            {**asdict(s), "for_s": None if s.until is None else round(s.until - now, 1)}
            for s in lasting
        ],
        "quotas": [
            {**asdict(q), "used": rules.quota_used(world, q.zone, q.generation, q.pricing)}
            for q in faults.quotas.values()
        ],
        "calls": [asdict(c) for c in world.call_faults.pending],
        "storage": [asdict(f) for f in world.storage_faults.all()],
        "api_bugs": sorted(faults.api_bugs),
        "max_run_s": faults.max_run_s,
        "unreachable": sorted(faults.unreachable),
        "bad_hosts": [{"physical": h.name, "fault": h.fault} for h in world.stock.bad()],
    }
