"""A list of faults with their times, as a person writes it:

    - {at: 30s, do: preempt, target: 42, notice: 5s}
    - {at: 2m, do: stockout, zone: us-central2-b, for: 10m}

The words are those of the command line. Pure; `script.py` runs it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from tpujob.emulator.faults import host_faults
from tpujob.emulator.tpu.records import ApiError

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_MOST_STEPS = 1000


@dataclass(frozen=True, slots=True)
class Step:
    at: float  #: seconds from the beginning
    do: str
    how: Mapping[str, Any]  #: the parameters of the command


def parse(items: Any) -> list[Step]:
    """The steps in the order of time. Raises ApiError, naming the step."""
    if not isinstance(items, list) or not items:
        raise _wrong("a schedule is a list of steps such as {at: 30s, do: preempt}")
    steps = cast(list[Any], items)
    if len(steps) > _MOST_STEPS:
        raise _wrong(f"a schedule has at most {_MOST_STEPS} steps")
    return sorted((_step(n, item) for n, item in enumerate(steps, 1)), key=lambda step: step.at)


# Readers of values: a YAML file gives texts, JSON typed values -------------------------------------------------------


def _text(value: Any) -> str:
    return str(value)


def _seconds(value: Any) -> float:
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?)([smhd]?)", str(value).strip())
    if match is None:
        raise ValueError("must be a duration such as 30s, 10m or 2h")
    return float(match[1]) * _UNITS[match[2]]


def _number(value: Any) -> float:
    if not re.fullmatch(r"\d{1,9}(\.\d{1,6})?", str(value)):
        raise ValueError("must be a number from 0")
    return float(str(value))


def _limit(value: Any) -> float | None:
    return None if value in (None, "none") else _number(value)


def _flag(value: Any) -> bool:
    if str(value).lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return str(value).lower() == "true"


def _after(value: Any) -> str:
    return "post" if _flag(value) else "pre"


_Word = tuple[str, Callable[[Any], Any]]  #: the command's name for it, and its reader
_TARGET: Mapping[str, _Word] = {"target": ("target", _text)}
_HOST: Mapping[str, _Word] = {**_TARGET, "host": ("host", _number)}
_CALLS: Mapping[str, _Word] = {
    "method": ("method", _text),
    "count": ("count", _number),
    "after": ("when", _after),
}
_TAKES: Mapping[str, Mapping[str, _Word]] = {
    "preempt": {**_TARGET, "notice": ("notice_s", _seconds)},
    "maintain": {
        **_TARGET,
        "window": ("window_s", _seconds),
        "notice": ("notice_s", _seconds),
        "restart": ("restart", _flag),
    },
    "slow": {**_HOST, "factor": ("factor", _number), "for": ("for_s", _seconds)},
    "silence": _HOST,
    "hang": {**_HOST, "off": ("off", _flag)},
    "oom": _HOST,
    "delete": _TARGET,
    "suspend": _TARGET,
    "stockout": {
        "zone": ("zone", _text),
        "type": ("type", _text),
        "for": ("for_s", _seconds),
        "off": ("off", _flag),
        "fail": ("fail", _flag),
    },
    "quota": {
        "zone": ("zone", _text),
        "type": ("type", _text),
        "limit": ("limit", _limit),
        "pricing": ("pricing", _text),
    },
    "api-error": {**_CALLS, "code": ("code", _text), "hang": ("delay_s", _seconds)},
    "storage-error": {
        **_CALLS,
        "status": ("status", _number),
        "hang": ("hang_s", _seconds),
        "path": ("path", _text),
        "off": ("off", _flag),
    },
    "break-host": {
        "physical": ("physical", _text),
        "fault": ("fault", _text),
        "mend": ("fault", lambda value: "" if _flag(value) else host_faults.USUAL_HOST_FAULT),
    },
}
_NEEDED: Mapping[str, tuple[str, ...]] = {
    "slow": ("factor",),
    "stockout": ("zone",),
    "quota": ("zone", "type", "limit"),
    "api-error": ("method", "code"),
    "break-host": ("physical",),
}


def _step(number: int, item: Any) -> Step:
    if not isinstance(item, Mapping):
        raise _wrong(f"step {number} is no mapping such as {{at: 30s, do: preempt}}")
    given = dict(cast(Mapping[str, Any], item))
    do = str(given.pop("do", ""))
    if do not in _TAKES:
        raise _wrong(f"step {number}: do must be one of {', '.join(_TAKES)}, not {do!r}")
    words = {"at": ("at", _seconds), **_TAKES[do]}
    missing = [word for word in ("at", *_NEEDED.get(do, ())) if word not in given]
    if missing:
        raise _wrong(f"step {number}: {do} needs {', '.join(missing)}")
    how: dict[str, Any] = {"fault": host_faults.USUAL_HOST_FAULT} if do == "break-host" else {}
    for word, value in given.items():
        if word not in words:
            raise _wrong(f"step {number}: {do} takes {', '.join(words)}, not {word!r}")
        name, read = words[word]
        try:
            how[name] = read(value)
        except ValueError as error:
            raise _wrong(f"step {number}: {word} {error}") from error
    if how.get("fault"):
        host_faults.check(how["fault"])
    return Step(how.pop("at"), do, how)


def _wrong(said: str) -> ApiError:
    return ApiError("INVALID_ARGUMENT", said)
