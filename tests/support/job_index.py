"""The index of jobs over a real store: quickly made jobs, and a reconciler's knowledge of them."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.support.callers import ADA
from tests.support.records import a_slice
from tests.support.stores import an_event
from tests.support.world import Clock
from tpujob.adapters.sqlite import SqliteStore
from tpujob.api import JobPage, ListQuery
from tpujob.domain.access import Principal
from tpujob.domain.hardware.prices import LIST
from tpujob.domain.model import Attempt, DesiredState, Job, Progress, State
from tpujob.domain.observations import NO_FUNDS, Place
from tpujob.domain.spec import parse
from tpujob.engine import JobRuntime
from tpujob.service.job_index import Changes, JobIndex
from tpujob.service.runtime_info import RuntimeReader

SPEC = parse({"name": "mlp", "tpu": {"type": "v4-8"}, "run": {"command": "true"}})


class RecordingStore(SqliteStore):
    """A store that records the names of its reads."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.asked: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        if name in ("walk", "list", "peek", "get", "changes", "newest", "events", "damaged"):
            object.__getattribute__(self, "asked").append(name)
        return object.__getattribute__(self, name)


class Desk:
    """The store, the index over it, and the verbs of the tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store, self.clock = RecordingStore(folder / "jobs.db"), Clock()
        self.live: dict[str, JobRuntime] = {}
        self.index = self.new_index()

    def new_index(self) -> JobIndex:
        """Return the index of a backend that has just started."""
        runtime = RuntimeReader(self.live, dict, lambda _: NO_FUNDS, LIST, lambda _: Place(0))
        self.changes = Changes(self.store)
        return JobIndex(self.store, self.changes, self.clock, runtime)

    def page(self, query: ListQuery | None = None, *, user: Principal = ADA) -> JobPage:
        return self.index.page(user, query or {})

    def ids(self, query: ListQuery | None = None, *, user: Principal = ADA) -> list[str]:
        return [row["id"] for row in self.page(query, user=user)["rows"]]

    def add(self, **fields: Any) -> Job:
        return self.store.create(replace(queued(self.clock.now()), **fields), an_event())

    def change(self, job_id: str, **fields: Any) -> Job:
        job = self.store.get(job_id)
        return self.store.commit(
            replace(job, **fields),
            an_event(),
            expected_version=job.version,
            op_id=f"v{job.version}",
            lease=None,
        )

    def report(self, job_id: str, **progress: Any) -> None:
        """Set the reconciler's knowledge of the job's newest attempt."""
        attempt = self.store.get(job_id).attempt
        assert attempt
        seen = self.live.setdefault(job_id, JobRuntime())
        seen.progress, seen.attempt = Progress(**progress), attempt.number
        seen.moved_at = self.clock.now()


def queued(now: float) -> Job:
    return Job("", "mlp", "ada", SPEC, State.QUEUED, DesiredState.RUN, now, now, owner=ADA.id)


def running(now: float, *, rate: float | None = 2.0, **progress: Any) -> Mapping[str, Any]:
    """Return the fields of a job that runs since then on a slice of so many dollars an hour."""
    held = a_slice(type="v4-8", usd_per_hour=rate, requested_at=now, ready_at=now)
    attempt = Attempt(
        1,
        held.name,
        now,
        running_at=now,
        progress=Progress(**progress),
        first_step=0,
        first_step_at=now,
        progress_at=now,
    )
    return {"state": State.RUNNING, "slices": (held,), "attempts": (attempt,)}
