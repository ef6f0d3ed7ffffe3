"""Simulated hosts under a whole backend: real clients, real SSH, the real report path, and no process of a host."""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.bench.scale.farm import SimulatedFarm
from tests.bench.scale.seeded import PROGRAMS, Programs, seed
from tests.support.callers import ADA
from tests.support.tpu_rig import Cloud
from tests.support.waiting import until
from tpujob.config.settings import load
from tpujob.emulator.cloud.records import Latencies
from tpujob.emulator.control import Control
from tpujob.emulator.farm.farm import free_everywhere
from tpujob.emulator.storage import StorageServer
from tpujob.wiring import backend as wiring

JOBS = 20
ZONES = ("us-central1-a", "us-south1-a", "us-west4-a", "europe-west4-b")


class Lab:
    """Twenty jobs of two hosts each, and the verbs of the stories."""

    def __init__(self, folder: Path) -> None:
        port = free_everywhere()
        self.storage = StorageServer(folder / "storage")
        self.settings = load(folder / "state", env={"USER": "ada", "TPUJOB_REPORT_EVERY": "1"})
        programs = Programs(self.settings.emulator_state / PROGRAMS)
        self.farm = SimulatedFarm(self.storage.url, lambda: port, programs.of)
        # a deletion takes long enough to be seen: else a second look must confirm it, a minute later
        latencies = Latencies(accept=0.01, create=0.03, delete=4.0, suspend=0.02)
        self.cloud = Cloud(self.farm, latencies)
        self.control = Control(self.cloud.world)
        settings = self.settings
        settings.run.mkdir(parents=True)
        settings.emulator_state.mkdir(parents=True)
        tpu, rest = self.cloud.tpu.address, self.cloud.rest().url
        ready = {"tpu": tpu, "tpu_rest": rest, "storage": self.storage.url}
        settings.ready_file("emulator").write_text(json.dumps(ready))
        settings.ready_file("farm").write_text(json.dumps({"ssh_port": port}))
        self.start()
        self.jobs = [self._create(number) for number in range(JOBS)]

    def start(self) -> None:
        self.backend = wiring.backend(self.settings)
        self.api = self.backend.api.acting_for(ADA)
        self.backend.start()

    def _create(self, number: int) -> str:
        tpu = {"type": "v5litepod-8", "zones": [ZONES[number % len(ZONES)]]}
        spec = {"name": f"job-{number}", "tpu": tpu, "run": {"command": "train"}}
        return self.api.create({**spec, "preflight": False, "stop_grace": "1s"})["id"]

    def preempt(self, count: int) -> list[str]:
        """The ids of so many jobs whose slices get the notice at the same moment."""
        jobs = random.Random(7).sample(self.jobs, count)
        steps = [{"at": "0s", "do": "preempt", "target": job, "notice": "0.5s"} for job in jobs]
        status, answer = self.control.perform("POST", "/schedule", {"steps": steps})
        assert status == 200, answer
        return jobs

    def until(self, holds: Callable[[], bool], condition: str) -> None:
        """Wait until it holds; ask rarely, as each question takes time from the backend."""
        until(holds, lambda: f"{condition}; {self.states()}", 120, pause=0.3)

    def states(self) -> dict[str, int]:
        return self.api.list({"limit": 1})["states"]

    def close(self) -> None:
        self.backend.stop()
        self.cloud.stop()
        self.farm.close()
        self.storage.stop()


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    made = Lab(tmp_path_factory.mktemp("lab"))
    yield made
    made.close()


def test_five_of_twenty_jobs_are_preempted_at_once_and_come_back(lab: Lab) -> None:
    lab.until(lambda: lab.states() == {"running": JOBS}, "all run")
    assert lab.farm.count() == (JOBS, sum(lab.api.get(job)["hosts"] for job in lab.jobs))
    jobs = lab.preempt(5)
    lab.until(lambda: lab.states() != {"running": JOBS}, "the backend sees it")
    lab.until(lambda: lab.states() == {"running": JOBS}, "all run again")
    for view in map(lab.api.get, jobs):
        assert [attempt["cause"] for attempt in view["attempts"]] == ["PREEMPTED", None]
    others = set(lab.jobs) - set(jobs)
    assert all(len(lab.api.get(job)["attempts"]) == 1 for job in others)
    assert lab.farm.count()[0] == JOBS, "nothing is left of the five"


def test_a_cancelled_job_is_told_over_ssh_and_leaves_nothing(lab: Lab) -> None:
    lab.until(lambda: lab.states().get("running") == JOBS, "all run")
    lab.api.cancel(lab.jobs[1], release=True)
    lab.until(lambda: lab.api.get(lab.jobs[1])["state"] == "cancelled", "cancelled")
    lab.until(lambda: lab.farm.count()[0] == JOBS - 1, "its slice is gone")


def test_copies_of_a_running_job_run_with_their_reports_after_the_next_start(lab: Lab) -> None:
    lab.until(lambda: lab.states().get("running", 0) >= JOBS - 1, "all run")
    before = lab.states()["running"]
    lab.backend.stop()
    seed(lab.settings, range(JOBS + 1, JOBS + 4), ZONES, 1.0)
    lab.start()
    lab.until(lambda: lab.states()["running"] == before + 3, "the copies run, too")

    def steps() -> list[int | None]:
        return [lab.api.get(f"{number:06d}")["step"] for number in range(JOBS + 1, JOBS + 4)]

    lab.until(lambda: all(steps()), "each reports its own steps")
    assert all(len(lab.api.get(f"{n:06d}")["attempts"]) == 1 for n in range(JOBS + 1, JOBS + 4))
