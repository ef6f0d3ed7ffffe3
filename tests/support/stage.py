"""A whole backend over the world in memory and a real SQLite store, with verbs for the events of its jobs."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.support.records import a_slice
from tests.support.world import (
    Bucket,
    Clock,
    Cloud,
    CopiesOfBucket,
    Faults,
    HostsOfCloud,
    Killed,
    SecretsInMemory,
    orphans,
    service,
)
from tpujob.adapters.sqlite import SqliteStore
from tpujob.agent.upload.evidence import TailLine, pick_lines
from tpujob.domain.capacity.settings import ANYTHING
from tpujob.domain.hardware.generations import CLOUD_TPU
from tpujob.domain.model import Job, State
from tpujob.domain.money.shared import SharedBudget
from tpujob.engine.notification_collector import NotificationSetup
from tpujob.engine.orphans import Swept
from tpujob.engine.reconciler import Reconciler
from tpujob.ports import Ports, Providers
from tpujob.protocol import paths
from tpujob.protocol.report import sign_report
from tpujob.service.backend.capacity import Quotas
from tpujob.service.jobs import Jobs

SPEC = {
    "name": "digits",
    "tpu": {"type": "v4-16", "zones": ["us-central2-b"]},
    "run": {"command": "python3 train.py"},
}


class Stage:
    """A backend, its world, and the verbs of the stories."""

    def __init__(
        self,
        folder: Path,
        *,
        budgets: Sequence[SharedBudget] = (),
        clock: Clock | None = None,
        report_every: float = 15.0,
    ) -> None:
        self.budgets, self.report_every = budgets, report_every
        self.clock, self.faults = clock or Clock(), Faults()
        self.cloud = Cloud(self.clock, self.faults)
        self.clouds = {CLOUD_TPU: self.cloud}  #: by provider
        self.bucket = Bucket(self.clock, self.faults)
        self.copies = CopiesOfBucket(self.bucket, self.faults)
        self.hosts = HostsOfCloud(self.cloud, self.bucket, self.faults)
        self.folder, self.secrets = folder, SecretsInMemory()
        self.store = SqliteStore(folder / "tpujob.db")
        self._backends = 0
        self.setup = NotificationSetup()  #: channels and rules of notifications
        self.quotas: Quotas | None = None
        self.queue = ANYTHING
        self.emulated = False  #: whether dollars are list prices that no user pays
        self.reconciler = self.new_backend()

    def new_backend(self) -> Reconciler:
        """Start another backend process on the same store and world."""
        self._backends += 1
        ports = Ports(
            self.store,
            Providers(self.clouds),
            self.hosts,
            self.bucket,
            self.clock,
            self.copies,
            self.secrets,
            self.store.reputation,
        )
        return Reconciler(
            ports,
            owner=f"backend-{self._backends}",
            budgets=self.budgets,
            report_every=self.report_every,
            queue=self.queue,
        )

    def preempt(self) -> None:
        """Let the cloud preempt every slice."""
        self.cloud.preempt()

    def sweep(self, *zones: str) -> Swept:
        """Sweep as the loop does, in these zones or in all."""
        return orphans(self.reconciler, zones).sweep()

    def tidy(self, backend: Reconciler | None = None) -> None:
        """Remove the reports of attempts that are over, as the loop does after a sweep."""
        (backend or self.reconciler).tidy(self.store.list(live=True))

    @property
    def api(self) -> Jobs:
        return service(
            self.reconciler, setup=self.setup, quotas=self.quotas, emulated=self.emulated
        )

    def create(self, **changes: object) -> str:
        return self.api.create({**SPEC, **changes})["id"]

    def job(self, job_id: str) -> Job:
        return self.store.get(job_id)

    def until(
        self,
        job_id: str,
        condition: Callable[[Job], bool] | State,
        *,
        limit: int = 400,
        also: Callable[[], None] = lambda: None,
    ) -> Job:
        """Tick and turn the clock until `holds` is true. Another backend replaces a killed backend."""
        holds = (lambda j: j.state is condition) if isinstance(condition, State) else condition
        for _ in range(limit):
            job = self.job(job_id)
            if holds(job):
                return job
            also()
            self.step(job_id)
        job = self.job(job_id)
        events = "\n".join(f"  {e.state:12} {e.kind}: {e.text}" for e in self.store.events(job_id))
        raise AssertionError(
            f"never reached; the job is {job.state} ({job.message}) after\n{events}"
        )

    def step(self, job_id: str) -> None:
        try:
            wake_in = self.reconciler.tick(job_id)
        except Killed:
            self.faults.kill_at = None
            self.reconciler = self.new_backend()
            wake_in = 1.0
        self.clock.sleep(min(wake_in or 1.0, 30.0))

    def running(self, job_id: str, attempt: int = 0) -> Job:
        """Tick until the newest attempt runs, or the attempt of that number."""
        return self.until(
            job_id, lambda j: j.state is State.RUNNING and attempt in (0, len(j.attempts))
        )

    def started(self, **changes: object) -> str:
        """Return the id of a new job whose program runs."""
        job_id = self.create(**changes)
        self.running(job_id)
        return job_id

    def report(self, job_id: str, host: int, **fields: object) -> None:
        job = self.job(job_id)
        assert job.attempt is not None
        self.bucket.report(job.workdir, job.attempt.number, host, **fields)

    def reports(self, job_id: str, **fields: object) -> None:
        """Write the same report for every host."""
        slice = self.job(job_id).slice
        for host in range(len(slice.endpoints) if slice else 0):
            self.report(job_id, host, **fields)

    def finish(self, job_id: str, *codes: int) -> None:
        """End the program on every host with these exit codes."""
        for host, code in enumerate(codes):
            self.report(job_id, host, phase="exited", exit_code=code)

    def succeed(self, job_id: str) -> Job:
        """End the program well on both hosts, and thereby the job."""
        self.finish(job_id, 0, 0)
        return self.until(job_id, State.SUCCEEDED)

    def last_words(self, job_id: str, host: int, *lines: str) -> None:
        """Store the last lines that the agent on a host keeps of a bad end."""
        job = self.job(job_id)
        assert job.attempt is not None
        path = paths.report_path(job.workdir, job.attempt.number, host)
        metadata = self.bucket.objects[path][1].metadata
        body = pick_lines([TailLine(line.encode()) for line in lines])
        self.bucket.put(path, body, metadata=metadata, timeout=1)

    def draw(self, job_id: str, series: bytes, *, evidence: bytes = b"") -> bytes:
        """Sign a body with these curves as the agent on host 0, and add it to the host's last report."""
        job = self.job(job_id)
        assert job.attempt is not None
        path = paths.report_path(job.workdir, job.attempt.number, 0)
        metadata = self.bucket.objects[path][1].metadata
        key = self.bucket.pens[job.workdir, job.attempt.number]
        _, body = sign_report(json.loads(metadata["report"]), key, evidence, series)
        self.bucket.put(path, body, metadata=metadata, timeout=1)
        return body

    def kinds(self, job_id: str) -> list[str]:
        return [e.kind for e in self.store.events(job_id)]


DEVICE = {
    "step": 41,
    "host": 1,
    "device": "device 2",
    "blame": "device",
    "text": "device 2 of host 1 made a NaN at step 41",
}


def bad_device(stage: Stage, job_id: str) -> None:
    stage.reports(job_id, phase="exited", exit_code=71, verdict=DEVICE, step=41)


def leftover(
    stage: Stage, name: str, zone: str, job_id: str = "000009", age: float = 3600.0
) -> None:
    stage.cloud.add(a_slice(name=name, zone=zone), job_id, age=age)
    stage.cloud.created.remove(name)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)
