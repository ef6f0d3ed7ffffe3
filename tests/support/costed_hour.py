"""The costs of a job's hour beside its slices: every operation on the bucket and every call of Cloud TPU is counted.

The real reconciler and sweep of the backend, log and report writers of the agent, and a follower of the log run in
virtual time against a bucket and a cloud in memory. The job runs already: its start and its end are not counted.
"""

import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.support.simulation.sim import Sim
from tests.support.stage import Stage
from tests.support.virtual_threads import virtual
from tests.support.world import Bucket, Clock, orphans
from tpujob.agent.upload import Redactor, log, report_writer, spool
from tpujob.cli.commands.logs import POLL
from tpujob.domain.hardware.prices import LIST
from tpujob.domain.model import Job
from tpujob.domain.observations import SliceSeen
from tpujob.engine.loop import ATTENDED, REFRESH, SWEEP_EVERY
from tpujob.ports import SliceSurvey
from tpujob.protocol import limits, paths
from tpujob.service import logs
from tpujob.service.logs.live_stream import Tails
from tpujob.service.logs.live_tail import Ring

#: a type by its number of hosts
TYPES: Mapping[int, str] = {1: "v4-8", 4: "v4-32", 64: "v4-512"}
#: seconds between two reports of a host in the cloud, and between two lines of a program that prints
REPORT_EVERY, LINE_EVERY = 60.0, 0.5
#: how Cloud Storage bills each method of the port `Blobs`; deletions are free, and what is refused or not found
CLASSES: Mapping[str, str] = {
    "put": "A", "list": "A", "touch": "A", "get": "B", "place": "B"
}  # fmt: skip


@dataclass
class Bill:
    """The operations and calls of one job-hour."""

    hosts: Counter[str] = field(default_factory=Counter[str])  #: operations by class
    backend: Counter[str] = field(default_factory=Counter[str])
    tpu: Counter[str] = field(default_factory=Counter[str])  #: calls by method

    def of(self, letter: str) -> int:
        return self.hosts[letter] + self.backend[letter]

    @property
    def usd(self) -> Decimal:
        """The price on a bucket of one region, Standard storage."""
        return LIST.usd_of_operations(self.of("A"), self.of("B"))


def _timed() -> list[ModuleType]:
    """Return the modules that read a clock: the agent's writers, and the reader of logs, which caches lists."""
    read = [module for name, module in sys.modules.items() if name.startswith(logs.__name__)]
    return [log, spool, report_writer, *read]


class _Time(Clock):
    def __init__(self, sim: Sim) -> None:
        self.sim = sim

    @property
    def time(self) -> float:  # type: ignore[override]
        return self.sim.now

    def sleep(self, seconds: float) -> None:
        if seconds:  # the log is read by threads of its own, which are not the simulation's
            self.sim.sleep(seconds)


class _Storage:
    """The storage that the agent writes to."""

    def __init__(self, bucket: Bucket, bill: Bill, now: Callable[[], float]) -> None:
        self._bucket, self._put, self._bill, self._now = bucket, bucket.put, bill, now

    def put(self, path: str, content: bytes, metadata: Mapping[str, str], over: str = "") -> None:
        self._bill.hosts["A"] += 1
        self._put(path, content, metadata=metadata, timeout=10)

    def delete(self, path: str) -> None: ...

    def time(self) -> float:
        return self._now()


class _Heard:
    """The log lines from hosts, as `service/logs/live_stream.py` keeps them, without an SSH connection."""

    def __init__(self, sim: Sim, logs_: list[log.Log]) -> None:
        self._sim, self._logs, self._settled_at = sim, logs_, 0.0
        self._rings = [Ring(1 << 24) for _ in logs_]

    def tails(self, job: Job, attempt: int, until: object) -> Tails:
        for host, (ring, lines) in enumerate(zip(self._rings, self._logs, strict=True)):
            settled = ring.settled
            while ring.take(tail := lines.pending(host, ring.end)) and tail.lines:
                pass
            if ring.settled > settled:
                self._settled_at = self._sim.now
        of = {host: ring.now() for host, ring in enumerate(self._rings)}
        return Tails(of, whole=True, over=False, settled_at=self._settled_at)


def an_hour(hosts: int, *, followed: bool, minutes: float = 60.0) -> Bill:
    """Return the bill of an hour of a job whose program prints on all hosts, all the time. `followed`: a page follows
    the log of all hosts over SSH. `minutes`: the length of the played part."""
    sim, bill = Sim(0), Bill()
    with tempfile.TemporaryDirectory() as folder, virtual(sim, *_timed()):
        clock = _Time(sim)
        stage = Stage(Path(folder), clock=clock, report_every=REPORT_EVERY)
        try:
            hour = _Hour(sim, stage, bill, Path(folder))
            sim.spawn(lambda: hour.begin(hosts, followed=followed))
            sim.run_until(sim.now + 600)  # until the job runs, and the first looks at it are over
            hour.count()
            sim.run_until(sim.now + minutes * 60)
        finally:
            sim.stop()
            stage.store.close()
    for counts in (bill.hosts, bill.backend, bill.tpu):
        for name in counts:
            counts[name] = round(counts[name] * 60 / minutes)
    return bill


class _Hour:
    def __init__(self, sim: Sim, stage: Stage, bill: Bill, folder: Path) -> None:
        self.sim, self.stage, self.bill, self.folder = sim, stage, bill, folder
        self.logs: list[log.Log] = []  #: by host
        self.put = stage.bucket.put
        self.write = _Storage(stage.bucket, bill, lambda: sim.now)
        self._count_bucket()
        self._count_cloud()

    def begin(self, hosts: int, *, followed: bool) -> None:
        stage, sim = self.stage, self.sim
        tpu = {"type": TYPES[hosts], "zones": ["us-central2-b"]}
        job = stage.running(stage.create(tpu=tpu))
        for host in range(hosts):
            self._host(job, host)
        sim.spawn(lambda: self._ticks(job.id, followed=followed))
        sim.spawn(self._refreshes)
        sim.spawn(self._sweeps)
        if followed:
            sim.spawn(lambda: self._follows(job, _Heard(sim, self.logs)))

    def count(self) -> None:
        """Count from now on."""
        for counts in (self.bill.hosts, self.bill.backend, self.bill.tpu):
            counts.clear()

    # The hosts

    def _host(self, job: Job, host: int) -> None:
        attempt = job.attempt
        assert attempt
        where, redactor = (job.workdir, attempt.number, host), Redactor({})
        storage: Any = self.write
        plan: Any = {
            "job": job.id, "attempt": attempt.number, "host": host, "workdir": job.workdir,
            "report_every": REPORT_EVERY, "stall": None,
        }  # fmt: skip
        report: Any = {"v": 1, "job": job.id, "attempt": attempt.number, "host": host}
        vitals: Any = {"idle": 1.0, "looks": 2}
        reporter = report_writer.ReportWriter(
            plan,
            storage,
            self.stage.bucket.pens[job.workdir, attempt.number],
            first=report | {"phase": "running"},
            vitals=lambda: vitals,
            redactor=redactor,
        )
        lines = log.Log(
            storage,
            lambda n: paths.log_path(*where, n),
            str(self.folder / f"begun-{host}"),
            1 << 30,
            redactor,
            limits.LOG_EVERY,
        )
        self.logs.append(lines)
        self.sim.spawn(lambda: self._program(reporter, lines, host))

    def _program(self, reporter: report_writer.ReportWriter, lines: log.Log, host: int) -> None:
        """Make a step every 2 s, and a checkpoint every ten minutes, which host 0 reports."""
        began, step = self.sim.now, 0
        while True:
            self.sim.sleep(LINE_EVERY)
            now = int((self.sim.now - began) / 2)
            if now > step:
                step = now
                facts: Any = {"step": step, "loss": 1 / step}
                saved = host == 0 and step % 300 == 0
                reporter.update(facts | ({"checkpoint": step} if saved else {}))
            lines.note(f"step {step} loss {1 / max(step, 1):.6f}", "")

    # The backend, and who looks

    def _ticks(self, job_id: str, *, followed: bool) -> None:
        while True:
            wake_in = self.stage.reconciler.tick(job_id)
            assert wake_in, "it runs all the time"
            self.sim.sleep(min(wake_in, ATTENDED) if followed else wake_in)

    def _refreshes(self) -> None:
        while True:
            self.sim.sleep(REFRESH)
            self.stage.reconciler.observer.report_cache.refresh()

    def _sweeps(self) -> None:
        while True:
            self.sim.sleep(SWEEP_EVERY)
            self.stage.reconciler.tidy(orphans(self.stage.reconciler).sweep().live)

    def _follows(self, job: Job, heard: Any) -> None:
        """Follow the log of every host, as `tpujob logs --follow` does."""
        reader, cursor = logs.Logs(self.stage.bucket, heard), ""
        while True:
            page = reader.page(job, cursor=cursor)
            cursor = page["cursor"]
            if not page["lines"]:
                self.sim.sleep(POLL)

    # Counting

    def _count_bucket(self) -> None:
        bucket: Any = self.stage.bucket
        for name, letter in CLASSES.items():
            real = getattr(bucket, name)

            def counted(*args: Any, real: Any = real, letter: str = letter, **kwargs: Any) -> Any:
                answer = real(*args, **kwargs)
                self.bill.backend[letter] += 1
                return answer

            setattr(bucket, name, counted)

    def _count_cloud(self) -> None:
        cloud: Any = self.stage.cloud
        look, survey, list_all = cloud.look, cloud.survey, cloud.list_all

        def looked(slice: Any, *, timeout: float) -> SliceSeen:
            self.bill.tpu["get"] += 2  # its queued resource and its node
            return look(slice, timeout=timeout)

        def surveyed(zones: Collection[str], *, timeout: float) -> SliceSurvey:
            seen = survey(zones, timeout=timeout)
            self.bill.tpu["list"] += seen.calls
            return seen

        def listed(zones: Collection[str], *, timeout: float) -> Any:
            self.bill.tpu["list"] += 2
            return list_all(zones, timeout=timeout)

        cloud.look, cloud.survey, cloud.list_all = looked, surveyed, listed


# The table -----------------------------------------------------------------------------------------------------------

HEAD = (
    "| Hosts | Followed | Class A by hosts | Class A by the backend | Class B | Cloud TPU calls | Dollars |",
    "|---:|---|---:|---:|---:|---:|---:|",
)
#: minutes that are played of each size: more hosts repeat the same more often
MINUTES: Mapping[int, float] = {1: 60, 4: 60, 64: 10}


@dataclass(frozen=True)
class Case:
    hosts: int
    followed: bool  #: see `an_hour`

    def played(self) -> Bill:
        return an_hour(self.hosts, followed=self.followed, minutes=MINUTES[self.hosts])

    def row(self, bill: Bill) -> str:
        """Return the table's row for an hour of such a job."""
        words = (
            str(self.hosts),
            "yes" if self.followed else "no",
            *(f"{n:,}" for n in (bill.hosts["A"], bill.backend["A"], bill.of("B"))),
            f"{sum(bill.tpu.values()):,}",
            f"{bill.usd:.4f}",
        )
        return f"| {' | '.join(words)} |"


CASES = tuple(Case(hosts, followed) for hosts in TYPES for followed in (False, True))
