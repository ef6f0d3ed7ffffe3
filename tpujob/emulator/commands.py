"""The commands of the control interface: parameters in, a drill done to the world, an answer out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, fields, replace
from typing import Any

from tpujob.emulator import drills, host_drills, serve
from tpujob.emulator.faults import CallFault
from tpujob.emulator.records import ApiError, Latencies, Node, Pricing, Queued
from tpujob.emulator.status import status
from tpujob.emulator.world import World

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
    return _which(host_drills.slow(world, body.text("target", ""), host, factor))


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
    host_drills.break_host(world, body.text("physical"), body.text("fault", ""))
    return {}


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
    ("POST", "/break-host"): _break_host,
    ("POST", "/settings"): _settings,
}


def _which(node: Node | Queued) -> Answer:
    return {"slice": node.id, "zone": node.zone, "state": str(node.state)}


def _bad(said: str) -> ApiError:
    return ApiError("INVALID_ARGUMENT", said)
