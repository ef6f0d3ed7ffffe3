"""The agent's own threads in the simulation's time: an hour of them takes a moment, and each hour is the same.

`virtual` puts the simulation's clock, threads and conditions into modules in the place of `time` and `threading`.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any
from unittest import mock

from tests.support.simulation.patches import Instead
from tests.support.simulation.sim import Sim, Task
from tpujob.lib import threads as background_loops


class Condition:
    """`threading.Condition`, in which one task runs at a time, so that nothing needs locking."""

    def __init__(self, sim: Sim) -> None:
        self._sim = sim
        self._waiting: list[Task] = []

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...

    def wait(self, timeout: float | None = None) -> bool:
        me = self._sim.me
        self._waiting.append(me)
        self._sim.sleep(1e9 if timeout is None else max(timeout, 0.001))
        woken = me not in self._waiting
        if not woken:
            self._waiting.remove(me)
        return woken

    def wait_for(self, holds: Callable[[], Any], timeout: float | None = None) -> Any:
        until = self._sim.now + (1e9 if timeout is None else timeout)
        while not (result := holds()) and self._sim.now < until:
            self.wait(until - self._sim.now)
        return result

    def notify_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        for task in waiting:
            self._sim.wake(task)

    notify = notify_all


class Event:
    def __init__(self, sim: Sim) -> None:
        self._change, self._is_set = Condition(sim), False

    def set(self) -> None:
        self._is_set = True
        self._change.notify_all()

    def clear(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        return bool(self._change.wait_for(lambda: self._is_set, timeout))


class Thread:
    def __init__(
        self,
        target: Callable[..., object],
        args: tuple[object, ...] = (),
        *,
        sim: Sim,
        name: str = "",
        daemon: bool = True,
    ) -> None:
        self._begin = lambda: sim.spawn(lambda: target(*args))

    def start(self) -> None:
        self._begin()


@contextlib.contextmanager
def virtual(sim: Sim, *modules: ModuleType) -> Iterator[None]:
    """Let these modules, and the background loops that they start, take their time and threads from the simulation.

    A thread that an earlier test left behind may still run in one of them. It sleeps in real time: the simulation can
    only suspend its own tasks."""

    def sleep(seconds: float) -> None:
        if sim.runs_here():
            sim.sleep(seconds)
        else:
            time.sleep(seconds)

    clock = Instead(time, time=lambda: sim.now, monotonic=lambda: sim.now, sleep=sleep)
    threads = Instead(
        threading,
        Condition=lambda *_: Condition(sim),
        Event=lambda: Event(sim),
        Thread=lambda *args, **kwargs: Thread(*args, sim=sim, **kwargs),
    )
    with contextlib.ExitStack() as stack:
        for module in (*modules, background_loops):
            for name, instead in (("time", clock), ("threading", threads)):
                if hasattr(module, name):
                    stack.enter_context(mock.patch.object(module, name, instead))
        yield
