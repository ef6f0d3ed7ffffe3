"""The reports of one run's hosts: the real `ReportSchedule` of each host, with wrong clocks.

The reports appear when a backend looks, whenever that is: the events between two looks are played again from their own
times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from random import Random
from typing import TYPE_CHECKING, Any, cast

from tpujob.agent.upload.evidence import first_lines
from tpujob.agent.upload.report_writer import ReportSchedule
from tpujob.protocol import Phase, ReportDocument
from tpujob.protocol.limits import LEFT_BEHIND

if TYPE_CHECKING:
    from tests.support.simulation.machines import Machine
    from tests.support.simulation.programs import Program, Run

#: seconds between two looks of an agent while something happens, and while nothing does; how long something does
BUSY, CALM, STIRRED = 5.0, 20.0, 60.0
#: seconds within which news are written: the longest pause between two tries, and one look
SOON = 20.0

#: takes the writing host, its report, its evidence, and the time
Write = Callable[[int, ReportDocument, bytes, float], None]


class Reporters:
    def __init__(
        self, run: Run, machine: Machine, random: Random, broken: Callable[[str, str, str], object]
    ) -> None:
        self.run, self.machine, self._broken = run, machine, broken
        self._clocks = [random.uniform(-3600, 3600) for _ in range(run.hosts)]
        self._schedules: dict[int, ReportSchedule] = {}
        self._numbers: dict[int, int] = {}
        self._ended: set[int] = set()  #: hosts whose last report is written
        self._last = -math.inf
        self._could: dict[int, float] = {}  #: time at which each host last could not write
        self._advanced = -math.inf  #: until when all reports are made
        self._over = False  #: whether no host can report any more
        self._new: dict[int, tuple[ReportDocument, bytes, float]] = {}  #: by host, its newest

    def advance(self, now: float, write: Write) -> None:
        """Make all reports until now."""
        if self._over or now <= self._advanced:
            return
        self._advanced = now
        marks = sorted(set(self._marks()))
        while not self._over and (at := self._next(marks)) <= now:
            self._last = at
            alive = self._step(at)
            past = at > max(mark for mark in marks if mark < math.inf)
            self._over = past and not alive and not self._may_be_taken_over(at)
        for host, (report, evidence, at) in sorted(self._new.items()):
            write(host, report, evidence, at)
        self._new.clear()

    def _marks(self) -> Iterator[float]:
        """Yield the times of changes that may matter for reports."""
        run, over = self.run, self.run.over()
        yield from (run.begins, run.begins + run.compiles, *run.pause, run.hangs, run.spoils)
        yield from (over + LEFT_BEHIND, over + run.stall["seconds"], over + run.stall["first"])
        for p in run.programs.values():
            yield from (*p.news(), p.died_at, p.silent_at)
        for start, end in self.machine.blocked:
            yield from (start, end)

    def _next(self, marks: list[float]) -> float:
        last = self._last
        coming = next((mark for mark in marks if mark > last), math.inf)
        if last < 0:
            return coming
        stirs = any(mark <= last < mark + STIRRED for mark in marks) or self._blocked(last)
        fresh = any(mark <= last < mark + 3 for mark in marks)
        return min(coming, last + (1.0 if fresh else BUSY if stirs else CALM))

    def _step(self, at: float) -> list[int]:
        """Let the living hosts report if they have news; return these hosts."""
        alive = [h for h, p in sorted(self.run.programs.items()) if self._alive(p, at)]
        for host in alive:
            self._report(host, at)
        return alive

    def _alive(self, program: Program, at: float) -> bool:
        """Return whether the program's agent runs."""
        run = self.run
        frozen = run.frozen and run.pause[0] <= at < run.pause[1]
        dead = at >= min(program.died_at, program.silent_at)
        if frozen or dead or program.host in self._ended:
            self._could[program.host] = at
            return False
        return program.started <= at

    def _may_be_taken_over(self, at: float) -> bool:
        """Return whether an agent was killed on a host that lives: another one may report later."""
        killed = [p for p in self.run.programs.values() if p.silent_at <= at and not p.hidden]
        return any(at < p.died_at and p.host not in self._ended for p in killed)

    def _blocked(self, at: float) -> bool:
        return any(start <= at < end for start, end in self.machine.blocked)

    def _report(self, host: int, at: float) -> None:
        run, program = self.run, self.run.programs[host]
        stall: Any = run.stall
        schedule = self._schedules.setdefault(host, ReportSchedule(run.every, stall))
        about = {"v": 1, "job": run.job, "attempt": run.attempt, "host": host}
        report = cast(ReportDocument, about | program.report(at))
        lines = at >= program.exit_at and program.lines
        evidence = first_lines(list(program.lines)) if lines else b""
        if self._blocked(at):
            self._could[host] = at
        if schedule.seconds_left(report, evidence, at) <= 0:
            if self._blocked(at):
                schedule.note_failed(at)
            else:
                self._write(host, report, evidence, at)
        # I16: what a host has to report is written soon, and at once when something happens that matters
        news = max(t for t in program.news() if t <= at)
        could = self._could.setdefault(host, at)
        late = at - max(news, could) if program.wrote < news else 0.0
        quiet = at - max(program.wrote, could)
        if late > SOON or quiet > run.every + 2 * CALM:
            text = f"host {host} has written no report for {quiet:.0f} s, and none of its news for {late:.0f} s"
            self._broken("I16", run.job, text)

    def _write(self, host: int, report: ReportDocument, evidence: bytes, at: float) -> None:
        number = max(self._numbers.get(host, 0) + 1, int((at + self._clocks[host]) * 1000))
        self._numbers[host] = number
        self._new[host] = cast(ReportDocument, {**report, "seq": number}), evidence, at
        self._schedules[host].note_written(report, evidence, at)
        program = self.run.programs[host]
        program.wrote_before, program.wrote = program.wrote, at
        if report.get("phase") == Phase.EXITED:
            self._ended.add(host)
