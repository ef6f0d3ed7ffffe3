"""The Blobs port; what agents write comes to light when somebody lists it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from tests.simulation.effects import Outage
from tests.simulation.machines import Machine
from tests.simulation.programs import Run
from tests.simulation.sim import Sim
from tests.simulation.world import World
from tests.support.world import Bucket as PlainBucket
from tests.support.world import Faults
from tpujob.errors import NotFound
from tpujob.ports import Blob
from tpujob.protocol import ReportDocument, paths, signing
from tpujob.protocol.report import sign_report


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

    def list(
        self, prefix: str, *, after: str = "", most: int | None = None, timeout: float
    ) -> list[Blob]:
        def do() -> list[Blob]:
            self.outage.check("list objects")
            if prefix.endswith("/reports/"):  # no look through all that there is
                return self._reported(prefix)
            return super(Bucket, self).list(prefix, after=after, most=most, timeout=timeout)

        return self.effect("objects", prefix[-24:], do, timeout=timeout, before="blobs")

    def stat(self, path: str, *, timeout: float) -> Blob:
        def do() -> Blob:
            self.outage.check("look at object")
            for run in self._newest():
                if path.startswith(paths.reports_prefix(run.workdir, run.attempt)):
                    run.advance(self.sim.now)
            return super(Bucket, self).stat(path, timeout=timeout)

        return self.effect("stat", path[-24:], do, timeout=timeout, before="blobs")

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

    # Who may write to the bucket, and has no key

    def forge(self, machine: Machine, fields: dict[str, object]) -> None:
        """In the place of all reports of its newest run."""
        run = machine.runs[-1]
        run.advance(self.sim.now)
        for program in run.programs.values():
            path = paths.report_path(program.workdir, run.attempt, program.host)
            said = {"v": 1, "job": run.job, "attempt": run.attempt, "host": program.host}
            text = json.dumps(said | {"seq": 10**15} | fields)
            self._replace(path, {"report": text, "mac": signing.sign("", "report", text)})
            if program.wrote >= program.exit_at:  # nobody says that again
                program.silent_at, program.hidden = min(program.silent_at, self.sim.now), True

    def reports_of(self, machine: Machine) -> Sequence[Blob]:
        """The reports of its newest run, as they are now, by host."""
        run = machine.runs[-1]
        run.advance(self.sim.now)
        hosts = sorted(run.programs)
        places = [paths.report_path(run.workdir, run.attempt, host) for host in hosts]
        return [self.objects[place][1] for place in places if place in self.objects]

    def put_back(self, old: Sequence[Blob]) -> None:
        """These reports, as if they were new."""
        for run in self._newest():
            run.advance(self.sim.now)
        for blob in old:
            self._replace(blob.path, blob.metadata)

    def _replace(self, path: str, metadata: Mapping[str, str]) -> None:
        body, old = self.objects.get(path, (b"", Blob(path, 0, 0, 0.0, {})))
        fresh = Blob(path, len(body), old.generation + 1, self._clock.time, metadata)
        self.objects[path] = (body, fresh)

    def _reported(self, root: str) -> list[Blob]:
        """What the agents of newest attempts have written by now, of all jobs."""
        newest = [*self._newest()]
        for run in newest:
            run.advance(self.sim.now)
        places = [
            paths.report_path(run.workdir, run.attempt, h) for run in newest for h in run.programs
        ]
        return [self.objects[p][1] for p in places if p in self.objects and p.startswith(root)]

    def _newest(self) -> Iterator[Run]:
        """Newest attempts."""
        for machines in self.world.of_job.values():
            for machine in machines[-2:]:  # a condemned one beside it at most
                yield from machine.runs[-1:]

    def reported(
        self, run: Run, host: int, report: ReportDocument, evidence: bytes, at: float
    ) -> None:
        """A host of it has written that, then."""
        path = paths.report_path(run.workdir, run.attempt, host)
        updated = at + self._clock.time - self.sim.now
        metadata, body = sign_report({**report, "at": updated}, run.key, evidence)
        old = self.objects.get(path)
        generation = old[1].generation + 1 if old else 1
        self.objects[path] = (body, Blob(path, len(body), generation, updated, metadata))
