"""Four faults that cost jobman's users a healthy slice, a forgotten one, or a command run three times; and tpujob.

The real client, adapter and emulated Cloud TPU, with a clock turned by hand; for the last one the real agent. What was
seen makes the table in `docs/recovery.md`, and a figure that changes fails here until the table says so too.
"""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support import tpu_rig
from tests.support.agent_host import Bucket as RealBucket
from tests.support.agent_host import Host, MetadataServer, until
from tests.support.paths import ROOT
from tests.support.stage import Stage
from tests.support.world import HostsOfCloud, Machine
from tpujob.adapters.cloud_tpu import CloudTpuSlices
from tpujob.domain.actions import HostPlan
from tpujob.domain.hardware.generations import CLOUD_TPU
from tpujob.domain.model import Slice, State
from tpujob.domain.observations import Present, SliceSeen, SliceState
from tpujob.emulator import inject
from tpujob.errors import Transient
from tpujob.ports import SliceSurvey

DOC = ROOT / "docs" / "recovery.md"
DAY = 24 * 3600.0


class RealCloud:
    """The Slices port on the emulated Cloud TPU, and what the world in memory needs to know of its slices."""

    def __init__(self, rig: tpu_rig.Cloud) -> None:
        self.rig, self.machines = rig, dict[str, Machine]()
        self._slices = CloudTpuSlices(tpu_rig.PROJECT, endpoint=rig.tpu.address)

    def look(self, slice: Slice, *, timeout: float) -> SliceSeen:
        seen = self._slices.look(slice, timeout=timeout)
        if isinstance(seen, Present) and seen.state is SliceState.READY:
            self.machines.setdefault(
                slice.name,
                Machine(slice.name, slice.zone, "", ["", ""], lambda: seen),
            )
        return seen

    def survey(self, zones: Collection[str], *, timeout: float) -> SliceSurvey:
        return self._slices.survey(zones, timeout=timeout)

    def create(self, slice: Slice, **options: Any) -> None:
        self._slices.create(slice, **options)

    def delete(self, slice: Slice, **options: Any) -> None:
        self._slices.delete(slice, **options)

    def list_all(self, zones: Sequence[str], *, timeout: float) -> list[Any]:
        return list(self._slices.list_all(zones, timeout=timeout))

    def fail(self, method: str, count: int) -> None:
        self.rig.do(inject.api_error, method, "UNAVAILABLE", count)

    def left(self) -> int:
        return len(self.rig.world.nodes) + len(self.rig.world.queued)

    def asked(self, verb: str) -> int:
        calls = self.rig.world.calls
        return calls[f"{verb}QueuedResource"] + calls[f"{verb}Node"]


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    rig = tpu_rig.Cloud()
    rig.world.clock = stage.clock.now
    stage.cloud = stage.clouds[CLOUD_TPU] = RealCloud(rig)  # type: ignore[assignment]
    stage.hosts = HostsOfCloud(stage.cloud, stage.bucket, stage.faults)
    stage.reconciler = stage.new_backend()
    yield stage
    rig.stop()


def row(number: int) -> str:
    """Return the last cell of a row of the table: what tpujob does."""
    lines = [line for line in DOC.read_text().splitlines() if line.startswith(f"| {number}. ")]
    assert len(lines) == 1, f"docs/recovery.md needs one row that begins with `| {number}. `"
    return lines[0].strip("| ").split(" | ")[-1]


def test_an_api_that_answers_503_costs_no_slice(real: Stage) -> None:
    job_id = real.create()
    real.running(job_id)
    real.cloud.fail("*", 1)
    for _ in range(10):
        real.step(job_id)
    job = real.job(job_id)
    assert job.state is State.RUNNING
    text = f"{real.cloud.asked('Delete')} deletes; the program runs on, attempt {len(job.attempts)}"
    assert row(1) == text


def test_a_delete_that_answers_503_is_repeated_until_the_slice_is_gone(real: Stage) -> None:
    job_id = real.create()
    real.running(job_id)
    before = real.cloud.asked("Delete")
    real.cloud.fail("DeleteQueuedResource", 5)
    real.api.cancel(job_id, release=True)
    real.until(job_id, State.CANCELLED)
    assert real.job(job_id).slices[0].gone_at is not None
    tries = real.cloud.asked("Delete") - before
    assert row(2) == f"asked {tries} times until it worked; {real.cloud.left()} resources left"


@pytest.mark.slow
def test_a_day_without_capacity_is_waited_out_with_pauses(real: Stage) -> None:
    real.cloud.rig.do(inject.stockout, "us-central2-b", fail=True)
    job_id = real.create()
    began = real.clock.now()
    real.until(job_id, lambda j: real.clock.now() - began > DAY, limit=20_000)
    creates = real.cloud.asked("Create")
    times = [s.requested_at for s in real.job(job_id).slices]
    shortest = min(b - a for a, b in zip(times[-20:], times[-19:], strict=False)) / 60
    assert real.cloud.left() <= 1
    assert creates <= 12 * 24, f"{creates} creates in a day"
    text = f"about {round(creates, -1)} creates in 24 h, {shortest:.0f} min apart or more once it lasts"
    assert row(3) == text


class RealAgent(HostsOfCloud):
    """Start goes to a real agent; the reply to the first two is lost."""

    host: Host
    calls = 0

    def start(self, slice: Slice, plans: Sequence[HostPlan], *, timeout: float) -> None:
        self.calls += 1
        command = 'echo x >> "$HOME/starts"; sleep 600'
        self.host.start(command, attempt=plans[0].document["attempt"])
        if self.calls < 3:
            raise Transient("host 0: no answer in time")
        super().start(slice, plans, timeout=timeout)


def test_a_command_that_outlives_ssh_is_started_once(tmp_path: Path, stage: Stage) -> None:
    bucket, metadata = RealBucket(tmp_path / "shed"), MetadataServer()
    hosts = RealAgent(stage.cloud, stage.bucket, stage.faults)
    hosts.host = Host(tmp_path / "host", bucket, metadata)
    try:
        stage.hosts = hosts
        stage.reconciler = stage.new_backend()
        stage.started()
        starts = hosts.host.home / "starts"
        until(starts.exists, "the program started")
        count = starts.read_text().count("x")
        times = "once" if count == 1 else f"{count} times"
        assert row(4) == f"{hosts.calls} calls, the program started {times} and runs on"
    finally:
        hosts.host.close()
        metadata.close()
        bucket.close()
