"""The commands that inject one fault. The signature of each says what the control interface and a schedule take.

Called with the world's lock held. `status`, settings and the plans of faults are in `control.py`.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from types import NoneType
from typing import Any, cast, get_args

from tpujob.emulator.faults import inject, inject_hosts
from tpujob.emulator.tpu.records import ApiError, Node, Queued
from tpujob.emulator.tpu.world import World

Answer = dict[str, Any]


COMMANDS: dict[str, Callable[..., Node | Queued | None]] = {
    "preempt": inject.preempt,
    "maintain": inject.maintain,
    "announce": inject.announce,
    "slow": inject_hosts.slow,
    "silence": inject_hosts.silence,
    "hang": inject_hosts.hang,
    "oom": inject_hosts.oom,
    "cut": inject_hosts.cut,
    "delete": inject.delete,
    "suspend": inject.suspend,
    "stockout": inject.stockout,
    "quota": inject.quota,
    "offer": inject.offer,
    "add": inject.add,
    "api-bug": inject.api_bug,
    "max-run": inject.max_run,
    "unreachable": inject.unreachable,
    "api-error": inject.api_error,
    "storage-error": inject.storage_error,
    "break-host": inject_hosts.break_host,
}


def perform(world: World, name: str, values: Mapping[str, Any]) -> Answer:
    """Carry out one of COMMANDS; answers with what it did, as the history has it. Raises ApiError, BadSpec."""
    hit = COMMANDS[name](world, **arguments(COMMANDS[name], values))
    where = {"slice": hit.id, "zone": hit.zone, "state": str(hit.state)} if hit else {}
    return {**where, "text": world.history[-1][1]}


@cache
def parameters(command: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """What a command takes besides the world, by name."""
    found = inspect.signature(command, eval_str=True).parameters
    return {name: each for name, each in found.items() if each.annotation is not World}


def arguments(command: Callable[..., Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values from JSON, checked. Raises ApiError for an unknown, missing or wrong one."""
    takes = parameters(command)
    for name in values:
        if name not in takes:
            raise bad_request(f"there is {', '.join(takes) or 'nothing'} to give, not {name!r}")
    return {
        name: _checked(name, kinds_of(each), values.get(name, each.default))
        for name, each in takes.items()
        if name in values or each.default is inspect.Parameter.empty
    }


def kinds_of(parameter: inspect.Parameter) -> tuple[type, ...]:
    """`(int, NoneType)` for `int | None`."""
    return get_args(parameter.annotation) or (parameter.annotation,)


def _checked(name: str, kinds: tuple[type, ...], value: Any) -> Any:
    if value in (None, "none") and NoneType in kinds:
        return None
    if kinds[0] in (int, float):
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
            raise bad_request(f"{name} must be a number from 0")
        return kinds[0](value)
    if kinds[0] is not Any and not isinstance(value, kinds[0]):
        raise bad_request(f"{name} must be a {kinds[0].__name__}")
    return cast(Any, value)


def bad_request(message: str) -> ApiError:
    return ApiError("INVALID_ARGUMENT", message)
