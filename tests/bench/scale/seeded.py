"""Running jobs without their way there: each is a copy of one that came to run, with a slice and hosts of its own.

Ten thousand submissions and starts take hours on a busy machine; the copies take minutes, and the backend finds them as
after a restart.
"""

import json
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from tests.bench.scale.host import Attempt
from tpujob.config.settings import Settings
from tpujob.domain.events import Event, EventKind
from tpujob.domain.host import keys
from tpujob.domain.host.plan import plans
from tpujob.domain.model import Job, Slice, State
from tpujob.domain.observations import Present, SliceState
from tpujob.engine.counters import Counters
from tpujob.errors import Transient
from tpujob.ports import Hosts, Slices
from tpujob.protocol import Plan
from tpujob.wiring.world import world

PROGRAMS = "seeded.json"  #: file in the emulator's state
_CREATORS = 8  #: slices that are created at once
_PATIENCE = 1800.0  #: seconds in which all of them become ready
_TIMEOUT = 120.0  #: seconds for a call: the emulator has much to do
_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA{:012d} seeded"  #: nobody logs in with it


def seed(settings: Settings, numbers: range, zones: Sequence[str], report_every: float) -> None:
    """Make a running job of each number, which is that of its id, while the emulator is up and the backend is not.
    Raises SystemExit when the slices do not become ready."""
    file = settings.emulator_state / PROGRAMS
    adapters = world(settings, Counters())
    try:
        [provider] = adapters.providers.values()
        model = next(job for job in adapters.store.list(live=True) if job.state is State.RUNNING)
        jobs = {f"{n:06d}": _copy(model, f"{n:06d}", zones[n % len(zones)]) for n in numbers}
        programs = {
            _slice(job).name: _programs(job, report_every, adapters.hosts) for job in jobs.values()
        }
        new = file.with_suffix(".new")
        new.write_text(json.dumps(programs))
        new.replace(file)
        seen = _slices_of(provider.slices, jobs)
        made = [
            replace(job, slices=(replace(_slice(job), endpoints=seen[_slice(job).name].endpoints),))
            for job in jobs.values()
        ]
        event = Event(EventKind.CREATED, time.time(), State.RUNNING, "a copy of a job that runs")
        stored = adapters.store.create_many([(job, event) for job in made], key="")
        assert [job.id for job in stored] == [*jobs], "ids go on from those that were submitted"
    finally:
        adapters.close()


class Programs:
    """What `seed` has written for the hosts, in the emulator's process."""

    def __init__(self, file: Path) -> None:
        self._file, self._written_at = file, 0.0
        self._of: dict[str, list[tuple[Plan, str]]] = {}

    def of(self, slice: str) -> list[Attempt]:
        """Return the program of each host of the slice; none if it was not seeded."""
        written_at = self._file.stat().st_mtime if self._file.exists() else 0.0
        if written_at != self._written_at:
            self._of, self._written_at = json.loads(self._file.read_text()), written_at
        return [Attempt(plan, key, time.time()) for plan, key in self._of.get(slice, ())]


def _copy(model: Job, id: str, zone: str) -> Job:
    old, attempt = _slice(model), model.attempts[-1]
    slice = replace(old, name=old.name.replace(model.id, id), zone=zone)
    return replace(model, id=id, slices=(slice,), attempts=(replace(attempt, slice=slice.name),))


def _slice(job: Job) -> Slice:
    return job.slices[-1]


def _programs(job: Job, report_every: float, hosts: Hosts) -> list[tuple[object, str]]:
    key = hosts.key(keys.of_attempt(job))
    return [(plan.document, key) for plan in plans(job, report_every=report_every)]


def _slices_of(slices: Slices, jobs: Mapping[str, Job]) -> Mapping[str, Present]:
    """Create the slices of all jobs; return them once they are ready."""

    end = time.monotonic() + _PATIENCE

    def create(job: Job) -> None:
        while True:
            try:
                return slices.create(
                    _slice(job),
                    job_id=job.id,
                    public_key=_KEY.format(int(job.id)),
                    timeout=_TIMEOUT,
                )
            except Transient:
                if time.monotonic() > end:
                    raise

    with ThreadPoolExecutor(_CREATORS) as pool:
        list(pool.map(create, jobs.values()))
    zones = {_slice(job).zone for job in jobs.values()}
    while time.monotonic() < end:
        survey = slices.survey(zones, timeout=_TIMEOUT).seen
        ready = {
            name: seen
            for name, seen in survey.items()
            if isinstance(seen, Present) and seen.state is SliceState.READY
        }
        if {_slice(job).name for job in jobs.values()} <= {*ready}:
            return ready
        time.sleep(2.0)
    raise SystemExit(f"not within {_PATIENCE:.0f} s: {len(jobs)} slices are ready")
