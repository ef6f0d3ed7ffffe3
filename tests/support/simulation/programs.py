"""The ledger of programs: what truly runs on the hosts, how far it has come, and what it has saved.

The hosts of a run go in step, as collectives make them. Its future is planned when its last host starts; whatever
befalls it cuts that short.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from tpujob.protocol import signing
from tpujob.protocol.limits import MAX_CHECKPOINTS

if TYPE_CHECKING:
    from tests.support.simulation.plans import Work

STEP = 10.0  #: seconds that a step takes
EVERY = 6  #: steps between checkpoints


@cache
def key_for(*purpose: str) -> str:
    """Return a key that the backends derive from their shared secret."""
    return signing.derive(b"a secret of the simulation", *purpose)


@dataclass(frozen=True)
class Checkpoint:
    step: int
    attempt: int
    good: bool  #: every number in it is finite


@dataclass(eq=False)
class Run:
    job: str
    attempt: int
    slice: str
    hosts: int
    work: Work
    resumed: int = 0  #: the step from which it resumed
    steps: int = 0  #: the step at which it ends
    begins: float = math.inf  #: the last of its hosts runs
    compiles: float = 0.0  #: seconds until the first step
    pause: tuple[float, float] = (math.inf, math.inf)  #: time without progress that is no fault
    frozen: bool = False  #: whether the hosts freeze in that pause, agents too
    hangs: float = math.inf  #: time at which it hangs
    spoils: float = math.inf  #: time from which its numbers are not finite
    quiet_host: int = -1  #: shows no sign of progress although the run goes on
    programs: dict[int, Program] = field(default_factory=dict)
    culprit: int = -1  #: the host whose device breaks the numbers
    tainted: bool = False  #: what it resumed from held numbers that are not finite
    kept: int = 0  #: the newest step that is in the ledger of checkpoints
    workdir: str = ""  #: the folder of its checkpoints
    key: str = ""  #: the key of its hosts' reports
    every: float = 60.0  #: seconds between two reports while nothing happens
    stall: Mapping[str, float] = field(default_factory=dict)  #: limits of a hang, for its agents
    advance: Callable[[float], object] = lambda now: (
        None
    )  #: lets its hosts say what they have to say until then

    def over(self) -> float:
        """Return the time at which the run stops making progress: it hangs, or a host is missing."""
        ends = [min(p.exit_at, p.died_at) for p in self.programs.values()]
        return min([self.hangs, *ends])

    def saved_at(self) -> float:
        """Return the time at which host 0 has saved its whole state, before its program ended by itself."""
        first = self.programs.get(0)
        saves = first and first.exit_code in (0, 75) and first.exit_at <= first.died_at
        return first.exit_at if first and saves else math.inf

    def worked(self, at: float) -> float:
        """Return the seconds that the run has spent in steps."""
        until = min(at, self.over())
        paused = max(0.0, min(until, self.pause[1]) - self.pause[0])
        return max(0.0, until - self.begins - self.compiles - paused)

    def step(self, at: float) -> int:
        reached = self.resumed + int(self.worked(at) / STEP + 1e-6)
        return min(reached, max(self.steps, self.resumed))

    def when(self, worked: float) -> float:
        """Return the time at which the run has worked that long."""
        plain = self.begins + self.compiles + worked
        return plain if plain <= self.pause[0] else plain + self.pause[1] - self.pause[0]

    def bad_step(self) -> int | None:
        return None if self.spoils == math.inf else self.step(self.spoils)

    def stepped(self, at: float) -> bool:
        return self.worked(at) >= STEP

    def idle(self, host: int, at: float) -> float:
        """Return the seconds since its last sign of progress."""
        if host == self.quiet_host and at > self.begins + self.compiles:
            return at - min(self.begins + self.compiles, self.over())
        if self.pause[0] <= at <= self.pause[1]:
            return at - self.pause[0]
        if at >= self.over():
            return at - self.over()
        if at < self.begins + self.compiles:
            started = self.programs[host].running_at
            return at - started if self.work.contract or at < self.begins else 0.0
        return self.worked(at) % STEP

    def looks(self, host: int, at: float) -> int:
        if self.frozen and at <= self.pause[1] + 2 and at >= self.pause[0]:
            return 1
        return int(self.idle(host, at))

    def next_change(self, now: float) -> float:
        """Return the time of the next change of the run by itself."""
        times = [self.begins + self.compiles, *self.pause, self.hangs, self.spoils]
        for p in self.programs.values():
            times += [p.setup_at, p.running_at, p.exit_at, p.died_at, p.silent_at]
        return min((t for t in times if t > now), default=math.inf)


@dataclass(eq=False)
class Program:
    """One host's part of a run."""

    run: Run
    host: int
    physical: str  #: as the metadata server tells it
    started: float
    setup_at: float
    running_at: float
    exit_at: float = math.inf  #: planned
    exit_code: int = 0
    error: str = ""
    cause: str = ""
    verdict: dict[str, Any] | None = None
    lines: tuple[str, ...] = ()  #: what its agent keeps of a bad end
    died_at: float = math.inf  #: time at which it dies with its host, without a report
    silent_at: float = math.inf  #: time at which its agent dies, while it runs on
    hidden: bool = False  #: whether others have overwritten its last report
    noticed_at: float = math.inf  #: time at which its agent saw a notice
    saved_in: float | None = None
    wrote: float = -1.0  #: when its newest report in the bucket was written
    wrote_before: float = -1.0  #: and the one before that
    stopped_by: str = ""

    def alive(self, now: float) -> bool:
        return now < self.exit_at and now < self.died_at

    def news(self) -> tuple[float, ...]:
        """Return the times of the program's changes that are reported at once."""
        return self.started, self.setup_at, self.running_at, self.noticed_at, self.exit_at

    def end(self, at: float, code: int, why: str = "") -> None:
        if at < self.exit_at:
            self.exit_at, self.exit_code, self.stopped_by = at, code, why
            self.error, self.cause, self.verdict, self.lines = "", "", None, ()

    def report(self, at: float) -> dict[str, object]:
        phase = "fetching" if at < self.setup_at else "setup" if at < self.running_at else "running"
        report: dict[str, object] = {"phase": phase, "notice": "", "physical": self.physical}
        if at >= self.noticed_at:
            report |= {"notice": "preempted"}
        if at >= self.running_at:
            report |= self._progress(at)
        if at >= self.exit_at:
            report |= {"phase": "exited", "exit_code": self.exit_code, "saved_in": self.saved_in}
            report |= {"signalled": bool(self.stopped_by)}
            began = self.cause != "PREFLIGHT" and self.exit_at > self.running_at
            report |= {"ran": self.exit_at - self.running_at} if began else {}
            report |= {"error": self.error, "cause": self.cause} if self.cause else {}
            report |= {"verdict": self.verdict} if self.verdict else {}
        return report

    def _progress(self, at: float) -> dict[str, object]:
        run, facts = self.run, dict[str, object]()
        facts |= {"idle": run.idle(self.host, at), "looks": run.looks(self.host, at)}
        if run.work.contract:
            facts["program_phase"] = "train" if run.stepped(at) else "compile"
        if run.stepped(at) and (run.work.contract or not run.tainted):
            # what tells the step of another program is the same line that tells of a broken number
            sound = run.work.contract or at < run.spoils
            facts["step"] = run.step(at) if sound else (run.bad_step() or 0) - (at < self.exit_at)
        if run.work.contract:
            newest = run.step(min(at, run.spoils - STEP) if run.tainted else at) // EVERY * EVERY
            facts["resumed_from"] = run.resumed
            facts["steps"] = run.steps
            saved = run.step(at) if at >= run.saved_at() else max(newest, run.resumed)
            if at >= self.exit_at and self.verdict and self.verdict["step"] is not None:
                # an agent that knows the bad step names the newest checkpoint before it
                saved = min(saved, max((self.verdict["step"] - 1) // EVERY * EVERY, run.resumed))
            facts["checkpoint"] = saved or None
            saves = {*range(run.resumed // EVERY * EVERY + EVERY, saved + 1, EVERY), saved} - {0}
            if run.work.one_saves and self.host:
                facts["checkpoint"] = None
            elif run.work.one_saves or run.work.lists:
                facts["checkpoints"] = sorted(saves)[-MAX_CHECKPOINTS:]
        return facts
