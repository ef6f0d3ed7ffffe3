"""Schedules of faults: each fault has its time, from a list that a person wrote, or from a seed.

    - {at: 30s, do: preempt, target: 42, notice: 5s}
    - {at: 2m, do: stockout, zone: us-central2-b, for: 10m}

The words of a list are those of the command line: `notice` is the command's parameter `notice_s`.
"""

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import Parameter
from random import Random
from typing import Any, cast

from tpujob.emulator import CHAOS_PER_HOUR, inject_hosts
from tpujob.emulator.cloud.records import ApiError, Node, invalid
from tpujob.emulator.cloud.states import NodeState
from tpujob.emulator.fault_commands import COMMANDS, arguments, parameters, perform, value_of
from tpujob.emulator.tpu.served_world import ServedWorld
from tpujob.errors import BadSpec

_SHOWN = 5  #: next steps that `view` lists
_MAX_STEPS = 1000
_AT = Parameter("at_s", Parameter.KEYWORD_ONLY, annotation=float)


@dataclass(frozen=True, slots=True)
class Step:
    at: float  #: seconds from the beginning
    do: str  #: one of COMMANDS
    text: str  #: the parameters that are known before the step is due
    #: returns the parameters when the step is due; None: the fault has no target
    aim: Callable[[ServedWorld], Mapping[str, Any] | None]


class Schedule:
    """A running schedule, from the constructor until its steps end or `stop`. Callers hold the world's lock."""

    def __init__(self, world: ServedWorld, name: str, steps: Iterable[Step]) -> None:
        """`steps`: in the order of time, perhaps endless."""
        self._world, self._name = world, name
        self._rest = iter(steps)
        self._ahead = deque[Step]()  #: taken from `_rest`, not yet due
        self._began = world.clock()
        self._done, self._stopped = 0, False
        world.record(f"{name}: begins")
        self._start_timer()

    def stop(self) -> None:
        self._stopped = True

    def view(self) -> dict[str, Any] | None:
        """Return the progress and the next steps, for `status`; None when the schedule has ended."""
        shown = self._peek(_SHOWN)
        if self._stopped or not shown:
            return None
        passed = self._world.clock() - self._began
        steps = [{"in_s": round(s.at - passed, 1), "do": s.do, "what": s.text} for s in shown]
        return {"name": self._name, "done": self._done, "next": steps}

    def _start_timer(self) -> None:
        """Start the timer of the next step."""
        if coming := self._peek(1):
            delay = max(0.0, self._began + coming[0].at - self._world.clock())
            self._world.after(delay, self._carry_out)
        else:
            self._world.record(f"{self._name}: has ended")

    def _carry_out(self) -> None:
        if self._stopped:
            return
        world, step = self._world, self._ahead.popleft()
        self._done += 1
        try:
            values = step.aim(world)
            if values is None:
                world.record(f"{self._name}: {step.do}, but there is no target")
            else:
                world.record(f"{self._name}: {step.do} {_text(values)}".rstrip())
                perform(world, step.do, values)
        except (ApiError, BadSpec) as error:
            world.record(f"{self._name}: {step.do} failed: {error.message}")
        self._start_timer()

    def _peek(self, count: int) -> list[Step]:
        """Return the next `count` steps, which stay in the queue."""
        self._ahead.extend(itertools.islice(self._rest, max(0, count - len(self._ahead))))
        return list(self._ahead)[:count]


def parse(items: Any) -> list[Step]:
    """Return the steps in the order of time. Raise ApiError, which names the step."""
    if not isinstance(items, list) or not items:
        raise invalid("a schedule is a list of steps such as {at: 30s, do: preempt}")
    steps = cast(list[Any], items)
    if len(steps) > _MAX_STEPS:
        raise invalid(f"a schedule has at most {_MAX_STEPS} steps")
    return sorted((_step(n, item) for n, item in enumerate(steps, 1)), key=lambda step: step.at)


def _step(number: int, item: Any) -> Step:
    if not isinstance(item, Mapping):
        raise invalid(f"step {number} is not a mapping such as {{at: 30s, do: preempt}}")
    words = dict(cast(Mapping[str, Any], item))
    do = str(words.pop("do", ""))
    if do not in COMMANDS:
        raise invalid(f"step {number}: do must be one of {', '.join(COMMANDS)}, not {do!r}")
    names = {name.removesuffix("_s"): name for name in parameters(COMMANDS[do])}
    try:
        at = value_of(_AT, words.pop("at", None))
        named = {names.get(word, word): value for word, value in words.items()}
        values = arguments(COMMANDS[do], named)
    except ApiError as error:
        raise invalid(f"step {number}: {do}: {error.message}") from error
    if values.get("fault"):
        inject_hosts.check_fault(values["fault"])
    return Step(at, do, _text(values), lambda _: values)


def _text(values: Mapping[str, Any]) -> str:
    return " ".join(
        f"{key}={value}" for key, value in values.items() if value not in (None, "", False)
    )


# Chaos: the seed decides kinds and times; the targets depend on the slices that exist then ----------------------------


_PICKS = 2**32
_CODES = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "INTERNAL")
_STATUSES = (503, 503, 429)


def chaos_steps(
    seed: int, rate: float, only: Collection[str] = (), until: float | None = None
) -> Iterator[Step]:
    """Yield the faults of a seed before `until` (seconds; None: endless), in the order of time. Each kind has its own
    random generator, so leaving one out does not change the others. `rate` multiplies the frequency of every kind."""
    kinds = [kind for kind in CHAOS_PER_HOUR if not only or kind in only]
    planned = heapq.merge(*(_steps_of_kind(seed, kind, rate) for kind in kinds), key=lambda s: s.at)
    return itertools.takewhile(lambda step: until is None or step.at < until, planned)


def _steps_of_kind(seed: int, kind: str, rate: float) -> Iterator[Step]:
    random, at = Random(f"{seed}/{kind}"), 0.0  # noqa: S311, not a secret
    while True:
        at += random.expovariate(CHAOS_PER_HOUR[kind] * rate / 3600)
        pick = random.randrange(_PICKS)
        yield Step(round(at, 3), kind, f"pick {pick}", partial(aim_at, kind=kind, pick=pick))


def aim_at(world: ServedWorld, kind: str, pick: int) -> dict[str, Any] | None:
    """Return a command's parameters against a target that the random number `pick` chooses; None: no target exists."""
    random = Random(pick)  # noqa: S311, not a secret
    match kind:
        case "stockout":
            zones = {record.zone for record in (*world.nodes.values(), *world.queued.values())}
            if not zones:
                return None
            fail = random.random() < 0.5
            zone = random.choice(sorted(zones))
            return {"zone": zone, "for_s": _random_span(random, 60, 600), "fail": fail}
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
            window, restart = _random_span(random, 10, 60), random.random() < 0.5
            return {"target": node.id, "window_s": window, "restart": restart, "notice_s": 10.0}
        case "slow":
            factor, duration = random.choice((2.0, 5.0, 20.0)), _random_span(random, 10, 300)
            return {"target": node.id, "host": host, "factor": factor, "for_s": duration}
        case "silence":
            return {"target": node.id, "host": host if random.random() < 0.5 else None}
        case _:
            return {"target": node.id, "host": host}


def _random_span(random: Random, lower: float, upper: float) -> float:
    return round(random.uniform(lower, upper), 1)
