"""Drills that come by themselves: a schedule, or chaos from a seed. One of them runs at a time.

Decides nothing of its own: what comes when is `schedule.py`'s and `chaos.py`'s, what a drill does is the commands'.
"""

from __future__ import annotations

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

_SHOWN = 5  #: steps of what comes next

#: Carries out a command; raises ApiError or BadSpec.
Perform = Callable[[World, str, Mapping[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class Coming:
    """A drill that is due at some time; its parameters are found then."""

    at: float  #: seconds from the beginning
    do: str
    said: str  #: what is known of it already
    aim: Callable[[World], Mapping[str, Any] | None]  #: None: there is nothing to hit


class Script:
    """Runs in the world's time until its steps end or `stop`. Used with the world's lock held."""

    def __init__(self, name: str, coming: Iterable[Coming], perform: Perform) -> None:
        self.name = name
        self._rest: Iterator[Coming] = iter(coming)
        self._ahead: deque[Coming] = deque()  #: taken from the rest to be looked at
        self._perform = perform
        self._began = 0.0
        self._done = 0
        self._stopped = False

    def start(self, world: World) -> None:
        self._began = world.clock()
        world.tell(f"{self.name}: begins")
        self._next(world)

    def stop(self) -> None:
        self._stopped = True

    def view(self, now: float) -> dict[str, Any] | None:
        """For `status`; None when it has ended."""
        shown = self._look(_SHOWN)
        if self._stopped or not shown:
            return None
        steps = [
            {"in_s": round(self._began + c.at - now, 1), "do": c.do, "what": c.said} for c in shown
        ]
        return {"name": self.name, "done": self._done, "next": steps}

    def _next(self, world: World) -> None:
        coming = self._look(1)
        if not coming:
            world.tell(f"{self.name}: has ended")
            return
        delay = max(0.0, self._began + coming[0].at - world.clock())
        world.after(delay, lambda: self._take(world))

    def _take(self, world: World) -> None:
        if self._stopped:
            return
        step = self._ahead.popleft()
        self._done += 1
        try:
            how = step.aim(world)
            if how is None:
                world.tell(f"{self.name}: {step.do}, but there is nothing to hit")
            else:
                world.tell(f"{self.name}: {step.do} {_words(how)}".rstrip())
                self._perform(world, step.do, how)
        except (ApiError, BadSpec) as error:
            world.tell(f"{self.name}: {step.do} could not be done: {error.message}")
        self._next(world)

    def _look(self, count: int) -> list[Coming]:
        """The next ones, which stay where they are."""
        self._ahead.extend(itertools.islice(self._rest, max(0, count - len(self._ahead))))
        return list(self._ahead)[:count]


def begin(world: World, script: Script | None) -> None:
    """End the script that runs, and start this one; None: only end it."""
    if world.script is not None:
        world.script.stop()
    world.script = script
    if script is not None:
        script.start(world)


def of_schedule(steps: Iterable[Step], perform: Perform) -> Script:
    coming = [Coming(s.at, s.do, _words(s.how), lambda _, how=s.how: how) for s in steps]
    return Script("schedule", coming, perform)


def of_chaos(planned: Iterable[chaos.Planned], name: str, perform: Perform) -> Script:
    """`planned` may be endless."""
    coming = (Coming(p.at, p.kind, f"pick {p.pick}", lambda w, p=p: _aim(w, p)) for p in planned)
    return Script(name, coming, perform)


def _aim(world: World, planned: chaos.Planned) -> dict[str, Any] | None:
    ready = [
        n
        for n in world.nodes.values()
        if n.state is NodeState.READY and n.preempted_at is None and not n.silent
    ]
    slices = [chaos.Target(n.id, len(n.physical)) for n in sorted(ready, key=lambda n: n.name)]
    zones = {n.zone for n in world.nodes.values()} | {q.zone for q in world.queued.values()}
    return chaos.aim(planned, slices, sorted(zones))


def _words(how: Mapping[str, Any]) -> str:
    return " ".join(
        f"{key}={value}" for key, value in how.items() if value not in (None, "", False)
    )
