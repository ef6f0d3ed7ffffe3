"""What a bad physical host does to the programs that land on it: `kind:key=value,...`, as they read it themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tpujob.emulator.tpu.records import ApiError

VARIABLE = "TPUJOB_FAULT"
USUAL = "nan:step=20,device=0"  #: where none is named

_Check = Callable[[str], bool]


def _number(least: int, most: int = 10**9) -> _Check:
    return lambda text: text.isdecimal() and least <= int(text) <= most


def _one_of(*words: str) -> _Check:
    return lambda text: text in words


#: By kind: what it may say; it must say all that `_NEEDED` names.
_KEYS: Mapping[str, Mapping[str, _Check]] = {
    "nan": {
        "step": _number(0),
        "device": _number(0, 1023),
        "transient": _one_of("0", "1"),
        "where": _one_of("device", "data", "model"),
    },
    "hang": {"step": _number(0)},
    "oom": {"step": _number(0)},
    "exit": {"step": _number(0), "code": _number(1, 255)},
}
_NEEDED = ("step", "code")


def check(fault: str) -> None:
    """Raises ApiError, saying what is wrong with it."""
    kind, _, rest = fault.partition(":")
    keys = _KEYS.get(kind)
    if keys is None:
        raise _wrong(fault, f"the kind must be one of {', '.join(_KEYS)}")
    given: dict[str, str] = {}
    for item in rest.split(",") if rest else ():
        key, _, value = item.partition("=")
        if key not in keys:
            raise _wrong(fault, f"{kind} takes {', '.join(keys)}, not {key!r}")
        if key in given:
            raise _wrong(fault, f"{key} is given twice")
        if not keys[key](value):
            raise _wrong(fault, f"{value!r} is no {key}")
        given[key] = value
    missing = [key for key in keys if key in _NEEDED and key not in given]
    if missing:
        raise _wrong(fault, f"{kind} needs {' and '.join(missing)}")


def _wrong(fault: str, why: str) -> ApiError:
    return ApiError(
        "INVALID_ARGUMENT",
        f"{fault[:80]!r} is no fault: {why}; write it as nan:step=20,device=0, hang:step=20, oom:step=20 or "
        "exit:step=20,code=1",
    )
