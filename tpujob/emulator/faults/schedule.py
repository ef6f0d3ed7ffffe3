"""A list of faults with their times, as a person writes it:

    - {at: 30s, do: preempt, target: 42, notice: 5s}
    - {at: 2m, do: stockout, zone: us-central2-b, for: 10m}

The words are those of the command line: `notice` is the command's parameter `notice_s`. Pure; `script.py` runs it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from inspect import Parameter
from types import NoneType
from typing import Any, cast

from tpujob.emulator.faults import host_faults
from tpujob.emulator.faults.commands import COMMANDS, bad_request, kinds_of, parameters

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_MOST_STEPS = 1000
_AT = Parameter("at_s", Parameter.KEYWORD_ONLY, annotation=float)


@dataclass(frozen=True, slots=True)
class Step:
    at: float  #: seconds from the beginning
    do: str
    how: Mapping[str, Any]  #: the parameters of the command


def parse(items: Any) -> list[Step]:
    """The steps in the order of time. Raises ApiError, naming the step."""
    if not isinstance(items, list) or not items:
        raise bad_request("a schedule is a list of steps such as {at: 30s, do: preempt}")
    steps = cast(list[Any], items)
    if len(steps) > _MOST_STEPS:
        raise bad_request(f"a schedule has at most {_MOST_STEPS} steps")
    return sorted((_step(n, item) for n, item in enumerate(steps, 1)), key=lambda step: step.at)


def _step(number: int, item: Any) -> Step:
    if not isinstance(item, Mapping):
        raise bad_request(f"step {number} is no mapping such as {{at: 30s, do: preempt}}")
    given = dict(cast(Mapping[str, Any], item))
    do = str(given.pop("do", ""))
    if do not in COMMANDS:
        raise bad_request(f"step {number}: do must be one of {', '.join(COMMANDS)}, not {do!r}")
    takes = {
        each.name.removesuffix("_s"): each for each in (_AT, *parameters(COMMANDS[do]).values())
    }
    needed = [word for word, each in takes.items() if each.default is Parameter.empty]
    if missing := [word for word in needed if word not in given]:
        raise bad_request(f"step {number}: {do} needs {', '.join(missing)}")
    how: dict[str, Any] = {}
    for word, value in given.items():
        if word not in takes:
            raise bad_request(f"step {number}: {do} takes {', '.join(takes)}, not {word!r}")
        try:
            how[takes[word].name] = _read(takes[word], value)
        except ValueError as error:
            raise bad_request(f"step {number}: {word} {error}") from error
    if how.get("fault"):
        host_faults.check(how["fault"])
    return Step(how.pop("at_s"), do, how)


def _read(parameter: Parameter, value: Any) -> Any:
    """A YAML file gives texts, JSON typed values."""
    kinds, text = kinds_of(parameter), str(value)
    if value in (None, "none") and NoneType in kinds:
        return None
    if kinds[0] is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError("must be true or false")
        return text.lower() == "true"
    if parameter.name.endswith("_s"):
        return _seconds(text)
    if kinds[0] is str:
        return text
    if not re.fullmatch(r"\d{1,9}(\.\d{1,6})?", text):
        raise ValueError("must be a number from 0")
    return float(text)


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?)([smhd]?)", text.strip())
    if match is None:
        raise ValueError("must be a duration such as 30s, 10m or 2h")
    return float(match[1]) * _UNITS[match[2]]
