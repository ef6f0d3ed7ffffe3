"""What was seen of the world, in our words. Data only: what follows from it is decided elsewhere."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from tpujob.domain.hardware.prices import LIST, PriceList
from tpujob.domain.model import (
    Cause,
    DesiredState,
    Endpoint,
    Ignored,
    Job,
    Progress,
    Slice,
    State,
    Unreached,
    Verdict,
    Watch,
)
from tpujob.errors import Scope
from tpujob.protocol import Phase


class SliceState(StrEnum):
    """The state that a cloud reports for a slice, in our words; each adapter has a table from its own."""

    WAITING = "waiting"  #: in the cloud's queue
    CREATING = "creating"
    READY = "ready"
    REPAIRING = "repairing"  #: restarts or maintenance: waited out
    PREEMPTED = "preempted"
    FAILED = "failed"  #: the request ended in an error
    STOPPED = "stopped"  #: stopped or suspended by a person
    DELETING = "deleting"

    @property
    def lost(self) -> bool:
        """Whether the slice can carry no program any more."""
        return self in (SliceState.PREEMPTED, SliceState.FAILED, SliceState.STOPPED)


@dataclass(frozen=True, slots=True)
class Present:
    state: SliceState
    endpoints: tuple[Endpoint, ...] = ()
    detail: str = ""  #: the cloud's own words
    cause: Cause | None = None  #: for FAILED: what the error means
    scope: Scope = ""  #: for FAILED: where it holds
    #: the cloud is taking it down by itself; a deletion should wait until that is over
    suspending: bool = False


@dataclass(frozen=True, slots=True)
class Absent:
    """A poll and a list agree that it does not exist."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Could not be observed. Nothing is concluded from it."""

    error: str


SliceSeen = Present | Absent | Unknown


@dataclass(frozen=True, slots=True)
class Maintenance:
    """What the cloud announces for a host, perhaps days ahead. Shown, never acted upon: a notice comes before it."""

    starts: float
    ends: float | None = None
    latest: float | None = None  #: until when the start may be moved
    kind: str = ""  #: in the cloud's words, as is the status
    status: str = ""


@dataclass(frozen=True, slots=True)
class HostReport:
    """What the agent on a host reports about its attempt, and the report's age by the storage's clock."""

    host: int
    attempt: int
    phase: Phase
    age: float  #: seconds since it was written
    exit_code: int | None = None  #: set when phase is `exited`; negative: killed by that signal
    error: str = ""  #: what the agent could not do, in one line
    error_cause: Cause | None = None
    late: bool = False  #: the error is that something was not done in time; nothing was found wrong
    unreached: Unreached | None = None  #: the error is that this host got no answer
    #: the program got a signal to stop, or was killed, before it ended
    signalled: bool = False
    ran: float | None = None  #: seconds from its program's start to its end; None: it has not ended
    notice: str = ""  #: `preempted` or `maintenance`, from the metadata server
    maintenance: Maintenance | None = None  #: announced for later
    saved_in: float | None = None  #: seconds from the notice to the commit of a newer checkpoint
    progress: Progress = field(default_factory=Progress)
    idle: float | None = None  #: seconds without a sign of progress, by the host's own clock
    looks: int = 0  #: how often the agent looked in that time
    verdict: Verdict | None = None
    physical: str = ""  #: the machine below the host; empty: not known
    #: of what the program runs with, by name: python, jax, jaxlib, libtpu
    versions: Mapping[str, str] = field(default_factory=dict[str, str])
    #: lines that the agent kept of a bad end or of a stall; read only when they are needed
    evidence: tuple[str, ...] = ()
    seq: int = 0  #: grows with each report of a host
    proven: str = ""  #: the hash of the evidence, which was signed with the report; or OF_SLICE


@dataclass(frozen=True, slots=True)
class Silence:
    """How long a host has not answered over SSH."""

    seconds: float
    probes: int  #: how often it was asked in that time


@dataclass(frozen=True, slots=True)
class Circuit:
    """An offer that was refused: no job asks for it before `until`, then one job at a time."""

    cause: Cause  #: STOCKOUT or QUOTA
    refusals: int  #: in a row
    since: float  #: of the first of them
    until: float
    opened_at: float = 0.0  #: of the last of them
    asked_at: float = 0.0  #: when a job last asked for it half open


@dataclass(frozen=True, slots=True)
class Account:
    """What was spent of one budget at one moment, in whole micro-dollars. A grant's part is not in it."""

    whose: str  #: `job`, `user ada` or `project`
    limit: int
    used: int
    #: what it still costs to save and to release every slice that is there or asked for
    reserve: int
    burn: int  #: an hour, at that moment
    at: float
    unpriced: str = ""  #: a slice that is billed at an unknown price
    until: float | None = None  #: when the next period begins; None: never


@dataclass(frozen=True, slots=True)
class Funds:
    """What the record of a job does not tell of the money that it may spend, as it depends on other jobs."""

    granted: frozenset[str] = frozenset()  #: its slices that a grant pays for, by name
    accounts: tuple[Account, ...] = ()  #: of the budgets that it shares


#: of a job that shares nothing
NO_FUNDS = Funds()


class ReasonKind(StrEnum):
    """Why a job requests no slice now. A table in `describe` has the sentence of each."""

    DEPENDENCY = "dependency"  #: it waits for other jobs
    HELD = "held"
    NOT_BEFORE = "not_before"
    RETRY = "retry"  #: it was refused, or interrupted, and pauses
    GROUP = "group"  #: as many elements of its group run as may
    RUNNING = "running"  #: its owner's jobs
    CHIPS = "chips"  #: its owner's chips
    QUOTA = "quota"  #: the project's chips
    RESERVED = "reserved"  #: the quota is kept free for a job that needs more of it
    ORDER = "order"  #: others come first
    REQUESTED = "requested"  #: requests of others wait in the cloud's queue
    REFUSED = "refused"  #: the cloud refused it lately
    HANDED_ON = "handed_on"  #: it gets the slice of a job whose program has ended


@dataclass(frozen=True, slots=True)
class Reason:
    """Fields that a kind does not need are empty."""

    kind: ReasonKind
    jobs: tuple[str, ...] = ()  #: ids of the jobs that it is about, a few of them
    count: int = 0  #: of these jobs, or what is used of the limit
    limit: int = 0
    what: str = ""  #: the type, quota pool, person or condition
    how: str = ""  #: how the job ended that was waited for
    until: float | None = None


class Order(NamedTuple):
    """What determines the place of a job in the order: the first of these in which two jobs differ decides."""

    band: int  #: index of `BANDS`, which counts
    raised: bool  #: it waited for so long that the next higher one counts
    share_used: float  #: micro-dollars of its share, for its weight, with what is charged for jobs before it
    owner_used: float  #: the same of its owner
    rank: int
    since: float  #: when it could have started


class Place(NamedTuple):
    """What the plan says of one job that waits for a slice."""

    position: int  #: among the jobs that may start, from 1; 0: it waits for something else first
    #: what it may request now, by `circuits.key` of a stockout
    ask: frozenset[str] = frozenset()
    reasons: tuple[Reason, ...] = ()  #: why it may request nothing, the binding one first
    #: the job of an edge that cannot be met any more, and how that ended; None: there is none
    broken: Reason | None = None
    order: Order | None = None  #: None: it waits for something else first


@dataclass(frozen=True, slots=True)
class HandOver:
    """What may be done with a slice whose program has ended, instead of deleting it."""

    heir: str = ""  #: id of the job that it can be handed on to; empty: there is none
    keep: float = 0.0  #: seconds for which it may be kept for one that comes later


NO_HAND_OVER = HandOver()


@dataclass(frozen=True, slots=True)
class Observation:
    """What could be observed of a job from `at` on, and how fresh its parts are. Left out: as fresh as can be."""

    slices: Mapping[str, SliceSeen] = field(default_factory=dict[str, SliceSeen])  #: by slice name
    reports: tuple[HostReport, ...] | Unknown = ()  #: of the newest attempt only
    disturbed: bool = False  #: where hosts report, others have written lately
    ignored: Ignored | None = None  #: what was not believed there; None: nothing
    readable_for: float = 0.0  #: seconds for which reports could be read without a break
    #: seconds since every host had taken the start of the attempt; None: not that anybody knows
    launched_for: float | None = None
    silent: Mapping[int, Silence] = field(default_factory=dict[int, Silence])  #: over SSH, by host
    abandoned: frozenset[int] = frozenset()  #: silent hosts that know that their agents have died
    watch: Watch | None = None  #: to be remembered; None: there is word of every host
    report_every: float = 15.0  #: seconds between two reports of a host
    leaving: frozenset[str] = frozenset()  #: slices that were seen being deleted, by name
    #: by `circuits.key`
    circuits: Mapping[str, Circuit] = field(default_factory=dict[str, Circuit])
    prices: PriceList = LIST  #: at which a slice is asked for
    funds: Funds = NO_FUNDS
    place: Place | None = None  #: of a job that waits; None: it may request what it may have
    hand_over: HandOver = NO_HAND_OVER  #: of a job whose program has ended
    at: float = 0.0  #: when observing began: the moment of a decision
    took: float = 0.0  #: seconds that all of it took
    #: slices as a list showed them some seconds ago, by name; each of the others was polled by name
    listed: frozenset[str] = frozenset()
    #: the reports have the evidence of failed hosts, as far as it could be read
    evidence: bool = True
    #: of a group: its elements that there are, by state; the names of some that failed
    elements: Mapping[State, int] = field(default_factory=dict[State, int])
    failed: tuple[str, ...] = ()
    behind: bool = False  #: of a group: some had ended when it was resumed, and stand still
    group_wish: DesiredState = DesiredState.RUN  #: of an element: what its group asks of it

    def of(self, one: Slice) -> SliceSeen:
        return self.slices.get(one.name, Unknown("not observed"))

    def serving(self, job: Job) -> SliceSeen:
        """The job's serving slice; Absent when it has none."""
        return self.of(job.slice) if job.slice else Absent()

    @property
    def heard(self) -> tuple[HostReport, ...]:
        """The reports, as far as they could be read."""
        return () if isinstance(self.reports, Unknown) else self.reports
