"""Fault injection: what `TPUJOB_FAULT` may ask for. Text in, a record out; nothing is done here.

nan:step=7,device=2               the rows on the host's third device come out as NaN, from step 7 on
nan:step=7,where=data             one row of the host's data is NaN, whichever device it is given to
nan:step=7,where=model            every row on the host is NaN; set it on all hosts for an error of the maths
nan:step=7,device=2,transient=1   only the first time that step 7 is computed
hang:step=7                       the host never gets beyond the beginning of step 7
oom:step=7                        the host has no memory left
exit:step=7,code=3                the program ends with that code; 1 if none is given
preflight:device=2                the host's third device fails the check before the program

Steps are counted from 1, as in the program's events; devices from 0, on their host. The bundled programs carry out the
first seven, the agent the last.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Literal, cast, get_args

from tpujob.contract.context import PREFIX
from tpujob.contract.events import Blame

VARIABLE = PREFIX + "FAULT"

Kind = Literal["nan", "hang", "oom", "exit", "preflight"]

#: What each kind may be given, in addition to `step`, which all but `preflight` must have.
_KEYS: dict[Kind, tuple[str, ...]] = {
    "nan": ("step", "device", "where", "transient"),
    "hang": ("step",),
    "oom": ("step",),
    "exit": ("step", "code"),
    "preflight": ("device",),
}


@dataclass(frozen=True)
class Fault:
    """A fault to inject on this host, from `step` on."""

    kind: Kind
    step: int = 0  #: 0: before the first step, for `preflight`
    where: Blame = "device"  #: nan: what is to blame
    #: nan, preflight: number on this host; with where=data, the one whose share has the bad row
    device: int = 0
    transient: bool = False  #: nan: once only
    code: int = 1  #: exit: with which code


def parse(text: str) -> Fault | None:
    """Return the fault in the text; None if it is empty. Raises ValueError with one line for a person."""
    if not text:
        return None
    kind, _, rest = text.partition(":")
    if kind not in _KEYS:
        raise ValueError(_wrong(text, f"no such fault: {kind!r}", kind, list(_KEYS)))
    options = _parse_options(text, kind, rest)
    if "step" in _KEYS[kind] and "step" not in options:
        raise ValueError(f"{text!r}: from which step on? Write {kind}:step=7")
    where = options.get("where", "device")
    if where not in get_args(Blame):
        raise ValueError(_wrong(text, f"where={where}", where, list(get_args(Blame))))
    return Fault(
        kind=kind,
        step=_number(text, options, "step", 1) if "step" in options else 0,
        where=cast(Blame, where),
        device=_number(text, options, "device", 0),
        transient=_number(text, options, "transient", 0, greatest=1) == 1,
        code=_number(text, {"code": "1", **options}, "code", 0, greatest=255),
    )


def _parse_options(text: str, kind: Kind, rest: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for part in rest.split(",") if rest else ():
        key, equals, value = part.partition("=")
        key = key.strip()
        if not equals:
            raise ValueError(f"{text!r}: {part!r} is not key=value")
        if key not in _KEYS[kind]:
            raise ValueError(_wrong(text, f"{kind} has no {key!r}", key, list(_KEYS[kind])))
        if key in options:
            raise ValueError(f"{text!r}: {key} is given twice")
        options[key] = value.strip()
    return options


def _number(text: str, options: dict[str, str], key: str, least: int, greatest: int = 2**53) -> int:
    value = options.get(key, "0")
    if not (value.isascii() and value.isdigit()) or not least <= int(value) <= greatest:
        bounds = f"from {least} to {greatest}" if greatest < 2**53 else f"from {least} on"
        raise ValueError(f"{text!r}: {key}={value} is not a whole number {bounds}")
    return int(value)


def _wrong(text: str, problem: str, word: str, allowed: list[str]) -> str:
    near = difflib.get_close_matches(word, allowed, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(allowed)}"
    return f"{text!r}: {problem}; {hint}"
