"""A remote call with faults: late, lost before or after it took effect, its caller killed or paused."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from tests.support.simulation.profile import Profile
from tests.support.simulation.sim import Sim, Violation
from tests.support.world import Killed
from tpujob.errors import Transient

T = TypeVar("T")
#: effects without a change: a death there equals a death before the next effect with a change
READS = frozenset(
    ("look", "survey", "objects", "get", "list", "jobs", "damaged", "suspects", "alive", "probe")
)
HOUR = 3600.0


@dataclass
class Counts:
    effects: int = 0
    faults: int = 0
    kills: int = 0
    pauses: int = 0


class Effects:
    def __init__(self, sim: Sim, profile: Profile) -> None:
        self.sim, self.profile = sim, profile
        self.counts = Counts()
        self.random = sim.random("effects")
        self.calm = False  #: whether the faults have ended
        self.kill: Callable[[], None] = lambda: None  #: ends the process that runs now
        #: (effect number, "before" or "after": a kill; "pause": longer than a lease)
        self.strike_at: tuple[int, str] | None = None
        self.writes: list[int] = []  #: the numbers of the effects with a change
        #: acts of others just before an effect
        self.at: dict[int, Callable[[], None]] = {}

    def hits(self, fault: str) -> bool:
        """Return whether a fault happens. Draw in any case, so that a rate of 0 shifts no other draw."""
        hit = self.random.random() < self.profile.rates[fault] and not self.calm
        if hit:
            self.counts.faults += 1
        return hit

    def some_time(self, random: Random, rate: float, do: Callable[[], object]) -> None:
        """Call the action once, after a time drawn from that rate per hour, unless the faults have ended by then."""
        pause = random.expovariate(rate / HOUR) if rate else math.inf
        if pause < 1e7:
            self.sim.after(pause, lambda: None if self.calm else do() and None)

    def __call__(
        self,
        name: str,
        about: str,
        do: Callable[[], T],
        *,
        timeout: float,
        before: str = "",
        after: str = "",
        store: bool = False,
    ) -> T:
        """Make a call. `before`, `after`: the faults that lose it, and its reply. The deadline runs from the entry."""
        sim, counts = self.sim, self.counts
        sim.check_alive()
        counts.effects += 1
        number = counts.effects
        if name not in READS and sim.me.process is not None:
            self.writes.append(number)
        if number in self.at:
            self.at[number]()
        deadline = sim.now + timeout
        if timeout <= 0:
            raise Violation("I8", about, f"{name} was called with {timeout:.1f} s to go")
        if not store:
            sim.sleep(self._latency())
        self._maybe_kill("before", number, name, about)
        if self.hits("pause"):
            self._pause("before", name, about)
        if before and self.hits(before):
            sim.note(f"{name} {about} -> lost before it took effect")
            raise Transient(f"{name}: 503 the service is unavailable")
        if sim.now > deadline:
            sim.note(f"{name} {about} -> too late")
            raise Transient(f"{name}: deadline exceeded")
        result = do()
        self._maybe_kill("after", number, name, about)
        if self.hits("pause") or self.strike_at == (number, "pause"):
            # the reply is there; what it is used for comes late
            self._pause("after", name, about)
            return result
        if not store and self.hits("slow"):
            sim.sleep(min(self.random.uniform(1, 90), max(0.0, deadline - sim.now)))
            if sim.now >= deadline:
                sim.note(f"{name} {about} -> applied, and no reply before the deadline")
                raise Transient(f"{name}: deadline exceeded")
        if after and self.hits(after):
            sim.note(f"{name} {about} -> applied, reply lost")
            raise Transient(f"{name}: the connection was reset")
        return result

    def _latency(self) -> float:
        return 0.05 if self.random.random() < 0.7 else self.random.expovariate(1.0)

    def _maybe_kill(self, side: str, number: int, name: str, about: str) -> None:
        planned = self.strike_at == (number, side)
        if self.sim.me.process is None or not (self.hits(f"kill_{side}") or planned):
            return
        self.counts.kills += 1
        self.sim.note(f"{name} {about} -> killed {side} it")
        self.kill()
        raise Killed

    def _pause(self, side: str, name: str, about: str) -> None:
        process = self.sim.me.process
        if process is None:
            return
        self.counts.pauses += 1
        seconds = self.random.uniform(30, 900)
        self.sim.note(f"{name} {about} -> paused for {seconds:.0f} s {side} it")
        process.paused_until = max(process.paused_until, self.sim.now + seconds)
        self.sim.sleep(0)


class Outage:
    """A service with outages."""

    def __init__(
        self,
        sim: Sim,
        effects: Effects,
        fault: str,
        *,
        longest: float,
        error: str = "503 the service is unavailable",
    ) -> None:
        self.sim, self.effects, self.fault, self.longest = sim, effects, fault, longest
        self.error = error
        self.random = sim.random(fault)
        self.until = 0.0
        self._next()

    def _next(self) -> None:
        self.effects.some_time(self.random, self.effects.profile[self.fault], self._begin)

    def _begin(self) -> None:
        self.effects.counts.faults += 1
        self.until = self.sim.now + self.random.uniform(5, self.longest)
        self.sim.note(f"{self.fault} for {self.until - self.sim.now:.0f} s")
        self._next()

    def check(self, name: str) -> None:
        if self.sim.now < self.until:
            self.effects.counts.faults += 1
            raise Transient(f"{name}: {self.error}")
