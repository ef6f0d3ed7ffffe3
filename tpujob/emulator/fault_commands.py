"""Commands that inject one fault. A command's signature lists its parameters for the control interface and schedules.

The caller holds the world's lock. `status`, settings and the plans of faults are in `control.py`.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from functools import cache
from types import NoneType
from typing import Any, get_args

from tpujob.emulator import inject, inject_hosts
from tpujob.emulator.cloud.records import Node, Queued, invalid
from tpujob.emulator.tpu.served_world import ServedWorld

Answer = dict[str, Any]
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


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


def perform(world: ServedWorld, name: str, values: Mapping[str, Any]) -> Answer:
    """Carry out one of COMMANDS; return its target and its line of the history. Raise ApiError, BadSpec."""
    target = COMMANDS[name](world, **arguments(COMMANDS[name], values))
    where = {"slice": target.id, "zone": target.zone, "state": str(target.state)} if target else {}
    return {**where, "text": world.history[-1][1]}


@cache
def parameters(command: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a command besides the world, by name."""
    takes = inspect.signature(command, eval_str=True).parameters
    return {name: item for name, item in takes.items() if name != "world"}


def arguments(command: Callable[..., Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return converted values of JSON or a schedule. Raise ApiError for an unknown, missing or invalid value."""
    takes = parameters(command)
    if unknown := [name for name in values if name not in takes]:
        words = ", ".join(name.removesuffix("_s") for name in takes) or "nothing"
        raise invalid(f"there is {words} to give, not {unknown[0]!r}")
    needed = [name for name, item in takes.items() if item.default is inspect.Parameter.empty]
    if missing := [name for name in needed if name not in values]:
        raise invalid(f"{', '.join(missing)} must be given")
    return {name: value_of(takes[name], value) for name, value in values.items()}


def value_of(parameter: inspect.Parameter, value: Any) -> Any:
    """Return the value in the parameter's type: a YAML file has texts, JSON typed values. Raise ApiError."""
    kinds = get_args(parameter.annotation) or (parameter.annotation,)
    name, text = parameter.name.removesuffix("_s"), str(value).strip()
    if value in (None, "none") and NoneType in kinds:
        return None
    if kinds[0] is bool:
        if text.lower() not in ("true", "false"):
            raise invalid(f"{name} must be true or false")
        return text.lower() == "true"
    if kinds[0] not in (int, float):
        return text if kinds[0] is str else value
    seconds = parameter.name.endswith("_s")
    match = re.fullmatch(r"(\d{1,9}(?:\.\d+)?(?:e-\d+)?)([smhd]?)", text)
    if match is None or (match[2] and not seconds):
        must = "a duration such as 30s, 10m or 2h" if seconds else "a number from 0"
        raise invalid(f"{name} must be {must}")
    return kinds[0](float(match[1]) * _UNITS[match[2]])
