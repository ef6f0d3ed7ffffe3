"""The ledger of hardware and programs: what is truly there, which the code under test sees only through its ports."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tpujob.domain.model import Endpoint, SliceState

TICK = 15.0  #: seconds between reports


@dataclass
class Program:
    """One attempt on one host. Its future is planned when it starts; a kill cuts it short."""

    job: str
    attempt: int
    host: int
    workdir: str
    started: float
    setup_at: float
    running_at: float
    exit_at: float  #: planned
    exit_code: int
    resumed: float  #: seconds of work that were saved before
    died_at: float = math.inf  #: with its host: without a word
    told_at: float = math.inf  #: a notice was seen
    stopped_by: str = ""

    def alive(self, now: float) -> bool:
        return now < self.exit_at and now < self.died_at

    def done(self, now: float) -> float:
        """Seconds of work, those of earlier attempts included."""
        end = min(now, self.exit_at, self.died_at)
        return self.resumed + max(0.0, end - self.running_at)

    def report(self, at: float) -> dict[str, object]:
        phase = "fetching" if at < self.setup_at else "setup" if at < self.running_at else "running"
        said: dict[str, object] = {"phase": phase, "notice": ""}
        if at >= self.told_at:
            said["notice"] = "preempted"
        if at >= self.exit_at:
            said |= {"phase": "exited", "exit_code": self.exit_code}
        if at >= self.running_at:
            done = self.done(at)
            said |= {"step": int(done / 10), "checkpoint": int(done / 60) * 6}
        return said

    def last_write(self, now: float, blocked: list[tuple[float, float]]) -> float | None:
        """When it last could write its report; None: never."""
        until = min(now, self.died_at)
        marks = (self.started, self.setup_at, self.running_at, self.told_at, self.exit_at)
        beat = until - (until - self.started) % TICK
        if until > self.exit_at:
            beat = (
                self.exit_at
            )  # the last report is its end; a blocked one is tried again and again
        last = max([beat, *(m for m in marks if m <= until)])
        for start, end in blocked:
            if start <= last < end:
                last = end if end <= until else start - 0.001
        return last if last >= self.started else None


@dataclass
class Machine:
    """One slice, as the cloud has it."""

    name: str
    zone: str
    job: str
    k: int
    hosts: int
    created: float
    ours: bool = True
    listed_at: float = 0.0  #: lists lag until then
    waits_until: float = 0.0
    ready_at: float = 0.0
    fails_at: float = math.inf
    told_at: float = math.inf  #: a preemption's notice
    dead_at: float = math.inf  #: its hosts are gone
    shown_at: float = math.inf  #: the API says so
    stopped_at: float = math.inf  #: by a person
    repair: tuple[float, float] = (math.inf, math.inf)
    absent: tuple[float, float] = (0.0, 0.0)  #: lists miss it
    deleting_at: float = math.inf
    gone_at: float = math.inf
    down: dict[int, float] = field(default_factory=dict)  #: host -> unreachable until
    blocked: list[tuple[float, float]] = field(default_factory=list)  #: no report gets through
    programs: dict[int, Program] = field(default_factory=dict)
    idle_since: float = 0.0
    unclaimed_since: float | None = None
    preempted_seen: bool = False

    def up(self, now: float) -> bool:
        """Its hosts live and are ready."""
        return (
            self.ready_at <= now < min(self.dead_at, self.gone_at, self.fails_at, self.stopped_at)
        )

    def state(self, now: float) -> SliceState:
        if now >= self.deleting_at:
            return SliceState.DELETING
        if now >= self.stopped_at:
            return SliceState.STOPPED
        if now >= self.fails_at:
            return SliceState.FAILED
        if now >= self.shown_at:
            return SliceState.PREEMPTED
        if now < self.waits_until:
            return SliceState.WAITING
        if now < self.ready_at:
            return SliceState.CREATING
        return SliceState.REPAIRING if self.repair[0] <= now < self.repair[1] else SliceState.READY

    def endpoints(self) -> tuple[Endpoint, ...]:
        return tuple(Endpoint(i, f"10.0.{self.k}.{i}") for i in range(self.hosts))

    def running(self, now: float) -> list[Program]:
        return [p for p in self.programs.values() if p.alive(now)]

    def healthy(self, now: float, attempt: int) -> bool:
        """Nothing that anybody could hold against this attempt has happened."""
        of_attempt = [p for p in self.programs.values() if p.attempt == attempt]
        return (
            self.up(now)
            and now < min(self.told_at, self.deleting_at)
            and len(of_attempt) == self.hosts
            and all(p.alive(now) for p in of_attempt)
        )
