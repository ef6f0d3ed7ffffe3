"""Observations of the cloud, of hosts and of the queue, on which decisions are based. Data only."""

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
    """The state of a slice, to which each adapter maps the states of its cloud."""

    WAITING = "waiting"  #: in the cloud's queue
    CREATING = "creating"
    READY = "ready"
    REPAIRING = "repairing"  #: restart or maintenance; decisions wait for its end
    PREEMPTED = "preempted"
    FAILED = "failed"  #: the request ended in an error
    STOPPED = "stopped"  #: stopped or suspended by a person
    DELETING = "deleting"

    @property
    def lost(self) -> bool:
        """Whether no program can run on the slice any more."""
        return self in (SliceState.PREEMPTED, SliceState.FAILED, SliceState.STOPPED)


@dataclass(frozen=True, slots=True)
class Present:
    state: SliceState
    endpoints: tuple[Endpoint, ...] = ()
    detail: str = ""  #: the cloud's text
    cause: Cause | None = None  #: of FAILED
    scope: Scope = ""  #: of FAILED
    limit: int | None = None  #: of FAILED: of the quota, in its own unit
    #: the cloud is suspending it; a deletion should wait until that has ended
    suspending: bool = False
    #: by the cloud's record: when the newest of its nodes was created, or, without nodes, its request; 0: unknown
    created_at: float = 0.0
    #: by the cloud's record: when it takes the slice back; None: it tells no time
    ends_at: float | None = None


@dataclass(frozen=True, slots=True)
class Absent:
    """The slice does not exist, by a poll and by a list."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The slice could not be observed. No decision may follow from that."""

    error: str


SliceSeen = Present | Absent | Unknown


@dataclass(frozen=True, slots=True)
class Maintenance:
    """A maintenance announced for a host, perhaps days ahead. It is only shown: decisions wait for the notice."""

    starts: float
    ends: float | None = None
    latest: float | None = None  #: latest possible start
    kind: str = ""  #: the cloud's text, like `status`
    status: str = ""


@dataclass(frozen=True, slots=True)
class HostOutputs:
    """The output folders of a host."""

    restored: int  #: files of an earlier attempt that it got
    left_out: int  #: files that are not kept
    empty: tuple[str, ...]  #: folders without a file, although there should be one


@dataclass(frozen=True, slots=True)
class OutputLine:
    """A line of a program's output near its end, or of the stacks of a hang. Fields: `protocol.report.EvidenceLine`."""

    text: str
    ago: float = 0.0
    later: int = 0
    stepped: bool = False
    part: str = ""


@dataclass(frozen=True, slots=True)
class HostReport:
    """An agent's report about its attempt, with the report's age by the storage's clock."""

    host: int
    attempt: int
    phase: Phase
    age: float  #: seconds since the report was written
    exit_code: int | None = None  #: set in the phase `exited`; negative: number of the signal
    error: str = ""  #: the agent's own failure, in one line
    error_cause: Cause | None = None
    late: bool = False  #: the error is a time limit that passed; no fault was found
    unreached: Unreached | None = None  #: the error is a connection without an answer
    #: the program got a signal to stop, or was killed, before it ended
    signalled: bool = False
    ran: float | None = None  #: seconds from the program's start to its end; None: it runs
    notice: str = ""  #: `preempted` or `maintenance`, from the metadata server
    maintenance: Maintenance | None = None  #: announced for a later time
    saved_in: float | None = None  #: seconds from the notice to the commit of a newer checkpoint
    progress: Progress = field(default_factory=Progress)
    checkpoints: tuple[int, ...] = ()  #: the newest committed ones, at most MAX_CHECKPOINTS
    outputs: HostOutputs | None = None  #: None: none are kept, or they are not restored yet
    idle: float | None = None  #: seconds without progress, by the host's clock
    looks: int = 0  #: number of checks by the agent in that time
    verdict: Verdict | None = None
    physical: str = ""  #: the physical machine; empty: unknown
    #: versions by name: python, jax, jaxlib, libtpu
    versions: Mapping[str, str] = field(default_factory=dict[str, str])
    last_error: str = ""  #: an error in the last lines of a program that ended with 0
    #: last lines before a failure or a stall; read only when a decision needs them
    evidence: tuple[OutputLine, ...] = ()
    kernel_kills: int = 0  #: processes of the host that the kernel killed for want of memory
    seq: int = 0  #: increases with each report of a host
    proven: str = ""  #: the signed hash of the evidence


@dataclass(frozen=True, slots=True)
class Silence:
    """The time for which a host has not answered over SSH."""

    seconds: float
    probes: int  #: number of probes in that time


@dataclass(frozen=True, slots=True)
class Circuit:
    """A refused offer: no job requests so much of it, or more, before `until`; after that, one job at a time."""

    pool: str  #: what the refused request would have taken up, by `circuits.names`
    cause: Cause  #: STOCKOUT or QUOTA
    refusals: int  #: in a row
    since: float  #: time of the first refusal
    until: float
    opened_at: float = 0.0  #: time of the last refusal
    asked_at: float = 0.0  #: time of the last request while half open
    chips: int = 0  #: of the least request that it concerns
    what: str = ""  #: the newest refused request: `v4-64 spot in us-central2-b`
    #: chips of the quota that the cloud named, if the circuit is of what exceeds it; else None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Account:
    """The state of one budget at one moment, in whole micro-dollars, without what grants pay for."""

    whose: str  #: `job`, `user ada` or `project`
    limit: int
    used: int
    #: cost of saving on and releasing every slice that exists or is requested
    reserve: int
    burn: int  #: per hour, at that moment
    at: float
    unpriced: str = ""  #: name of a slice that is billed at an unknown price
    until: float | None = None  #: start of the next period; None: never
    #: ids of jobs whose records cannot be read: what they have spent is not known
    unreadable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Funds:
    """The money that a job may spend, as far as it depends on other jobs."""

    granted: frozenset[str] = frozenset()  #: names of its slices that a grant pays for
    accounts: tuple[Account, ...] = ()  #: of its shared budgets


#: of a job without grants and shared budgets
NO_FUNDS = Funds()


class UsualWait(NamedTuple):
    """Seconds from a request to its slice, at one place."""

    median: float
    ninetieth: float  #: 90 of 100 requests took no longer


class ReasonKind(StrEnum):
    """The reason for which a job requests no slice now. `capacity/waiting_reasons.py` has the sentences."""

    DEPENDENCY = "dependency"  #: it waits for other jobs
    HELD = "held"
    NOT_BEFORE = "not_before"
    RETRY = "retry"  #: it pauses after a refusal or an interruption
    GROUP = "group"  #: its group's limit of running elements
    RUNNING = "running"  #: its owner's limit of running jobs
    CHIPS = "chips"  #: its owner's limit of chips
    QUOTA = "quota"  #: the project's quota of chips
    RESERVED = "reserved"  #: the quota is kept free for a job that needs more of it
    ORDER = "order"  #: other jobs come first
    REQUESTED = "requested"  #: requests of other jobs wait in the cloud's queue
    REFUSED = "refused"  #: the cloud refused as much of its offer recently, or less
    TOO_BIG = "too_big"  #: it needs more chips than the project's quota has, or each owner's limit
    HANDED_ON = "handed_on"  #: it receives the slice of a job whose program has ended
    LARGER = "larger"  #: a larger slice of an elastic job is worth its wait
    GIVEN_WAY = "given_way"  #: jobs of low priority stop, or have stopped, for it


_K = ReasonKind
#: waits for the owner's other jobs, or for a slice that is to be the job's own: not for capacity, and not overtaken
OWN = (_K.HANDED_ON, _K.GROUP, _K.RUNNING, _K.CHIPS)


PER_OWNER = "owner"


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason with its facts. Fields that a kind does not need are empty."""

    kind: ReasonKind
    jobs: tuple[str, ...] = ()  #: ids of some of the jobs concerned
    count: int = 0  #: number of those jobs, or the used part of the limit
    limit: int = 0  #: for chips that are kept free: seconds for which this job may need some
    what: str = ""  #: the type, quota pool, person or condition
    how: str = ""  #: end of the other job of a dependency, cause of a refusal, or PER_OWNER for a limit of each owner
    until: float | None = None
    #: time of the first refusal; when a limit was learned; when chips begin to be kept free for the job
    since: float | None = None


class Order(NamedTuple):
    """The sort key of the queue: the first field in which two jobs differ decides."""

    band: int  #: index in `BANDS` that counts
    raised: bool  #: after a long wait, the next higher band counts
    share_used: (
        float  #: micro-dollars used by its account, divided by its weight, with jobs ahead of it
    )
    owner_used: float  #: the same for its owner, in all accounts
    rank: int
    since: float  #: earliest time at which it could have started


class Place(NamedTuple):
    """The plan for one job that waits for a slice."""

    position: int  #: among the jobs that may start, from 1; 0: it may not start yet
    #: offers that it may request now, by `circuits.key` of a stockout
    ask: frozenset[str] = frozenset()
    reasons: tuple[Reason, ...] = ()  #: why it may request none, the binding one first
    #: a dependency that cannot be met any more, with the end of the other job
    broken: Reason | None = None
    order: Order | None = None  #: None: it may not start yet


class GiveWay(NamedTuple):
    """The request for which a job of low priority gives up its slice."""

    to: str  #: id of the job that makes it
    shape: str  #: of the slice, as `Wanted.shape`


@dataclass(frozen=True, slots=True)
class HandOver:
    """The alternatives to deleting a slice whose program has ended, or that lost a race."""

    heir: str = ""  #: id of the job that can receive the slice; empty: none
    keep: float = 0.0  #: seconds for which the slice may be kept for a later job
    #: by the name of a slice that lost a race: id of the job that can receive it
    losers: Mapping[str, str] = field(default_factory=dict[str, str])


NO_HAND_OVER = HandOver()


@dataclass(frozen=True, slots=True)
class Observation:
    """An observation of a job that began at `at`, with the age of its parts. Parts without an age are fresh."""

    slices: Mapping[str, SliceSeen] = field(default_factory=dict[str, SliceSeen])  #: by slice name
    reports: tuple[HostReport, ...] | Unknown = ()  #: of the newest attempt only
    disturbed: bool = False  #: others recently wrote in the place of the reports
    ignored: Ignored | None = None  #: counts of rejected reports; None: no report was rejected
    readable_for: float = 0.0  #: seconds for which every poll could read the reports
    #: seconds since every host had accepted the start of the attempt; None: unknown
    launched_for: float | None = None
    silent: Mapping[int, Silence] = field(default_factory=dict[int, Silence])  #: over SSH, by host
    #: seconds since silent hosts last answered over SSH, by host
    answered: Mapping[int, float] = field(default_factory=dict[int, float])
    #: silent hosts that answer SSH and have lost their agents
    agents_died: frozenset[int] = frozenset()
    watch: Watch | None = None  #: to be stored; None: every host reports
    report_every: float = 15.0  #: seconds between two reports of a host
    deleting: frozenset[str] = frozenset()  #: names of slices that were seen being deleted
    #: when an earlier poll of this process last saw each slice alive: waiting, being created, or in use
    last_seen: Mapping[str, float] = field(default_factory=dict[str, float])
    #: when a poll of this process first saw each slice preempted
    preempted: Mapping[str, float] = field(default_factory=dict[str, float])
    #: by `circuits.key`
    circuits: Mapping[str, Circuit] = field(default_factory=dict[str, Circuit])
    prices: PriceList = LIST  #: for the rate of a requested slice
    funds: Funds = NO_FUNDS
    place: Place | None = None  #: of a waiting job; None: it may request any of its offers
    hand_over: HandOver = NO_HAND_OVER  #: of a job whose program has ended, or that has won a race
    gives_way_to: str = ""  #: id of the job that needs its chips; empty: it keeps them
    #: what a job in PROVISIONING may request beside, by `circuits.key` of a stockout
    race: frozenset[str] = frozenset()
    #: what is known of the waits for slices, by `waits.place_of`: seconds of half of them, and of nine in ten
    waits: Mapping[tuple[str, int], UsualWait] = field(
        default_factory=dict[tuple[str, int], UsualWait]
    )
    at: float = 0.0  #: start of the observation, which is the time of the decision
    took: float = 0.0  #: duration of the observation in seconds
    #: names of slices whose state is from a list of some seconds ago; the others were polled by name
    listed: frozenset[str] = frozenset()
    #: the reports contain the evidence of failed hosts, as far as it could be read
    evidence: bool = True
    #: of a group: number of its elements by state
    elements: Mapping[State, int] = field(default_factory=dict[State, int])
    failed: tuple[str, ...] = ()  #: of a group: names of some failed elements
    behind: bool = False  #: of a resumed group: some elements that had ended are not resumed yet
    group_desired: DesiredState = DesiredState.RUN  #: of an element: the request of its group

    def of(self, slice: Slice) -> SliceSeen:
        return self.slices.get(slice.name, Unknown("not observed"))

    def serving(self, job: Job) -> SliceSeen:
        """Return the state of the job's serving slice; Absent if it has none."""
        return self.of(job.slice) if job.slice else Absent()

    @property
    def heard(self) -> tuple[HostReport, ...]:
        """The reports; empty if they could not be read."""
        return () if isinstance(self.reports, Unknown) else self.reports
