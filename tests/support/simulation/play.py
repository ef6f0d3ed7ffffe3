"""Plays one seed: the first submit, the faults, and the calm after them, until all jobs have ended."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any
from unittest import mock

from tests.support.simulation import lab
from tests.support.simulation.backend import Backend
from tests.support.simulation.bucket import Bucket
from tests.support.simulation.cloud import Cloud
from tests.support.simulation.copies import Copies
from tests.support.simulation.effects import HOUR, Counts, Effects, Outage
from tests.support.simulation.hosts import Hosts
from tests.support.simulation.machines import Machine
from tests.support.simulation.monitor import Monitor
from tests.support.simulation.patches import replaced
from tests.support.simulation.profile import Profile, Seed, draw
from tests.support.simulation.sim import EPOCH, Process, Sim, Violation
from tests.support.simulation.store import SimStore
from tests.support.simulation.users import User
from tests.support.simulation.world import ZONES, World
from tests.support.stores import in_memory
from tpujob.domain.capacity.settings import ANYTHING, QueueSettings
from tpujob.domain.decide import group
from tpujob.domain.hardware.generations import CLOUD_TPU
from tpujob.domain.model import Slice, State
from tpujob.domain.money.ledger import US
from tpujob.domain.money.shared import SharedBudget
from tpujob.engine import queue as engine_queue

#: after the last fault, in virtual seconds, for everything to come to its end
CALM = 6 * HOUR
#: and for a slice to be gone
LEAVING = 0.5 * HOUR
#: seconds without any change, after which a budget that pays for no slice is all that jobs wait for
SPENT = 2 * HOUR
#: elements of a group that are made at once
BATCH = 4


@dataclass
class Result:
    seed: Seed
    violation: Violation | None
    log: list[str]
    counts: Counts
    now: float  #: time of the end, or of the violation
    seconds: float
    detected: dict[str, list[float]]  #: what was wrong -> seconds until that was decided

    @property
    def days(self) -> float:
        return (self.now - EPOCH) / 86400

    @property
    def digest(self) -> str:
        return hashlib.sha256("\n".join(self.log).encode()).hexdigest()


class Play:
    def __init__(
        self,
        seed: int,
        profile: Profile,
        script: Callable[[Play], None] | None = None,
        queue: QueueSettings = ANYTHING,
    ) -> None:
        """`script`: what happens instead of users and faults drawn from the seed. `queue`: the context's settings,
        unless they are drawn, too."""
        self.sim, self.profile = Sim(seed), profile
        members = lab.people(profile["lab"])
        self.queue = lab.settings(self.sim.random("lab")) if members else queue
        self.effects = Effects(self.sim, profile)
        self.effects.kill = self._kill
        self.world = World(self.sim, self.effects)
        self.world.stirred = lambda job: [b.stir(job) for b in self.backends] and None
        self.slices, self.hosts = Cloud(self.world), Hosts(self.world)
        self.bucket = self.world.bucket = Bucket(self.world)
        self.copies = Copies(self.bucket)
        self.real = in_memory(lambda: self.sim.now)
        outage = Outage(self.sim, self.effects, "store_outage", longest=900)
        self.outages = [
            outage, self.world.cloud_outage, self.world.signed_out, self.bucket.outage,
        ]  # fmt: skip
        self.monitor = self.world.monitor = Monitor(self, outage)
        self.store = SimStore(self.real, self.world, self.monitor, outage)
        self.monitor.unread = self.monitor.queue.unread = self.store.is_damaged
        self.random = self.sim.random("backends")
        self._names, self._none_until = 0, 0.0
        self._changed = 0, 0.0  #: the newest change of a record, and since when it is the newest
        self.budgets = self._shared_budgets(self.sim.random("shared budget"))
        self.backends = [self._backend() for _ in range(profile.backends)]
        self.users = [User(self, n) for n in range(1, profile.jobs + 1)]
        for user in self.users if script is None else ():
            self.sim.spawn(user.live, Process(f"user{user.number}"))
        self.members = [lab.Member(self, n) for n in range(1, members + 1)]
        if members:
            self.world.lengths_of = self._lengths_of
        for member in self.members:
            self.sim.spawn(member.live, Process(f"lab{member.number}"))
        if len(self.members) > 1 and self.sim.random("leaves").random() < profile["member_leaves"]:
            first, second = self.members[:2]
            self.sim.spawn(lambda: first.leave(second), Process("admin"))
        self._patches = contextlib.ExitStack()
        self._watch()
        if script is not None:
            script(self)
        self._jump(self.sim.random("clocks"))
        self._damage(self.sim.random("damage"))
        self._plant("foreign", ours=False)
        self._plant("orphan", ours=True)

    def _watch(self) -> None:
        """Check every plan of a backend, and make groups in several rounds."""
        patch = self._patches.enter_context
        patch(replaced(engine_queue, "plan", self.monitor.queue.planning))
        patch(mock.patch.object(group, "BATCH", BATCH))

    def close(self) -> None:
        self.sim.stop()
        self.real.close()
        self._patches.close()

    def _shared_budgets(self, random: Random) -> tuple[SharedBudget, ...]:
        """Return the budget from which all jobs of the seed are paid, if there is one."""
        if random.random() >= self.profile["shared_budget"]:
            return ()
        usd = self.monitor.budgets.shared = round(math.exp(random.uniform(3.5, 7)), 2)
        return (SharedBudget(round(usd * US)),)

    def _lengths_of(self, job: str) -> tuple[int, ...]:
        of_lab = self.monitor.jobs[job].owner.startswith("lab")
        return lab.LENGTHS if of_lab else self.profile.lengths

    def _backend(self) -> Backend:
        self._names += 1
        skew = self.random.uniform(-1.5, 1.5)
        return Backend(self, name=f"b{self._names}", skew=skew)

    def _kill(self) -> None:
        process = self.sim.me.process
        assert process is not None
        if process not in [b.process for b in self.backends]:
            return
        self.end(process, self.random.uniform(5, 120))

    def end(self, process: Process, back_in: float) -> None:
        """Kill a backend, and start another in its place."""
        process.alive = False
        self.sim.after(back_in, lambda: self._restart(process))

    def no_backend(self, seconds: float) -> None:
        """Kill all backends, and start none for that long."""
        self._none_until = self.sim.now + seconds
        for backend in self.backends:
            if backend.process.alive:
                self.end(backend.process, seconds)

    def _restart(self, process: Process) -> None:
        if self.sim.now < self._none_until:
            self.sim.after(self._none_until - self.sim.now, lambda: self._restart(process))
            return
        self.backends = [self._backend() if b.process is process else b for b in self.backends]

    def plant(self, *, ours: bool, age: float) -> None:
        """Add a slice that no job requested: another owner's slice, or a forgotten slice of ours."""
        number = len(self.world.past) + len(self.world.machines)
        now, job = self.sim.now, f"9{number:05d}"
        name = f"tj-{job}-1" if ours else f"somebody-{number}"
        slice = Slice(
            name, 1, "v4-16", ZONES[0], "spot", CLOUD_TPU, "tpu-ubuntu2204-base", None, now - age
        )
        machine = Machine(name, ZONES[0], job, 1, 2, now - age, ours=ours)
        self.world.add(machine, slice, owner="" if ours else "somebody")
        self.effects.counts.faults += 1
        self.sim.note(f"planted {name}")

    def _jump(self, random: Random) -> None:
        """Set the clock of a backend wrong for some minutes, again and again."""

        def jump() -> None:
            process = random.choice(self.backends).process
            wrong = random.choice((-1, 1)) * random.choice((120.0, 600.0, 3600.0))
            self.effects.counts.faults += 1
            self.set_clock(process, wrong, random.uniform(60, 1200))
            self._jump(random)

        self.effects.some_time(random, self.world.rate("clock_jump"), jump)

    def set_clock(self, process: Process, wrong: float, lasts: float) -> None:
        """Set the clock of a backend's machine wrong for that long."""
        self.sim.note(f"the clock of {process.name} is wrong by {wrong:.0f} s for {lasts:.0f} s")

        def turn(by: float) -> None:
            process.wrong += by

        turn(wrong)
        self.sim.after(lasts, lambda: turn(-wrong))

    def begin_ahead(self, backend: Backend, ahead: float, lasts: float) -> None:
        """Let the clock of a backend's machine be ahead from its boot on, until another backend replaces it."""
        backend.process.skew = ahead
        backend.clock.begin()
        self.monitor.ahead = ahead
        self.monitor.offers.clock_set(self.sim.now + ahead)
        self.sim.after(lasts, lambda: self.end(backend.process, 1.0))

    def _damage(self, random: Random) -> None:
        """Make the record of a job unreadable for some minutes, again and again."""

        def damage() -> None:
            jobs = [job.id for job in self.monitor.jobs.values() if not job.state.final]
            if jobs:
                self.effects.counts.faults += 1
                self.store.damage(random.choice(jobs), random.uniform(20, 1800))
            self._damage(random)

        self.effects.some_time(random, self.world.rate("damaged"), damage)

    def _plant(self, fault: str, *, ours: bool) -> None:
        def plant() -> None:
            self.plant(ours=ours, age=self.random.choice([0.0, 0.0, 4000.0]))
            self._plant(fault, ours=ours)

        self.effects.some_time(self.random, self.world.rate(fault), plant)

    def play(self) -> None:
        self.sim.run_until(EPOCH + self.profile.hours * HOUR)
        self.sim.note("calm")
        self.effects.calm = True
        self.world.calm_down()
        for outage in self.outages:
            outage.until = 0.0
        self.monitor.bounds.calm_since = self.sim.now
        until = self.sim.now + (lab.SERVED if self.members else CALM)
        while self.sim.now < until and not self._settled():
            self.sim.run_until(self.sim.now + 600)
        if any(j.state is State.RELEASING for j in self.monitor.jobs.values()):
            self.sim.run_until(self.sim.now + LEAVING)  # one may just have come to its end
        self.monitor.finish()

    def _settled(self) -> bool:
        submitted = all(u.job_id for u in self.users) and all(m.done for m in self.members)
        newest = self.real.newest()
        if newest != self._changed[0]:
            self._changed = newest, self.sim.now
        # then no job can get a slice any more, and those that wait may wait for ever
        spent = self.monitor.budgets.pay_for_no_more() and self.sim.now - self._changed[1] > SPENT
        ended = all(
            j.desired.value != "clean" if j.state.final else spent and j.state is State.QUEUED
            for j in self.monitor.jobs.values()
        )
        return submitted and ended and not [m for m in self.world.machines.values() if m.ours]


def play(number: int, **how: Any) -> Result:
    """Play one seed; `how`: as in `Seed`. The violation that ended it, if any, is in the result."""
    begun, seed = time.perf_counter(), Seed(number, **how)
    logging.disable(logging.CRITICAL)
    violation = None
    run = Play(number, draw(Sim(number).random("profile"), seed))
    try:
        run.play()
    except Violation as error:
        violation = error
    finally:
        run.close()
        logging.disable(logging.NOTSET)
    seconds, detected = time.perf_counter() - begun, run.monitor.bounds.detected
    return Result(seed, violation, run.sim.log, run.effects.counts, run.sim.now, seconds, detected)
