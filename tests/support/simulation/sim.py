"""Virtual time: tasks that sleep in it, one running at any moment, and one seed that decides everything.

A task is ordinary blocking code on a thread of its own; a task that goes to sleep runs what is due until another task
is to continue. So the product's own code runs unchanged, and the order is a function of the seed alone.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, NoReturn

from tests.support.world import Killed

EPOCH = 1_000_000.0


class Violation(BaseException):
    """A broken invariant. No handler of the code under test may swallow it."""

    def __init__(self, rule: str, job: str, text: str) -> None:
        super().__init__(f"{rule}: {'job ' + job + ': ' if job else ''}{text}")
        self.rule, self.job, self.text = rule, job, text

    def __reduce__(self) -> tuple[type[Violation], tuple[str, str, str]]:
        return Violation, (self.rule, self.job, self.text)


#: is called with the rule, the job, and what is wrong
Broken = Callable[[str, str, str], NoReturn]


class _Stopped(BaseException):
    """The simulation is over: every task unwinds."""


@dataclass
class Process:
    """A unit that is killed and paused as a whole: a backend, or a user."""

    name: str
    skew: float = 0.0  #: its clock, beside the true one
    wrong: float = 0.0  #: by what the clock is set wrong for some minutes, beside that
    alive: bool = True
    paused_until: float = 0.0
    began: float = 0.0  #: the zero of its steady clock


def _closed() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


@dataclass(eq=False)
class Task:
    process: Process | None
    go: threading.Lock = field(default_factory=_closed)  #: opened by the task that hands over to it
    turn: int = 0  #: its newest entry in the queue; it was woken before those that are older


class _Worker(threading.Thread):
    """A thread that carries one task after the other: starting threads takes longer than most tasks."""

    def __init__(self, sim: Sim) -> None:
        super().__init__(daemon=True)
        self.sim, self.go = sim, _closed()
        self.given: tuple[Task, Callable[[], object]] | None = None

    def run(self) -> None:
        while True:
            self.go.acquire()
            if self.given is None:
                return
            task, work = self.given
            self.given = None
            self.sim.carry(self, task, work)


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
        self._tasks: dict[Task, None] = {}
        self._workers: list[_Worker] = []
        self._idle: list[_Worker] = []
        self._stopping = False

    def random(self, name: str) -> Random:
        """Return a separate stream for each purpose, so that leaving one fault out does not shift the others much."""
        return Random(f"{self.seed}:{name}")

    def runs_here(self) -> bool:
        """Return whether the calling thread runs one of the simulation's tasks."""
        return threading.current_thread() in self._workers

    def note(self, text: str) -> None:
        actor = self.me.process.name if self.me.process else "world"
        self.log.append(f"{self.now - EPOCH:11.3f} {actor:5} {text}")

    # Time ------------------------------------------------------------------------------------------------------------

    def at(self, when: float, call: Callable[[], None]) -> None:
        """Call a function at that time; the function must not sleep."""
        self._push(when, call)

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        self._push(self.now + seconds, call)

    def sleep(self, seconds: float) -> None:
        """Let other tasks run for that time. Raise Killed when the task's process has died."""
        if self._stopping:
            raise _Stopped
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
        """End a `sleep` early; its later entry in the queue has no effect."""
        self._push(self.now, task)

    def spawn(self, work: Callable[[], object], process: Process | None = None) -> Task:
        if self._idle:
            worker = self._idle.pop()
        else:
            worker = _Worker(self)
            self._workers.append(worker)
            worker.start()
        task = Task(process, worker.go)
        worker.given = (task, work)
        self._tasks[task] = None
        self._push(self.now, task)
        return task

    def carry(self, worker: _Worker, task: Task, work: Callable[[], object]) -> None:
        """Run the task on a worker's thread, then hand over to the next task."""
        try:
            self.check_alive()
            work()
        except (Killed, _Stopped):
            pass
        except BaseException as error:
            self._fail(error)
        self._tasks.pop(task, None)
        self._idle.append(worker)
        if self._stopping:
            self._main.go.release()
        else:
            self._hand_over()

    def run_until(self, when: float) -> None:
        """Run tasks from the main thread until that time. Raise the error of any task or callback."""
        self._push(when, self._main)
        self._switch(self._main)
        if self.failure:
            raise self.failure

    def stop(self) -> None:
        """Unwind every task and end its thread, also after an interrupt of the main thread."""
        self._stopping = True
        self._main.go.acquire(blocking=self.me is not self._main)
        while self._tasks:
            self.me = next(iter(self._tasks))
            self.me.go.release()
            self._main.go.acquire()
        self.me = self._main
        for worker in self._workers:
            worker.go.release()
            worker.join()

    # The hand-over ---------------------------------------------------------------------------------------------------

    def _push(self, when: float, item: Any) -> None:
        self._count += 1
        if isinstance(item, Task):
            item.turn = self._count
        heapq.heappush(self._heap, (max(when, self.now), self._count, item))

    def _next(self) -> Task:
        while not self.failure:
            when, number, item = heapq.heappop(self._heap)
            if isinstance(item, Task):
                if item.turn != number:
                    continue
                self.now = when
                return item
            self.now = when
            try:
                item()
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
