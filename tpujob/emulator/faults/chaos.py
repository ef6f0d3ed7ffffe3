"""Faults at random: a seed alone decides which kind comes when; what it hits depends on what exists then.

Pure; `script.py` runs it.
"""

import heapq
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

#: How often each kind comes in an hour at rate 1.
PER_HOUR: Mapping[str, float] = {
    "preempt": 6.0,
    "maintain": 1.0,
    "stockout": 4.0,
    "api-error": 20.0,
    "storage-error": 20.0,
    "slow": 4.0,
    "hang": 0.5,
    "silence": 0.5,
    "oom": 0.5,
}
PRESETS: Mapping[str, float] = {"calm": 0.25, "normal": 1.0, "storm": 5.0}

_PICKS = 2**32
_CODES = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "INTERNAL")
_STATUSES = (503, 503, 429)


@dataclass(frozen=True, slots=True)
class Planned:
    at: float  #: seconds from the beginning
    kind: str
    pick: int  #: a random number that chooses what is hit


@dataclass(frozen=True, slots=True)
class ReadySlice:
    """A slice that can be hit."""

    name: str
    hosts: int


def plan(seed: int, rate: float, only: Collection[str] = ()) -> Iterator[Planned]:
    """The endless faults of a seed, in the order of time. Each kind has its own generator, so leaving one out does not
    change the others. `rate` multiplies how often everything comes."""
    kinds = [kind for kind in PER_HOUR if not only or kind in only]
    return heapq.merge(*(_of_kind(seed, kind, rate) for kind in kinds), key=lambda p: p.at)


def _of_kind(seed: int, kind: str, rate: float) -> Iterator[Planned]:
    random, at = Random(f"{seed}/{kind}"), 0.0  # noqa: S311, not a secret
    while True:
        at += random.expovariate(PER_HOUR[kind] * rate / 3600)
        yield Planned(round(at, 3), kind, random.randrange(_PICKS))


def until(planned: Iterator[Planned], end: float | None) -> Iterator[Planned]:
    """Those before `end`; None: all."""
    return planned if end is None else itertools.takewhile(lambda p: p.at < end, planned)


def aim(
    fault: Planned, slices: Sequence[ReadySlice], zones: Sequence[str]
) -> dict[str, Any] | None:
    """The parameters of the command `fault.kind` for what exists; None: there is nothing to hit. `zones`: those in
    use."""
    random = Random(fault.pick)  # noqa: S311, of no secret
    match fault.kind:
        case "stockout":
            if not zones:
                return None
            fail = random.random() < 0.5
            return {"zone": random.choice(zones), "for_s": _span(random, 60, 600), "fail": fail}
        case "api-error":
            after = random.choice((False, True))
            count = random.randint(1, 5)
            return {"method": "*", "code": random.choice(_CODES), "count": count, "after": after}
        case "storage-error":
            return {
                "status": random.choice(_STATUSES),
                "count": random.randint(1, 5),
                "after": random.choice((False, True)),
            }
        case _:
            return _aim_at_slice(fault.kind, random, slices)


def _aim_at_slice(kind: str, random: Random, slices: Sequence[ReadySlice]) -> dict[str, Any] | None:
    if not slices:
        return None
    chosen = random.choice(slices)
    host = random.randrange(chosen.hosts)
    match kind:
        case "preempt":
            return {"target": chosen.name, "notice_s": random.choice((0.0, 5.0, 30.0))}
        case "maintain":
            window, restart = _span(random, 10, 60), random.random() < 0.5
            return {"target": chosen.name, "window_s": window, "restart": restart, "notice_s": 10.0}
        case "slow":
            factor, lasts = random.choice((2.0, 5.0, 20.0)), _span(random, 10, 300)
            return {"target": chosen.name, "host": host, "factor": factor, "for_s": lasts}
        case "silence":
            one = random.random() < 0.5
            return {"target": chosen.name, "host": host if one else None}
        case _:
            return {"target": chosen.name, "host": host}


def _span(random: Random, least: float, most: float) -> float:
    return round(random.uniform(least, most), 1)
