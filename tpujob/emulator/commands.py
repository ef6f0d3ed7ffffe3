"""The commands of the control interface: parameters in, a drill done to the world, an answer out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, replace
from typing import Any, Literal, cast

from tpujob.emulator.faults import chaos, drills, host_drills, schedule, script
from tpujob.emulator.status import status
from tpujob.emulator.storage.faults import StorageFault
from tpujob.emulator.tpu import server
from tpujob.emulator.tpu.records import ApiError, Latencies, Node, Pricing, Queued
from tpujob.emulator.tpu.refusals import CallFault
from tpujob.emulator.tpu.world import World

_FASTEST = 1000.0  #: times the usual rate of chaos

Answer = dict[str, Any]
Command = Callable[[World, "Body"], Answer]


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

    def host(self) -> int | None:
        """The number of a host; None: all of them."""
        return int(self.number("host")) if self.has("host") else None

    def texts(self, key: str) -> list[str]:
        value: Any = self._values.get(key) or []
        if not isinstance(value, list):
            raise _bad(f"{key} must be a list")
        return [str(item) for item in cast(list[Any], value)]

    def raw(self, key: str) -> Any:
        return self._values.get(key)

    def flag(self, key: str) -> bool:
        return self._values.get(key, False) is True

    def has(self, key: str) -> bool:
        return self._values.get(key) is not None


def _status(world: World, _body: Body) -> Answer:
    return status(world)


def _preempt(world: World, body: Body) -> Answer:
    return _which(drills.preempt(world, body.text("target", ""), body.number("notice_s", 30)))


def _maintain(world: World, body: Body) -> Answer:
    window, notice = body.number("window_s", 60), body.number("notice_s", 0)
    target, restart = body.text("target", ""), body.flag("restart")
    return _which(drills.maintain(world, target, window, restart=restart, notice=notice))


def _slow(world: World, body: Body) -> Answer:
    host, factor = int(body.number("host", 0)), body.number("factor")
    target, lasts = body.text("target", ""), body.number("for_s") if body.has("for_s") else None
    return _which(host_drills.slow(world, target, host, factor, lasts=lasts))


def _silence(world: World, body: Body) -> Answer:
    return _which(host_drills.silence(world, body.text("target", ""), body.host()))


def _hang(world: World, body: Body) -> Answer:
    target, off = body.text("target", ""), body.flag("off")
    return _which(host_drills.hang(world, target, body.host(), off=off))


def _oom(world: World, body: Body) -> Answer:
    return _which(host_drills.oom(world, body.text("target", ""), body.host() or 0))


def _delete(world: World, body: Body) -> Answer:
    return _which(drills.delete(world, body.text("target", "")))


def _suspend(world: World, body: Body) -> Answer:
    return _which(drills.suspend(world, body.text("target", "")))


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
    fault = CallFault(
        method=server.method_name(world, body.text("method")),
        code=body.text("code", "UNAVAILABLE").upper(),
        count=int(body.number("count", 1)),
        when=_when(body),
        delay=body.number("delay_s", 0),
        message=body.text("message", ""),
    )
    drills.fail_calls(world, fault)
    return {}


def _storage_error(world: World, body: Body) -> Answer:
    if body.flag("off"):
        drills.mend_storage(world)
        return {}
    fault = StorageFault(
        method=body.text("method", "*").upper(),
        status=int(body.number("status", 503)),
        count=int(body.number("count", 1)),
        when=_when(body),
        hang=body.number("hang_s", 0),
        path=body.text("path", ""),
    )
    drills.fail_storage(world, fault)
    return {}


def _break_host(world: World, body: Body) -> Answer:
    host_drills.break_host(world, body.text("physical"), body.text("fault", ""))
    return {}


def _chaos(world: World, body: Body) -> Answer:
    """Answers with the first faults that will come."""
    if body.flag("off"):
        script.begin(world, None)
        return {}
    seed, rate = int(body.number("seed")), body.number("rate", 1)
    only = body.texts("only")
    unknown = [kind for kind in only if kind not in chaos.PER_HOUR]
    if unknown:
        raise _bad(f"{unknown[0]!r} is none of {', '.join(chaos.PER_HOUR)}")
    if not 0 < rate <= _FASTEST:
        raise _bad(f"the rate must be above 0, and at most {_FASTEST:g}")
    lasts = body.number("for_s") if body.has("for_s") else None
    planned = chaos.until(chaos.plan(seed, rate, only), lasts)
    script.begin(world, script.of_chaos(planned, f"chaos {seed}", _perform))
    return _coming(world)


def _schedule(world: World, body: Body) -> Answer:
    """Answers with the first steps."""
    steps = None if body.flag("off") else schedule.parse(body.raw("steps"))
    script.begin(world, script.of_schedule(steps, _perform) if steps else None)
    return _coming(world)


def _coming(world: World) -> Answer:
    return (world.script.view(world.clock()) if world.script else None) or {"next": []}


def _perform(world: World, do: str, values: Mapping[str, Any]) -> Answer:
    return COMMANDS["POST", f"/{do}"](world, Body(dict(values)))


def _settings(world: World, body: Body) -> Answer:
    """Change how long things take; answers with all of it."""
    given = {f.name: body.number(f.name) for f in fields(Latencies) if body.has(f.name)}
    world.latencies = replace(world.latencies, **given)
    return asdict(world.latencies)


#: By HTTP method and path.
COMMANDS: dict[tuple[str, str], Command] = {
    ("GET", "/status"): _status,
    ("POST", "/preempt"): _preempt,
    ("POST", "/maintain"): _maintain,
    ("POST", "/slow"): _slow,
    ("POST", "/silence"): _silence,
    ("POST", "/hang"): _hang,
    ("POST", "/oom"): _oom,
    ("POST", "/delete"): _delete,
    ("POST", "/suspend"): _suspend,
    ("POST", "/stockout"): _stockout,
    ("POST", "/quota"): _quota,
    ("POST", "/api-error"): _api_error,
    ("POST", "/storage-error"): _storage_error,
    ("POST", "/break-host"): _break_host,
    ("POST", "/chaos"): _chaos,
    ("POST", "/schedule"): _schedule,
    ("POST", "/settings"): _settings,
}


def _which(node: Node | Queued) -> Answer:
    return {"slice": node.id, "zone": node.zone, "state": str(node.state)}


def _when(body: Body) -> Literal["pre", "post"]:
    when = body.text("when", "pre")
    if when not in ("pre", "post"):
        raise _bad("when must be pre or post")
    return when


def _bad(said: str) -> ApiError:
    return ApiError("INVALID_ARGUMENT", said)
