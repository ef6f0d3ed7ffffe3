"""Virtual time: tasks that sleep in it, one running at any moment, and one seed that decides everything.

A task is ordinary blocking code on a thread of its own; whoever goes to sleep runs what is due until somebody else is
to go on. So the product's own code runs unchanged, and the order is a function of the seed alone.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.flows.world import Killed

EPOCH = 1_000_000.0


class Violation(BaseException):
    """An invariant does not hold. No handler of the code under test may swallow it."""

    def __init__(self, rule: str, job: str, text: str) -> None:
        super().__init__(f"{rule}: {'job ' + job + ': ' if job else ''}{text}")
        self.rule, self.job, self.text = rule, job, text


class _Stopped(BaseException):
    """The simulation is over: every task unwinds."""


@dataclass
class Process:
    """What can be killed and paused as one: a backend."""

    name: str
    skew: float = 0.0  #: its clock, beside the true one
    alive: bool = True
    paused_until: float = 0.0


@dataclass(eq=False)
class Task:
    process: Process | None
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))


class Sim:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now = EPOCH
        self.log: list[str] = []
        self.failure: BaseException | None = None
        self._heap: list[tuple[float, int, Any]] = []
        self._count = 0
        self._main = Task(None)
        self.me = self._main  #: the task that runs now
        self._tasks: set[Task] = set()
        self._threads: list[threading.Thread] = []
        self._stopping = False

    def random(self, name: str) -> Random:
        """A stream of its own for each purpose, so that leaving one fault out does not shift the others much."""
        return Random(f"{self.seed}:{name}")

    def note(self, text: str) -> None:
        who = self.me.process.name if self.me.process else "world"
        self.log.append(f"{self.now - EPOCH:11.3f} {who:5} {text}")

    # Time ------------------------------------------------------------------------------------------------------------

    def at(self, when: float, call: Callable[[], None]) -> None:
        """Call it then; it must not sleep."""
        self._push(when, call)

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        self._push(self.now + seconds, call)

    def sleep(self, seconds: float) -> None:
        """Others go on meanwhile. Raises Killed when the task's process died."""
        me = self.me
        self._push(self.now + max(0.0, seconds), me)
        self._switch(me)
        process = me.process
        while process and process.alive and process.paused_until > self.now and not self._stopping:
            self._push(process.paused_until, me)
            self._switch(me)
        self.check_alive()

    def check_alive(self) -> None:
        if self._stopping:
            raise _Stopped
        if self.me.process and not self.me.process.alive:
            raise Killed

    def wake(self, task: Task) -> None:
        """Ends a `sleep` early; what remains of it does nothing."""
        self._heap = [e for e in self._heap if e[2] is not task]
        heapq.heapify(self._heap)
        self._push(self.now, task)

    def spawn(self, work: Callable[[], object], process: Process | None = None) -> Task:
        task = Task(process)

        def body() -> None:
            task.go.acquire()
            try:
                self.check_alive()
                work()
            except (Killed, _Stopped):
                pass
            except BaseException as error:
                self._fail(error)
            finally:
                self._tasks.discard(task)
                if not self._stopping:
                    self._hand_over()

        thread = threading.Thread(target=body, daemon=True)
        thread.start()
        self._tasks.add(task)
        self._threads.append(thread)
        if len(self._threads) > 200:
            self._threads = [t for t in self._threads if t.is_alive()]
        self._push(self.now, task)
        return task

    def run_until(self, when: float) -> None:
        """From the main thread. Raises what any task or callback raised."""
        self._push(when, self._main)
        self._switch(self._main)
        if self.failure:
            raise self.failure

    def stop(self) -> None:
        self._stopping = True
        for task in list(self._tasks):
            self.me = task
            task.go.release()
            while task in self._tasks:
                for thread in self._threads:
                    thread.join(0.001)
        self.me = self._main

    # The hand-over ---------------------------------------------------------------------------------------------------

    def _push(self, when: float, what: Any) -> None:
        self._count += 1
        heapq.heappush(self._heap, (max(when, self.now), self._count, what))

    def _next(self) -> Task:
        while not self.failure:
            self.now, _, what = heapq.heappop(self._heap)
            if isinstance(what, Task):
                return what
            try:
                what()
            except BaseException as error:
                self._fail(error)
        return self._main

    def _fail(self, error: BaseException) -> None:
        self.failure = self.failure or error

    def _switch(self, me: Task) -> None:
        following = self._next()
        if following is not me:
            self.me = following
            following.go.release()
            me.go.acquire()
        if not self._stopping:
            self.me = me

    def _hand_over(self) -> None:
        following = self._next()
        self.me = following
        following.go.release()
