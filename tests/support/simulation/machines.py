"""The ledger of slices: the true state, which the code under test sees only through its ports."""

import math
from dataclasses import dataclass, field

from tests.support.simulation.programs import Program, Run
from tpujob.domain.decide.active import LAUNCH_HEARD
from tpujob.domain.failures.stall import QUIET
from tpujob.domain.model import Endpoint
from tpujob.emulator.cloud.records import Queued

LISTED = 15.0  #: seconds: a decision may rest on a list of reports that is as old as that


@dataclass(eq=False)
class Machine:
    """A slice in the cloud."""

    name: str
    zone: str
    job: str
    k: int
    hosts: int
    created: float
    ours: bool = True
    tpu_slices: int = 1
    preemptible: bool = True
    physical: tuple[str, ...] = ()  #: the machine below each host
    nameless: bool = False  #: whether the metadata server hides the machines
    listed_at: float = 0.0  #: time until which lists lack the slice
    queued: Queued | None = None  #: its record in the model of the cloud
    waits_until: float = 0.0  #: time until which it waits in the cloud's queue
    creates_in: float = 0.0  #: seconds that its hosts take to come up
    fails: bool = False  #: it fails instead
    ready_at: float = math.inf
    fails_at: float = math.inf
    noticed_at: float = math.inf  #: a preemption's notice
    dead_at: float = math.inf  #: time at which its hosts die
    shown_at: float = math.inf  #: time at which the API shows the death
    stopped_at: float = math.inf  #: time at which a person stops the slice
    ends_at: float | None = None  #: when the cloud takes it back as planned; None: at no such time
    suspended_at: float = math.inf  #: time at which it did
    repair: tuple[float, float] = (math.inf, math.inf)
    absent: tuple[float, float] = (0.0, 0.0)  #: time in which looks miss the slice
    left_out: tuple[float, float] = (0.0, 0.0)  #: time in which lists of all slices miss it
    torn: tuple[float, float] = (0.0, 0.0)  #: time in which lists show it without a node
    found: bool = False  #: seen since they did
    survives: int = 0  #: so many deletions are accepted and fail, while looks miss it for a moment
    deleting_at: float = math.inf
    gone_at: float = math.inf
    down: dict[int, float] = field(default_factory=dict)  #: host -> unreachable over SSH until
    lost: dict[int, float] = field(default_factory=dict)  #: host -> time of its death, for ever
    blocked: list[tuple[float, float]] = field(default_factory=list)  #: times without reports
    runs: list[Run] = field(default_factory=list)
    epochs: dict[int, int] = field(default_factory=dict)  #: host -> of the newest job started on it
    #: host -> whether it was wiped for another owner, until the next job is started there
    wiped: dict[int, bool] = field(default_factory=dict)
    #: host -> jobs that have left files there
    left: dict[int, set[str]] = field(default_factory=dict)
    served: list[tuple[str, float]] = field(default_factory=list)  #: jobs that had it, each until

    def billed(self, job: str, now: float) -> float:
        """Return the seconds from ready to gone in which that job had the slice."""
        since, total = self.ready_at, 0.0
        for holder, until in (*self.served, (self.job, self.gone_at)):
            end = min(now, until)
            total += max(0.0, end - since) if holder == job else 0.0
            since = until
        return total

    def up(self, now: float) -> bool:
        """Return whether the slice's hosts live and are ready."""
        return (
            self.ready_at <= now < min(self.dead_at, self.gone_at, self.fails_at, self.stopped_at)
        )

    def reachable(self, host: int, now: float) -> bool:
        """Return whether the host answers over SSH."""
        return (
            self.up(now)
            and host not in self.lost
            and self.down.get(host, 0.0) <= now
            and not self.repair[0] <= now < self.repair[1]
        )

    @property
    def record(self) -> Queued:
        assert self.queued is not None
        return self.queued

    def endpoints(self) -> tuple[Endpoint, ...]:
        return tuple(Endpoint(i, f"10.0.{self.k}.{i}") for i in range(self.hosts))

    @property
    def run(self) -> Run | None:
        """The newest run on the slice."""
        return self.runs[-1] if self.runs else None

    def running(self, now: float) -> list[Program]:
        return [p for run in self.runs for p in run.programs.values() if p.alive(now)]

    def run_of(self, job: str, attempt: int) -> Run | None:
        return next((r for r in self.runs if (r.job, r.attempt) == (job, attempt)), None)

    def healthy(self, now: float, job: str, attempt: int) -> bool:
        """Return whether no fault has hit this attempt."""
        run = self.run_of(job, attempt)
        return (
            run is not None
            and self.up(now)
            and not self.lost
            and now < min(self.noticed_at, self.deleting_at)
            and len(run.programs) == self.hosts
            and now < min(run.hangs, run.spoils)
            and all(p.alive(now) and now < p.silent_at for p in run.programs.values())
            and not any(self._cut_off(p, now) for p in run.programs.values())
            and not self._unheard(run, now)
        )

    def _unheard(self, run: Run, now: float) -> bool:
        """Return whether a host has sent no report in the time in which a report must come."""
        launched = min(p.started for p in run.programs.values())
        return now - launched > LAUNCH_HEARD and any(p.wrote < 0 for p in run.programs.values())

    def _cut_off(self, program: Program, now: float) -> bool:
        """Return whether a host neither reports nor answers over SSH: it looks dead."""
        program.run.advance(now)
        unreachable = max(
            self.down.get(program.host, 0.0), self.repair[1] if self.repair[0] <= now else 0.0
        )
        listed = program.wrote if now - program.wrote > LISTED else program.wrote_before
        return unreachable > now - 60 and now - listed > QUIET
