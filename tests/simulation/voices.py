"""How the hosts of one run report: the real `Roll` of each, over links that are cut at times, by clocks that are wrong.

What they write comes to light when somebody looks. It is the same whenever that is: what happens between two looks is
played again from its own times.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, cast

from tpujob.agent.voice.roll import SILENT, Roll
from tpujob.protocol import Phase, ReportDocument
from tpujob.protocol.limits import LEFT_BEHIND
from tpujob.protocol.slice_report import Word

if TYPE_CHECKING:
    from tests.simulation.machines import Machine
    from tests.simulation.programs import Program, Run

#: seconds between two words while something happens, and while nothing does; and for how long something does
BUSY, CALM, STIRRED = 5.0, 20.0, 60.0
#: seconds until hosts know that they do not reach each other, and until they try again
NOTICED, AGAIN = 15.0, 5.0
#: seconds that a host which has ended goes on to speak for the others
LINGERS = 20.0
#: seconds after which I16 asks why hosts do not speak with one voice, or nobody tells of a silent one
SETTLED = 200.0

#: takes the host that writes, its words, and when
Write = Callable[[int, list[Word], float], None]


@dataclass(frozen=True)
class Cut:
    """From one host to another nothing gets through, for a while."""

    source: int
    target: int
    start: float
    end: float


class Voices:
    def __init__(
        self, run: Run, machine: Machine, random: Random, broken: Callable[[str, str, str], object]
    ) -> None:
        self.run, self.machine, self._broken = run, machine, broken
        self._clocks = [random.uniform(-3600, 3600) for _ in range(run.hosts)]
        self._rolls: dict[int, Roll] = {}
        self._linked: dict[int, int] = {}  #: host -> the lower one that it tells
        self._said: dict[int, tuple[dict[str, object], int]] = {}
        self._kept: dict[
            int, float
        ] = {}  #: when the last word of a host that has ended was written
        self._last = -math.inf
        self._since = (
            0.0  #: when links changed or were cut last, or hosts stood still, or nobody could write
        )
        self._refused = -math.inf  #: when a write was last refused
        self._wrote: dict[int, float] = {}  #: when each host wrote last
        #: when what a host says last could not get through, or it said its last word
        self._through: dict[int, float] = {}
        self._over = False  #: nobody is left who could say anything
        self._new: dict[int, tuple[list[Word], float]] = {}  #: by host, what it wrote last

    def advance(self, now: float, write: Write) -> None:
        """Play on until now."""
        marks = sorted(set(self._marks()))
        while not self._over and (at := self._next(marks)) <= now:
            self._last = at
            alive = self._step(at)
            self._over = not alive and at > max(mark for mark in marks if mark < math.inf)
        for host, (words, at) in sorted(self._new.items()):
            write(host, words, at)
        self._new.clear()

    # Time ------------------------------------------------------------------------------------------------------------

    def _marks(self) -> Iterator[float]:
        """When something changes that may matter."""
        run, over = self.run, self.run.over()
        yield from (run.begins, run.begins + run.compiles, *run.pause, run.hangs, run.spoils)
        yield from (over + LEFT_BEHIND, over + run.stall["seconds"], over + run.stall["first"])
        for p in run.programs.values():
            yield from (p.started, p.setup_at, p.running_at, p.told_at, p.exit_at)
            for silent in (p.died_at, p.silent_at):
                yield from (silent, silent + NOTICED, silent + SILENT + 1)
        for start, end in self.machine.blocked:
            yield from (start, end)
        for cut in self.machine.cuts:
            yield from (cut.start, cut.start + NOTICED, cut.start + SILENT + 1, cut.end + AGAIN)

    def _next(self, marks: list[float]) -> float:
        last = self._last
        coming = next((mark for mark in marks if mark > last), math.inf)
        if last < 0:
            return coming
        stirs = any(mark <= last < mark + STIRRED for mark in marks) or self._blocked(last)
        fresh = any(mark <= last < mark + 3 for mark in marks)
        return min(coming, last + (1.0 if fresh else BUSY if stirs else CALM))

    def _step(self, at: float) -> list[int]:
        """Who could say something."""
        self._begin(at)
        alive = [h for h, p in self.run.programs.items() if h in self._rolls and self._alive(p, at)]
        self._link(at)
        for host in alive:
            self._speak(host, at, alive)
        for host in alive:
            self._write(host, at, alive)
        self._check(at, alive)
        run = self.run
        frozen = run.frozen and run.pause[0] <= at <= run.pause[1]
        # what is lost in a short one comes late over a real link: that a word is written, too
        cut = any(cut.start <= at < cut.end for cut in self.machine.cuts)
        if self._blocked(at) or frozen or cut:
            self._since = at
        return alive

    def _begin(self, at: float) -> None:
        for host, program in sorted(self.run.programs.items()):
            if host not in self._rolls and program.started <= at:
                stall: Any = self.run.stall
                self._rolls[host] = Roll(host, self.run.every, stall, at)
                self._since = at

    def _alive(self, program: Program, at: float) -> bool:
        """Its agent runs."""
        run = self.run
        frozen = run.frozen and run.pause[0] <= at < run.pause[1]
        return (
            at < min(program.died_at, program.silent_at)
            and not frozen
            and not self._left(program, at)
        )

    def _left(self, program: Program, at: float) -> bool:
        """It has ended, and that was written."""
        lingers = LINGERS if program.host not in self._linked else 0.0
        return at > self._kept.get(program.host, math.inf) + lingers

    def _blocked(self, at: float) -> bool:
        return any(start <= at < end for start, end in self.machine.blocked)

    # Links -----------------------------------------------------------------------------------------------------------

    def _link(self, at: float) -> None:
        """Each host is linked with the lowest that it reaches."""
        for host, roll in sorted(self._rolls.items()):
            wanted = next((n for n in range(host) if self._reach(host, n, at)), None)
            known = self._linked.get(host)
            if wanted == known:
                continue
            self._since = at
            if known is not None:
                del self._linked[host]
                roll.lost(known, at)
                self._rolls[known].lost(host, at)
            if wanted is not None:
                self._linked[host] = wanted
                roll.link(wanted, at)
                self._rolls[wanted].link(host, at)

    def _reach(self, host: int, other: int, at: float) -> bool:
        if other not in self._rolls:
            return False
        for one in (host, other):
            program = self.run.programs[one]
            gone = at >= min(program.died_at + NOTICED, program.silent_at)
            if gone or self._left(program, at):
                return False
        return not any(
            {cut.source, cut.target} == {host, other}
            and cut.start + NOTICED <= at < cut.end + AGAIN
            for cut in self.machine.cuts
        )

    def _passes(self, source: int, target: int, at: float) -> bool:
        return not any(
            (cut.source, cut.target) == (source, target) and cut.start <= at < cut.end
            for cut in self.machine.cuts
        )

    # Words -----------------------------------------------------------------------------------------------------------

    def _speak(self, host: int, at: float, alive: list[int]) -> None:
        program, roll = self.run.programs[host], self._rolls[host]
        about = {"v": 1, "job": self.run.job, "attempt": self.run.attempt, "host": host}
        said = about | program.report(at)
        before, number = self._said.get(host, ({}, 0))
        if said != before or said["phase"] != Phase.EXITED:
            number = max(number + 1, int((at + self._clocks[host]) * 1000))
            self._said[host] = said, number
        word = cast(ReportDocument, said | {"seq": number})
        lines = at >= program.exit_at and program.lines
        evidence = json.dumps({"lines": program.lines}).encode() if lines else b""
        roll.hear(host, word, evidence, at)
        up = roll.upward()
        if up in alive and self._passes(host, up, at):
            self._rolls[up].hear(host, word, evidence, at)

    def _write(self, host: int, at: float, alive: list[int]) -> None:
        roll = self._rolls[host]
        if not roll.due(at):
            return None
        if self._blocked(at):
            return roll.failed(at)
        self._one_voice(host, at, alive)
        words = roll.words(at)
        roll.written(words, at)
        self._new[host], self._wrote[host] = (words, at), at
        for word in words:
            program = self.run.programs[word.host]
            program.wrote = max(program.wrote, at - word.age)
            told = self._linked.get(word.host) == host and self._passes(host, word.host, at)
            if told:
                self._rolls[word.host].kept(word.said.get("seq", 0), at)
            if (told or word.host == host) and word.said.get("phase") == Phase.EXITED:
                self._kept.setdefault(word.host, at)
        return None

    # What is checked -------------------------------------------------------------------------------------------------

    def _one_voice(self, host: int, at: float, alive: list[int]) -> None:
        """I16: of hosts that reach each other, the lowest writes."""
        up = self._linked.get(host)
        relied_upon = host in self._linked.values()
        if up in alive and not relied_upon and at - self._since > SETTLED:
            text = f"host {host} writes, though it reaches host {up}"
            self._broken("I16", self.run.job, text)

    def _check(self, at: float, alive: list[int]) -> None:
        """I16: that a host is silent is told soon, and what it says is written, whomever it reaches."""
        if self._blocked(at):
            self._refused = at
        for host in alive:
            up, program = self._linked.get(host), self.run.programs[host]
            through = up is None or (self._passes(host, up, at) and self._passes(up, host, at))
            if not through or self._refused == at or program.exit_at <= at:
                self._through[host] = at
            since = max(program.wrote, self._through.setdefault(host, at))
            if at - since > self.run.every + 2 * CALM:
                text = f"host {host} speaks, and nobody has written a word of it for {at - since:.0f} s"
                self._broken("I16", self.run.job, text)
        if 0 not in alive or at - self._refused < SILENT:
            return
        for word in self._rolls[0].words(at):
            over = word.said.get("phase") == Phase.EXITED or word.host in alive
            told = self._wrote.get(0, -math.inf) > at - word.age + SILENT
            if word.age > SILENT + NOTICED and not over and not told:
                text = f"host {word.host} has been silent for {word.age:.0f} s, and nobody says so"
                self._broken("I16", self.run.job, text)
