"""The Blobs port; the reports of agents are made when they are listed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache

from tests.support.simulation.effects import Outage
from tests.support.simulation.machines import Machine
from tests.support.simulation.programs import Program, Run
from tests.support.simulation.sim import Sim
from tests.support.simulation.world import World
from tests.support.world import Bucket as PlainBucket
from tests.support.world import Faults
from tpujob.errors import NotFound
from tpujob.ports import Blob
from tpujob.protocol import ReportDocument, paths, signing
from tpujob.protocol.report import sign_report


class StorageClock:
    """The storage's clock, which differs far from all other clocks."""

    def __init__(self, sim: Sim) -> None:
        self.sim, self.offset = sim, sim.random("storage").uniform(-86400, 86400)

    @property
    def time(self) -> float:
        return self.sim.now + self.offset


class Bucket(PlainBucket):
    def __init__(self, world: World) -> None:
        super().__init__(StorageClock(world.sim), Faults())  # type: ignore[arg-type]
        self.world, self.sim, self.effect = world, world.sim, world.effects
        self.outage = Outage(world.sim, world.effects, "blobs_outage", longest=700)
        self.lists: list[tuple[float, str]] = []  #: time and prefix of each list that a backend got

    def list(self, prefix: str, *, most: int | None = None, timeout: float) -> list[Blob]:
        def do() -> list[Blob]:
            self.outage.check("list objects")
            if prefix.endswith("/reports/"):  # no look through all that there is
                return self._reported(prefix)
            return super(Bucket, self).list(prefix, most=most, timeout=timeout)

        blobs = self.effect("objects", prefix[-24:], do, timeout=timeout, before="blobs")
        self.lists.append((self.sim.now, prefix))
        return blobs

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

    # Others who may write to the bucket, and have no key

    def forge(self, machine: Machine, fields: dict[str, object]) -> None:
        """Overwrite all reports of the newest run."""
        run = machine.runs[-1]
        run.advance(self.sim.now)
        for program in run.programs.values():
            about = {"v": 1, "job": run.job, "attempt": run.attempt, "host": program.host}
            text = json.dumps(about | {"seq": 10**15} | fields)
            self._overwrite(program, {"report": text, "mac": signing.sign("", "report", text)})

    def reports_of(self, machine: Machine) -> dict[int, Mapping[str, str]]:
        """Return the present reports of the newest run, by host."""
        run = machine.runs[-1]
        run.advance(self.sim.now)
        objects = {host: self.objects.get(_path(program)) for host, program in run.programs.items()}
        return {host: stored[1].metadata for host, stored in objects.items() if stored}

    def put_back(self, machine: Machine, old: Mapping[int, Mapping[str, str]]) -> None:
        """Write old reports of the newest run, by host, as if they were new."""
        run = machine.runs[-1]
        run.advance(self.sim.now)
        for host, metadata in old.items():
            self._overwrite(run.programs[host], metadata)

    def _overwrite(self, program: Program, metadata: Mapping[str, str]) -> None:
        path = _path(program)
        body, old = self.objects.get(path, (b"", Blob(path, 0, 0, 0.0, {})))
        fresh = Blob(path, len(body), old.generation + 1, self._clock.time, metadata)
        self.objects[path] = (body, fresh)
        if program.wrote >= program.exit_at:  # it reports that no more
            program.silent_at, program.hidden = min(program.silent_at, self.sim.now), True

    def _reported(self, root: str) -> list[Blob]:
        """Return the reports that the agents of newest attempts have written by now, of all jobs."""
        newest = [run for run in self._newest() if _reports_root(run.workdir) == root]
        for run in newest:
            run.advance(self.sim.now)
        places = [_path(program) for run in newest for program in run.programs.values()]
        return [self.objects[p][1] for p in places if p in self.objects]

    def _newest(self) -> Iterator[Run]:
        """Yield the newest attempts."""
        for job, machines in self.world.of_job.items():
            used = [machine for machine in machines[-12:] if machine.runs]  # candidates are not
            for machine in used[-2:]:  # a condemned one beside it at most
                yield from [run for run in machine.runs if run.job == job][-1:]

    def reported(
        self, run: Run, host: int, report: ReportDocument, evidence: bytes, at: float
    ) -> None:
        """Store a report that a host of the run wrote at that time."""
        path = _path(run.programs[host])
        updated = at + self._clock.time - self.sim.now
        metadata, body = sign_report({**report, "at": updated}, run.key, evidence)
        old = self.objects.get(path)
        generation = old[1].generation + 1 if old else 1
        self.objects[path] = (body, Blob(path, len(body), generation, updated, metadata))


_reports_root = lru_cache(10_000)(paths.reports_root)
_report_path = lru_cache(10_000)(paths.report_path)


def _path(program: Program) -> str:
    """Return the path of the report of the program's host."""
    return _report_path(program.run.workdir, program.run.attempt, program.host)
