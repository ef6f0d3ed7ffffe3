"""Runs a list of faults in a world's time: a schedule, or chaos from a seed.

`schedule.py` and `chaos.py` decide what comes when; the caller's `perform` carries each step out.
"""

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tpujob.emulator.faults import chaos
from tpujob.emulator.faults.schedule import Step
from tpujob.emulator.tpu.records import ApiError, NodeState
from tpujob.emulator.tpu.world import World
from tpujob.errors import BadSpec

_SHOWN = 5  #: next steps that `view` lists

#: Carries out a command; raises ApiError or BadSpec.
Perform = Callable[[World, str, Mapping[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class Coming:
    """A fault with its time; its parameters are chosen when it is due."""

    at: float  #: seconds from the beginning
    do: str
    said: str  #: the part of its parameters that is known before
    aim: Callable[[World], Mapping[str, Any] | None]  #: None: there is nothing to hit


class Script:
    """Runs from its constructor until its steps end or `stop`. Used with the world's lock held."""

    def __init__(self, world: World, name: str, coming: Iterable[Coming], perform: Perform) -> None:
        self._world = world
        self._name = name
        self._rest: Iterator[Coming] = iter(coming)
        self._ahead: deque[Coming] = deque()  #: taken from `_rest`, not yet due
        self._perform = perform
        self._began = world.clock()
        self._done = 0
        self._stopped = False
        world.tell(f"{name}: begins")
        self._next()

    def stop(self) -> None:
        self._stopped = True

    def view(self) -> dict[str, Any] | None:
        """For `status`; None when it has ended."""
        shown = self._look(_SHOWN)
        if self._stopped or not shown:
            return None
        passed = self._world.clock() - self._began
        steps = [{"in_s": round(c.at - passed, 1), "do": c.do, "what": c.said} for c in shown]
        return {"name": self._name, "done": self._done, "next": steps}

    def _next(self) -> None:
        coming = self._look(1)
        if not coming:
            self._world.tell(f"{self._name}: has ended")
            return
        delay = max(0.0, self._began + coming[0].at - self._world.clock())
        self._world.after(delay, self._take)

    def _take(self) -> None:
        if self._stopped:
            return
        world, step = self._world, self._ahead.popleft()
        self._done += 1
        try:
            how = step.aim(world)
            if how is None:
                world.tell(f"{self._name}: {step.do}, but there is nothing to hit")
            else:
                world.tell(f"{self._name}: {step.do} {_words(how)}".rstrip())
                self._perform(world, step.do, how)
        except (ApiError, BadSpec) as error:
            world.tell(f"{self._name}: {step.do} failed: {error.message}")
        self._next()

    def _look(self, count: int) -> list[Coming]:
        """The next `count` steps; they stay in the queue."""
        self._ahead.extend(itertools.islice(self._rest, max(0, count - len(self._ahead))))
        return list(self._ahead)[:count]


def of_schedule(steps: Iterable[Step]) -> Iterator[Coming]:
    return (Coming(s.at, s.do, _words(s.how), lambda _, how=s.how: how) for s in steps)


def of_chaos(planned: Iterable[chaos.Planned]) -> Iterator[Coming]:
    """`planned` may be endless."""
    return (Coming(p.at, p.kind, f"pick {p.pick}", lambda w, p=p: _aim(w, p)) for p in planned)


def _aim(world: World, planned: chaos.Planned) -> dict[str, Any] | None:
    ready = [
        n
        for n in world.nodes.values()
        if n.state is NodeState.READY and n.preempted_at is None and not n.silent
    ]
    slices = [chaos.ReadySlice(n.id, len(n.physical)) for n in sorted(ready, key=lambda n: n.name)]
    zones = {n.zone for n in world.nodes.values()} | {q.zone for q in world.queued.values()}
    return chaos.aim(planned, slices, sorted(zones))


def _words(how: Mapping[str, Any]) -> str:
    return " ".join(
        f"{key}={value}" for key, value in how.items() if value not in (None, "", False)
    )
