"""The Blobs port; what agents write comes to light when somebody lists it."""

from __future__ import annotations

import json

from tests.simulation.effects import Outage
from tests.simulation.machines import Machine
from tests.simulation.programs import Program
from tests.simulation.sim import Sim
from tests.simulation.world import World
from tests.support.world import Bucket as PlainBucket
from tests.support.world import Faults
from tpujob.errors import NotFound
from tpujob.ports import Blob
from tpujob.protocol import paths


class StorageClock:
    """The storage's own clock, far from everybody else's."""

    def __init__(self, sim: Sim) -> None:
        self.sim, self.offset = sim, sim.random("storage").uniform(-86400, 86400)

    @property
    def time(self) -> float:
        return self.sim.now + self.offset


class Bucket(PlainBucket):
    """The Blobs port; what agents write comes to light when somebody lists it."""

    def __init__(self, world: World) -> None:
        super().__init__(StorageClock(world.sim), Faults())  # type: ignore[arg-type]
        self.world, self.sim, self.effect = world, world.sim, world.effects
        self.outage = Outage(world.sim, world.effects, "blobs_outage", longest=700)

    def list(self, prefix: str, *, after: str = "", timeout: float) -> list[Blob]:
        def do() -> list[Blob]:
            self.outage.check("list objects")
            written = self._refresh(prefix)
            if "/attempts/" in prefix:  # no look through all that there is
                return [self.objects[p][1] for p in written if p in self.objects]
            return super(Bucket, self).list(prefix, after=after, timeout=timeout)

        return self.effect("objects", prefix[-24:], do, timeout=timeout, before="blobs")

    def get(self, path: str, *, start: int = 0, end: int | None = None, timeout: float) -> bytes:
        def do() -> bytes:
            self.outage.check("get object")
            if path not in self.objects:
                raise NotFound(path)
            return self.objects[path][0][start:end]

        return self.effect("get", path[-24:], do, timeout=timeout, before="blobs")

    def clock(self, *, timeout: float) -> float:
        self.sim.check_alive()
        return self._clock.time

    def delete(self, path: str, *, unchanged: Blob | None = None, timeout: float) -> None:
        def do() -> None:
            self.outage.check("delete object")
            super(Bucket, self).delete(path, unchanged=unchanged, timeout=timeout)

        self.effect("wipe", path[-24:], do, timeout=timeout, before="blobs", after="blobs")

    def _refresh(self, prefix: str) -> list[str]:
        """Where the agents of that attempt, or of all, have written by now."""
        job, _, rest = prefix.split("/jobs/")[1].partition("/")
        attempt = rest.removeprefix("attempts/").partition("/")[0]
        return [
            self._write(machine, program, self.sim.now)
            for machine in self.world.of_job.get(job, ())
            for run in machine.runs
            if not attempt or str(run.attempt) == attempt
            for program in run.programs.values()
        ]

    def _write(self, machine: Machine, program: Program, now: float) -> str:
        at, run = program.last_write(now, machine.blocked), program.run
        path = paths.report_path(program.workdir, run.attempt, program.host)
        if at is None or program.wrote == at:
            return path
        program.wrote = at
        updated = at + self._clock.time - now
        said = {"v": 1, "job": run.job, "attempt": run.attempt, "host": program.host}
        old = self.objects.get(path)
        generation = old[1].generation + 1 if old else 1
        body = json.dumps({"lines": program.lines}).encode() if at >= program.exit_at else b""
        text = {"report": json.dumps(said | program.report(at))}
        self.objects[path] = (body, Blob(path, len(body), generation, updated, text))
        return path
