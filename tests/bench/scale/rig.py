"""The benchmark's stack: a backend process, the emulator with simulated hosts, and the resources that both use."""

import contextlib
import os
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tests.bench.scale.seeded import seed
from tests.support.paths import ROOT
from tpujob.adapters.http.client import RemoteJobs
from tpujob.config import settings as settings_module
from tpujob.config import stack_processes
from tpujob.config.settings import Settings
from tpujob.emulator.client import EmulatorClient
from tpujob.errors import BackendGone, Refused, StoreError, Transient
from tpujob.wiring.client import running_client

#: ten zones of v5e
ZONES = (
    "us-central1-a", "us-south1-a", "us-south1-b", "us-west1-c", "us-west4-a", "us-west4-b", "europe-west4-b",
    "europe-west4-a", "us-east1-b", "us-east1-c",
)  # fmt: skip
TYPE = "v5litepod-4"  #: of one host
_SUBMITTERS = 4
#: jobs that are submitted and do not run yet, at most: what is asked for is the steady state, not the rush
UNDER_WAY = 200
ENOUGH = 0.99  #: of the jobs
#: seconds for which something is asked again that a machine with much else to do is late with
PATIENCE = 600.0
PREPARED = 120.0  #: and in which the others may come to run
#: seconds for a deletion: long enough to be seen. One that was not is confirmed a minute later
DELETION = 3.0
#: seconds between two lines about how far it is
TELLS = 30.0
T = TypeVar("T")
_COUNTED = re.compile(r"tpujob_cloud_calls_total\{(.*)\} (\S+)")
_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Used:
    """The resources that a process has used until now."""

    cpu_s: float
    rss_mib: float
    most_mib: float


def used(pid: int) -> Used:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    status = Path(f"/proc/{pid}/status").read_text()
    kib = {name: int(value) for name, value in re.findall(r"(VmRSS|VmHWM):\s+(\d+) kB", status)}
    cpu = (int(fields[11]) + int(fields[12])) / _TICK
    return Used(cpu, kib["VmRSS"] / 1024, kib["VmHWM"] / 1024)


class Rig:
    api: RemoteJobs
    backend: int  #: its pid, as `cloud`
    cloud: int

    def __init__(self, settings: Settings, parts: Sequence[stack_processes.StackProcess]) -> None:
        self.settings, self._parts = settings, parts
        self._find()
        self.emulator = EmulatorClient.from_ready(settings.ready_file("emulator"))
        self._printed_at = 0.0
        self._random = random.Random(0)  # so that each drill hits other jobs
        self.emulator.do("settings", delete=DELETION)

    def _find(self) -> None:
        api = running_client(self.settings)
        assert api is not None, "the backend is up"
        self.api = api
        pids = {part.name: part.pid or 0 for part in stack_processes.status(self.settings)}
        self.backend, self.cloud = pids["backend"], pids["emulator"]

    def seed(self, jobs: range, report_every: float) -> None:
        """Let these jobs run, as copies of one that does, after those that were submitted. The backend is another
        process then."""
        backend = self._parts[-1]
        stack_processes.down(self.settings, [backend])
        seed(self.settings, range(jobs.start + 1, jobs.stop + 1), ZONES, report_every)
        stack_processes.up(self.settings, self._parts, deadline=PATIENCE)
        self._find()

    def submit(self, jobs: range, seconds: float = PATIENCE) -> int:
        """Submit jobs that never end, from several connections at once. Return how many run, nearly all, or as many as
        came to run in that time."""

        def create(number: int) -> None:
            spec = {
                "name": f"job-{number % 50}",
                "tpu": {"type": TYPE, "zones": [ZONES[number % len(ZONES)]]},
                "run": {"command": "train"},
                "preflight": False,
            }
            self.patiently(lambda: self.api.create(spec, idempotency_key=f"scale-{number}"))

        end = time.monotonic() + seconds
        with ThreadPoolExecutor(_SUBMITTERS) as pool:
            for first in range(jobs.start, jobs.stop, UNDER_WAY):
                last = min(first + UNDER_WAY, jobs.stop)
                list(pool.map(create, range(first, last)))
                enough = last - UNDER_WAY // 2 if last < jobs.stop else ENOUGH * last
                patience = end - time.monotonic()
                if not self.within(patience, lambda n=enough: self.running() >= n, f"{last} run"):
                    break
        return self.running()

    def settled(self, jobs: int) -> None:
        """Wait until nearly all of so many jobs run: of thousands some are always late, or were lost to the load. Then
        wait for a while for the others: a host that falls silent while its job is prepared takes much longer."""
        self.until(lambda: self.running() >= ENOUGH * jobs, f"{ENOUGH:.0%} of {jobs} run")
        self.within(PREPARED, lambda: not {*self.states()} - {"running"}, "all run")

    def running(self) -> int:
        return self.states().get("running", 0)

    def patiently(self, call: Callable[[], T]) -> T:
        """Repeat a call for a while until it is answered: an emulator that has much to do may be late."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                return call()
            except (Transient, BackendGone, Refused, StoreError) as error:
                if time.monotonic() > end:
                    raise
                self._print(f"asking again: {error.message}")
                time.sleep(1.0)

    def _print(self, text: str) -> None:
        """Print the progress from time to time, on standard error."""
        if time.monotonic() - self._printed_at >= TELLS:
            self._printed_at = time.monotonic()
            load = os.getloadavg()[0]
            print(f"  {time.strftime('%H:%M:%S')} load {load:.0f}: {text}", file=sys.stderr)

    def states(self) -> dict[str, int]:
        return self.patiently(lambda: self.api.list({"limit": 1})["states"])

    def until(self, holds: Callable[[], bool], condition: str) -> None:
        """Wait until it holds."""
        if not self.within(PATIENCE, holds, condition):
            raise SystemExit(f"not within {PATIENCE:.0f} s: {condition}; now {self.states()}")

    def within(self, seconds: float, holds: Callable[[], bool], condition: str) -> bool:
        """Return whether it holds in that time."""
        end = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > end:
                return False
            self._print(f"until {condition}: {self.states()}")
            time.sleep(1.0)
        return True

    def calls(self) -> Counter[tuple[str, str]]:
        """Return the number of the backend's calls of the cloud, by service and method."""
        calls = Counter[tuple[str, str]]()
        for labels, count in _COUNTED.findall(self.api.backend_metrics()):
            label = dict(re.findall(r'(\w+)="([^"]*)"', labels))
            calls[label["service"], label["method"]] += int(float(count))
        return calls

    def disturb(self, count: int, do: str, **how: str) -> list[str]:
        """Inject a fault into so many ready slices at the same moment; return their names."""
        ready = [
            slice["name"]
            for slice in self.patiently(self.emulator.status)["slices"]
            if slice["state"] == "READY"
            and slice["gone_in_s"] is None
            and not any(host["silent"] for host in slice["hosts"])
        ]
        chosen = self._random.sample(ready, count)
        steps = [{"at": "0s", "do": do, "target": name, **how} for name in chosen]
        self.emulator.do("schedule", steps=steps)
        return chosen

    def class_a(self) -> int:
        """Return how often hosts and backend have written and listed objects until now."""
        return self.patiently(self.emulator.status)["billed"]["operations"]["A"]


@contextlib.contextmanager
def running(report_every: float, hosts: int) -> Generator[Rig]:
    """Start the stack in a new folder, with so many hosts in each zone."""
    with tempfile.TemporaryDirectory(prefix="tpujob-scale-") as folder:
        for name in [name for name in os.environ if name.startswith("TPUJOB_")]:
            del os.environ[name]
        os.environ |= {
            "TPUJOB_STATE": folder,
            "TPUJOB_USER": "ada",
            "TPUJOB_REPORT_EVERY": f"{report_every:g}",
        }
        settings = settings_module.load()
        os.environ["PYTHONPATH"] = str(ROOT)
        os.environ["SCALE_HOSTS"] = str(hosts)
        parts = tuple(_simulated(part) for part in stack_processes.parts(settings))
        try:
            stack_processes.up(settings, parts)
            yield Rig(settings, parts)
        finally:
            stack_processes.down(settings, parts, grace=120)


def _simulated(part: stack_processes.StackProcess) -> stack_processes.StackProcess:
    """Return the emulator with simulated hosts in place of its own, and the other process as it is."""
    if part.name != "emulator":
        return part
    python, run, _, *rest = part.command
    return stack_processes.StackProcess(
        part.name, (python, run, "tests.bench.scale.emulator", *rest)
    )
