"""Facts of a job beyond its record: the reconciler's observations, and the accounts of its budgets."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tpujob.domain.capacity import circuits
from tpujob.domain.hardware.prices import PriceList
from tpujob.domain.model import Ignored, Job, Progress, State
from tpujob.domain.observations import NO_FUNDS, Circuit, Funds, Maintenance, Place
from tpujob.engine import JobRuntime
from tpujob.service.money import budgets

#: states in which a job waits for a slice
_ASKING = (State.QUEUED, State.PROVISIONING, State.RELEASING)


@dataclass(frozen=True, slots=True)
class RuntimeInfo:
    #: what its reports say; None: nothing that is newer than the record
    progress: Progress | None = None
    moved_at: float | None = None  #: when its step last changed
    maintenance: Maintenance | None = None  #: what the cloud announces for its hosts
    ignored: Ignored | None = None  #: what this process did not believe of its hosts
    trouble: str = ""  #: what is being retried
    trouble_since: float | None = None
    wait: circuits.Wait | None = None  #: for the hardware that the cloud refused
    funds: Funds = NO_FUNDS
    place: Place | None = None  #: in the queue; None: it does not wait for a slice
    unpaid: str = ""  #: the budget for which it waits, with the arithmetic


NOTHING = RuntimeInfo()


class RuntimeReader:
    """Reads what is in memory; budgets that are shared may be read again from the store."""

    def __init__(
        self,
        live: Mapping[str, JobRuntime],
        circuits: Callable[[], Mapping[str, Circuit]],
        funds: Callable[[Job], Funds],
        prices: PriceList,
        place: Callable[[Job], Place],
    ) -> None:
        """`place`: returns the place of a job in the queue."""
        self._live, self._circuits, self._funds, self._prices = live, circuits, funds, prices
        self._place = place

    def of(self, job: Job, now: float) -> RuntimeInfo:
        live, funds = self._live.get(job.id), self._funds(job)
        going, waits = self.going(job), job.state is State.QUEUED and not job.spec.is_group
        return RuntimeInfo(
            progress=going.progress if going else None,
            moved_at=going.moved_at if going else None,
            maintenance=going.maintenance if going else None,
            ignored=self._ignored(job, now),
            trouble=live.trouble if live else "",
            trouble_since=live.trouble_since if live else None,
            wait=self._wait(job, now),
            place=self._place(job) if waits else None,
            funds=funds,
            unpaid=budgets.waits_for(job, funds, self._prices, now),
        )

    def going(self, job: Job) -> JobRuntime | None:
        """Return what the reports of the running attempt say; None: none runs, or they were not read yet."""
        live = self._live.get(job.id)
        return live if live and live.attempt == _running(job) else None

    def _ignored(self, job: Job, now: float) -> Ignored | None:
        """Return the counts of ignored reports, also while no report was believed."""
        live = self._live.get(job.id)
        of_it = live is not None and live.verified.attempt == _running(job)
        return live.verified.ignored(now) if live and of_it else None

    def _wait(self, job: Job, now: float) -> circuits.Wait | None:
        asks = job.state in _ASKING and circuits.refusals(job)
        return circuits.wait(job, self._circuits(), now) if asks else None


def _running(job: Job) -> int:
    """Return the number of the attempt that runs; -1: none does."""
    return job.attempt.number if job.attempt and job.attempt.ended_at is None else -1
