"""A project to probe: the emulated cloud with a real host, and servers in place of Google's other APIs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support import google_server as g
from tests.support.farm_rig import FarmProcess
from tests.support.tpu_rig import Cloud
from tpujob.config import context
from tpujob.config.settings import Settings, load
from tpujob.doctor.probe.run import Report
from tpujob.doctor.probe.verdicts import Result
from tpujob.emulator.farm_client import FarmClient
from tpujob.emulator.faults import inject
from tpujob.emulator.storage import StorageServer
from tpujob.emulator.tpu.errors import CallFault
from tpujob.wiring import probe as wiring
from tpujob.wiring.probe import Wanted


@dataclass
class Project:
    """`run` probes it, as `tpujob doctor --probe` does."""

    folder: Path
    farm: FarmProcess
    storage: StorageServer
    google: g.GoogleServer
    cloud: Cloud
    settings: Settings
    said: list[str] = field(default_factory=list[str])
    runs: int = 0

    def run(self, **wanted: Any) -> dict[str, Result]:
        report = self.report(**wanted)
        assert list(report.left) == []
        assert self.left() == []
        return {one.probe: one for one in report.results}

    def report(self, shown: Any = lambda _: None, **wanted: Any) -> Report:
        self.runs += 1
        asked = Wanted(**{"poll": 0.05, "wait": 60.0} | wanted)
        with wiring.prepared(self.settings, asked, self.said.append) as ready:
            return ready.run(self.answers, shown)

    @property
    def answers(self) -> Path:
        """The folder of the newest run."""
        return self.folder / f"run-{self.runs}"

    def left(self) -> list[str]:
        """What is in the cloud, on disk and in the bucket."""
        with self.cloud.world.lock:
            there = [*self.cloud.world.queued, *self.cloud.world.nodes]
        home = self.settings.home / "probes"
        files = [p.name for p in home.rglob("*") if p.name not in ("lock", "keys")]
        objects = [str(p) for p in (self.folder / "storage").rglob("*probes*")]
        return [*there, *files, *objects]

    def fail(
        self, method: str, code: str, *, count: int = 1, message: str = "", when: str = "pre"
    ) -> None:
        """The next `count` calls; 0 ends it."""
        before: Any = when
        with self.cloud.world.lock:
            inject.fail_calls(
                self.cloud.world, CallFault(method, code, count, before, message=message)
            )

    def mend(self) -> None:
        with self.cloud.world.lock:
            self.cloud.world.faults.calls.clear()
            self.cloud.world.faults.api_bugs.clear()
            self.cloud.world.faults.stockouts.clear()
            self.cloud.world.faults.quotas.clear()


@pytest.fixture(scope="module")
def _servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    folder = tmp_path_factory.mktemp("project")
    farm, storage = FarmProcess(folder), StorageServer(folder / "storage")
    host_env = {"STORAGE_EMULATOR_HOST": storage.url}
    cloud = Cloud(FarmClient(folder / "farm.ready"), host_env=host_env)
    google = g.healthy()
    google.start()
    env = {
        "USER": "ada",
        "TPUJOB_TPU_ENDPOINT": cloud.tpu.address,
        "STORAGE_EMULATOR_HOST": storage.url.removeprefix("http://"),
        "TPUJOB_GOOGLE_ENDPOINT": google.url,
        "TPUJOB_SSH_PORT": str(farm.ssh_port),
    }
    settings = load(folder / "state", context="lab", env=env)
    lab = {"name": "lab", "project": g.PROJECT, "zones": [g.ZONE]}
    buckets = {"buckets": {g.REGION: f"gs://{g.BUCKET}"}}
    context.write(settings, context.make(lab | buckets))
    from tpujob.wiring import client

    with client.blobs(settings, g.PROJECT) as blobs:
        blobs.make_bucket(f"gs://{g.BUCKET}", g.REGION, log_days=90, adopt=False, timeout=30)
    yield Project(folder, farm, storage, google, cloud, settings)
    google.stop()
    cloud.stop()
    storage.stop()
    farm.stop()


@pytest.fixture
def project(_servers: Project) -> Iterator[Project]:
    _servers.said.clear()
    healthy = dict(_servers.google.answers)
    yield _servers
    _servers.google.answers = healthy
    _servers.mend()
