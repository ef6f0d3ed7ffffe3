"""What `Jobs` is made of, by what it is for: `wiring/service.py` puts it together."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tpujob.api import HostAccess
from tpujob.domain.model import Job, Slice, Suspect
from tpujob.domain.money import Surroundings
from tpujob.domain.observations import NO_FUNDS, Account, Circuit, Funds
from tpujob.domain.placement import EVERYWHERE, Site
from tpujob.engine import Bundles, Counters, JobRuntime, Loop
from tpujob.service.backend import BackendStatus, ProcessFacts
from tpujob.service.job_actions import JobActions
from tpujob.service.job_index import Changes, JobIndex, Records
from tpujob.service.logs import Logs
from tpujob.service.metrics import Curves
from tpujob.service.money.estimate import Estimates
from tpujob.service.overview import Overview, Quotas
from tpujob.service.runtime_info import RuntimeReader
from tpujob.service.submission import Offered, Submission, types_unknown
from tpujob.service.submission.secrets import OwnSecrets


@dataclass(frozen=True, slots=True)
class HostReach:
    """How hosts are reached and believed; see `Hosts`."""

    access: Callable[[Slice, int, str, str], HostAccess]  #: lets the holder of a public key in
    key: Callable[[Sequence[str]], str]
    trust: Callable[[Slice], str] = lambda _: ""  #: why the keys of a slice's hosts are trusted


@dataclass(frozen=True, slots=True)
class EngineState:
    """What the control loop knows beyond the records of jobs."""

    loop: Loop
    live: Mapping[str, JobRuntime]
    #: the offers that were refused lately, for all jobs
    circuits: Callable[[], Mapping[str, Circuit]] = dict
    #: what budgets depend on beside a job's record
    funds: Callable[[Job], Funds] = lambda _: NO_FUNDS
    accounts: Callable[[], Sequence[Account]] = tuple  #: of the budgets that are shared
    counters: Counters = field(default_factory=Counters)


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """What the context says."""

    site: Site = EVERYWHERE
    #: what the context adds to the bill
    around: Surroundings = field(default_factory=Surroundings)
    owner: str = "local"  #: what slices are labelled with
    offered: Offered = types_unknown  #: what a zone lists
    quotas: Quotas | None = None  #: what the project may hold; None: there is none to read
    process: ProcessFacts = field(default_factory=ProcessFacts)
    word: Callable[[], str] = str  #: draws one for the workdir of each new job


@dataclass(frozen=True, slots=True)
class Reading:
    """Where answers come from."""

    changes: Changes
    records: Records
    knowledge: RuntimeReader
    index: JobIndex
    logs: Logs
    curves: Curves
    overview: Overview
    status: BackendStatus
    suspects: Callable[[], Sequence[Suspect]]  #: machines, as they are recorded


@dataclass(frozen=True, slots=True)
class Changing:
    """What checks, stores and changes jobs."""

    submission: Submission
    secrets: OwnSecrets
    bundles: Bundles
    estimates: Estimates
    actions: JobActions
    announce: Callable[[Job], None]  #: a job was changed: tell the loop and those who follow
