"""Several jobs side by side: their curves, what differs between them, and their newest numbers."""

from collections.abc import Sequence

from tpujob.api import CurvesView, ListQuery, RunView
from tpujob.domain import access
from tpujob.domain.access import Principal
from tpujob.domain.model import Job
from tpujob.domain.progress import job_progress, with_live
from tpujob.errors import BadRequest
from tpujob.ports import Clock, Store
from tpujob.service.curves import Curves
from tpujob.service.job_index import JobIndex
from tpujob.service.run_names import name_runs
from tpujob.service.runtime_info import RuntimeReader

MAX_RUNS = 24  #: as many as colours and dashes can tell apart


class Runs:
    def __init__(
        self, store: Store, clock: Clock, index: JobIndex, runtime: RuntimeReader, curves: Curves
    ) -> None:
        self._store, self._clock, self._index = store, clock, index
        self._runtime, self._curves = runtime, curves

    def curves(self, jobs: Sequence[Job], caller: Principal) -> CurvesView:
        """Return the curves of the jobs, a group standing for its elements. Raises BadRequest without a job."""
        if not jobs:
            raise BadRequest("no job was named", hint="such as /compare?jobs=000041,000042")
        now = self._clock.now()
        every, left_out = self._with_elements(jobs, caller)
        shown = [
            with_live(job, self._runtime.of(job, now).progress)
            for job in [*every.values()][:MAX_RUNS]
        ]
        private = {job.id for job in shown if access.sees_all(caller, job.owner)}
        named = name_runs(shown, private)
        charts, unread, why = self._curves.side_by_side(shown)
        return CurvesView(
            runs=[
                _run(job, label, values)
                for job, label, values in zip(shown, named.labels, named.values, strict=True)
            ],
            keys=named.keys,
            charts=charts,
            left_out=left_out + len(every) - len(shown),
            unread=unread,
            why=why,
        )

    def _with_elements(self, jobs: Sequence[Job], caller: Principal) -> tuple[dict[str, Job], int]:
        """Return the jobs by id, of a group its first elements instead, and how many elements are left out."""
        every: dict[str, Job] = {}
        left_out = 0
        for job in jobs:
            if not job.spec.is_group:
                every[job.id] = job
                continue
            query = ListQuery(
                group=job.id, order="id", reverse=True, limit=MAX_RUNS, fields=["name"]
            )
            page = self._index.page(caller, query)
            every |= {row["id"]: self._store.peek(row["id"]) for row in page["rows"]}
            left_out += page["matching"] - len(page["rows"])
        return every, left_out


def _run(job: Job, label: str, values: dict[str, str]) -> RunView:
    has = job_progress(job)
    loss = {"loss": has.loss} if has.loss is not None or has.nonfinite else {}
    return RunView(
        id=job.id,
        name=job.name,
        user=job.user,
        state=str(job.state),
        label=label,
        values=values,
        step=has.step,
        steps=has.steps,
        attempts=len(job.attempts),
        metrics={**loss, **has.metrics},
    )
