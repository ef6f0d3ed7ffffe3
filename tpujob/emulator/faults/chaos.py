"""Faults at random: a seed alone decides which kind comes when; what it hits depends on what exists then."""

import heapq
import itertools
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from random import Random
from typing import Any

from tpujob.emulator.faults import PER_HOUR
from tpujob.emulator.faults.schedule import Step
from tpujob.emulator.tpu.records import Node, NodeState
from tpujob.emulator.tpu.world import World

_PICKS = 2**32
_CODES = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "INTERNAL")
_STATUSES = (503, 503, 429)


def steps(
    seed: int, rate: float, only: Collection[str] = (), until: float | None = None
) -> Iterator[Step]:
    """The faults of a seed before `until` (None: endless), in the order of time. Each kind has its own generator, so
    leaving one out does not change the others. `rate` multiplies how often everything comes."""
    kinds = [kind for kind in PER_HOUR if not only or kind in only]
    planned = heapq.merge(*(_of_kind(seed, kind, rate) for kind in kinds), key=lambda s: s.at)
    return itertools.takewhile(lambda step: until is None or step.at < until, planned)


def _of_kind(seed: int, kind: str, rate: float) -> Iterator[Step]:
    random, at = Random(f"{seed}/{kind}"), 0.0  # noqa: S311, not a secret
    while True:
        at += random.expovariate(PER_HOUR[kind] * rate / 3600)
        pick = random.randrange(_PICKS)
        yield Step(round(at, 3), kind, f"pick {pick}", partial(aim, kind=kind, pick=pick))


def aim(world: World, kind: str, pick: int) -> dict[str, Any] | None:
    """The parameters of that command for what exists; None: there is nothing to hit. `pick`: a random number that
    chooses what is hit."""
    random = Random(pick)  # noqa: S311, of no secret
    match kind:
        case "stockout":
            zones = {record.zone for record in (*world.nodes.values(), *world.queued.values())}
            if not zones:
                return None
            fail = random.random() < 0.5
            zone = random.choice(sorted(zones))
            return {"zone": zone, "for_s": _span(random, 60, 600), "fail": fail}
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
            slices = [
                node
                for _, node in sorted(world.nodes.items())
                if node.state is NodeState.READY and node.preempted_at is None and not node.silent
            ]
            return _aim_at_slice(kind, random, slices)


def _aim_at_slice(kind: str, random: Random, slices: Sequence[Node]) -> dict[str, Any] | None:
    if not slices:
        return None
    node = random.choice(slices)
    host = random.randrange(len(node.physical))
    match kind:
        case "preempt":
            return {"target": node.id, "notice_s": random.choice((0.0, 5.0, 30.0))}
        case "maintain":
            window, restart = _span(random, 10, 60), random.random() < 0.5
            return {"target": node.id, "window_s": window, "restart": restart, "notice_s": 10.0}
        case "slow":
            factor, lasts = random.choice((2.0, 5.0, 20.0)), _span(random, 10, 300)
            return {"target": node.id, "host": host, "factor": factor, "for_s": lasts}
        case "silence":
            return {"target": node.id, "host": host if random.random() < 0.5 else None}
        case _:
            return {"target": node.id, "host": host}


def _span(random: Random, least: float, most: float) -> float:
    return round(random.uniform(least, most), 1)
