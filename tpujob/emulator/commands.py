"""The commands of the control interface that inject one fault or change one setting: parameters in, an answer out.

Called with the world's lock held. `status` and the plans of faults are in `control.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, fields, replace
from typing import Any, Literal, cast

from tpujob.emulator.faults import inject, inject_hosts
from tpujob.emulator.storage import StorageFault
from tpujob.emulator.tpu import server
from tpujob.emulator.tpu.records import ApiError, Latencies, Node, Pricing, Queued
from tpujob.emulator.tpu.refusals import CallFault
from tpujob.emulator.tpu.world import World

Answer = dict[str, Any]
Command = Callable[[World, "Parameters"], Answer]


class Parameters:
    """The parameters of one command. Raises ApiError for a wrong type."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    def text(self, key: str, default: str | None = None) -> str:
        value = self._values.get(key, default)
        if not isinstance(value, str):
            raise bad_request(f"{key} must be a text")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self._values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
            raise bad_request(f"{key} must be a number from 0")
        return float(value)

    def number_or_none(self, key: str) -> float | None:
        return self.number(key) if self.has(key) else None

    def host(self) -> int | None:
        """A host's number; None: all hosts."""
        return int(self.number("host")) if self.has("host") else None

    def texts(self, key: str) -> list[str]:
        value: Any = self._values.get(key) or []
        if not isinstance(value, list):
            raise bad_request(f"{key} must be a list")
        return [str(item) for item in cast(list[Any], value)]

    def raw(self, key: str) -> Any:
        return self._values.get(key)

    def flag(self, key: str) -> bool:
        return self._values.get(key, False) is True

    def has(self, key: str) -> bool:
        return self._values.get(key) is not None


def _preempt(world: World, given: Parameters) -> Answer:
    return _slice_answer(
        inject.preempt(world, given.text("target", ""), given.number("notice_s", 30))
    )


def _maintain(world: World, given: Parameters) -> Answer:
    window, notice = given.number("window_s", 60), given.number("notice_s", 0)
    target, restart = given.text("target", ""), given.flag("restart")
    return _slice_answer(inject.maintain(world, target, window, restart=restart, notice=notice))


def _slow(world: World, given: Parameters) -> Answer:
    host, factor = int(given.number("host", 0)), given.number("factor")
    target, lasts = given.text("target", ""), given.number_or_none("for_s")
    return _slice_answer(inject_hosts.slow(world, target, host, factor, lasts=lasts))


def _silence(world: World, given: Parameters) -> Answer:
    return _slice_answer(inject_hosts.silence(world, given.text("target", ""), given.host()))


def _hang(world: World, given: Parameters) -> Answer:
    target, off = given.text("target", ""), given.flag("off")
    return _slice_answer(inject_hosts.hang(world, target, given.host(), off=off))


def _oom(world: World, given: Parameters) -> Answer:
    return _slice_answer(inject_hosts.oom(world, given.text("target", ""), given.host() or 0))


def _delete(world: World, given: Parameters) -> Answer:
    return _slice_answer(inject.delete(world, given.text("target", "")))


def _suspend(world: World, given: Parameters) -> Answer:
    return _slice_answer(inject.suspend(world, given.text("target", "")))


def _stockout(world: World, given: Parameters) -> Answer:
    lasts = given.number_or_none("for_s")
    zone, type = given.text("zone"), given.text("type", "")
    inject.stockout(world, zone, type, lasts=lasts, off=given.flag("off"), fail=given.flag("fail"))
    return {}


def _quota(world: World, given: Parameters) -> Answer:
    limit = int(given.number("limit")) if given.has("limit") else None
    every: tuple[Pricing, ...] = ("spot", "on-demand", "reserved")
    asked = given.text("pricing", "")
    if asked and asked not in every:
        raise bad_request(f"pricing must be one of {', '.join(every)}")
    pricings: list[Pricing] = [pricing for pricing in every if asked in ("", pricing)]
    inject.quota(world, given.text("zone"), given.text("type"), limit, pricings)
    return {}


def _api_error(world: World, given: Parameters) -> Answer:
    fault = CallFault(
        method=server.method_name(world, given.text("method")),
        code=given.text("code", "UNAVAILABLE").upper(),
        count=int(given.number("count", 1)),
        when=_when(given),
        delay_s=given.number("delay_s", 0),
        message=given.text("message", ""),
    )
    inject.fail_calls(world, fault)
    return {}


def _storage_error(world: World, given: Parameters) -> Answer:
    if given.flag("off"):
        inject.mend_storage(world)
        return {}
    fault = StorageFault(
        method=given.text("method", "*").upper(),
        status=int(given.number("status", 503)),
        count=int(given.number("count", 1)),
        when=_when(given),
        hang_s=given.number("hang_s", 0),
        path=given.text("path", ""),
    )
    inject.fail_storage(world, fault)
    return {}


def _break_host(world: World, given: Parameters) -> Answer:
    inject_hosts.break_host(world, given.text("physical"), given.text("fault", ""))
    return {}


def _settings(world: World, given: Parameters) -> Answer:
    """Change latencies; answers with all of them."""
    changed = {f.name: given.number(f.name) for f in fields(Latencies) if given.has(f.name)}
    world.latencies = replace(world.latencies, **changed)
    return asdict(world.latencies)


#: By the last part of its path.
COMMANDS: dict[str, Command] = {
    "preempt": _preempt,
    "maintain": _maintain,
    "slow": _slow,
    "silence": _silence,
    "hang": _hang,
    "oom": _oom,
    "delete": _delete,
    "suspend": _suspend,
    "stockout": _stockout,
    "quota": _quota,
    "api-error": _api_error,
    "storage-error": _storage_error,
    "break-host": _break_host,
    "settings": _settings,
}


def _slice_answer(node: Node | Queued) -> Answer:
    return {"slice": node.id, "zone": node.zone, "state": str(node.state)}


def _when(given: Parameters) -> Literal["pre", "post"]:
    when = given.text("when", "pre")
    if when not in ("pre", "post"):
        raise bad_request("when must be pre or post")
    return when


def bad_request(said: str) -> ApiError:
    return ApiError("INVALID_ARGUMENT", said)
