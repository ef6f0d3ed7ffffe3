"""Entries of the queue: the facts of each job that the plan needs, computed once for each version of the record.
Pure."""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import inf

from tpujob.domain.capacity import circuits, datasets, deadline, elastic, giving_way, race
from tpujob.domain.capacity.offers import Offer
from tpujob.domain.capacity.run_lengths import Lengths, usual
from tpujob.domain.capacity.usage import rate
from tpujob.domain.hardware import accelerators
from tpujob.domain.hardware.generations import at_provider
from tpujob.domain.hardware.prices import LIST, PriceList
from tpujob.domain.hardware.pricing import find_pricing
from tpujob.domain.model import Cause, DesiredState, Edge, Job, Slice, State
from tpujob.domain.spec.queue import BANDS

#: states in which a job holds a slice, or requests one
HOLDS = frozenset(
    {State.PROVISIONING, State.PREPARING, State.RUNNING, State.HOLDING, State.RELEASING}
)

#: minimum seconds in RELEASING for which the slice of an ended program may be handed on
HANDED_WITHIN = 60.0
#: seconds within which a slice that is being released is expected to be gone
RELEASED_WITHIN = 60.0
#: causes of an end that do not blame the hosts
_HARMLESS = frozenset(
    {None, Cause.CRASH, Cause.RESTART, Cause.OOM_HBM, Cause.BAD_SPEC, Cause.SETUP}
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """One way to get a slice, as the plan compares it. What equals the slice of another job may be handed on."""

    type: str
    shape: str  #: type, zone, pricing and provider: jobs of one shape are served strictly in order
    pool: str  #: the quota that it uses, by `QueueSettings.quota`
    circuits: tuple[str, ...]  #: what it takes up, by `circuits.names`
    chips: int
    system_image: str = ""
    provider: str = ""


@dataclass(frozen=True, slots=True)
class QueueEntry:
    id: str
    number: int
    owner: str
    state: State
    since: float  #: when it began to wait: its submission, its resume or its release from a hold
    waiting_since: float  #: when it last had a slice, if that is later: see the function
    acted_at: float = 0.0  #: when a person last resumed or released it
    share: str = ""
    band: int = 1  #: 0 is the highest
    rank: int = 0
    held_by: str = ""  #: empty: it is not held
    not_before: float | None = None
    wake: float = 0.0  #: it requests nothing before this, after a refusal or an end
    edges: tuple[Edge, ...] = ()  #: empty once it has requested a slice
    group: str = ""
    index: int | None = None
    wanted: tuple[Wanted, ...] = ()  #: of a queued job: what it may request, the preferred first
    holds: Wanted | None = None  #: of a job in one of the states HOLDS
    in_cloud_queue: bool = False  #: its request waits there for capacity
    rate: float = 0.0  #: micro-dollars that a slice counts for in a second (`usage.py`)
    time: float = 0.0  #: seconds that its file states; 0: none
    program: str = ""
    began: float = 0.0  #: when its slice was requested
    #: when its slice is expected to be gone, of a job whose program is stopped or has ended; 0: it has not
    leaves: float = 0.0
    refusals: int = 0  #: stockouts and refused quotas since it last had a slice
    hand_on: bool = True  #: it may get the slice of another job
    #: of `wanted`, those that it may request only after so many seconds of waiting
    patience: Mapping[Wanted, float] = field(default_factory=dict[Wanted, float])
    uncopied: tuple[Wanted, ...] = ()  #: of `wanted`, those where its data must be copied first
    slice: str = ""  #: name of the slice that it holds or requests
    had: Set[str] = frozenset()  #: names of all slices in its record
    #: end of the time in which its own slice may be handed on; 0: it may not
    gives_until: float = 0.0
    epoch: int = 0  #: number of jobs that had its slice before
    run_for: float = 0.0  #: seconds for which it requests a slice; 0: for any time
    #: seconds that were left of its slice when its state began; None: no end is known
    left: float | None = None
    gives_way_at: float = inf  #: from when on it gives way; inf: it does not
    gives_way_to: str = ""  #: id of the job for which it is giving up its slice; empty: for none
    runs_since: float | None = None  #: start of the program; None: none has begun on its slice
    #: of a job that may race: what it may request beside, the preferred first, and how many more
    race: tuple[Wanted, ...] = ()
    race_left: int = 0
    beside: "tuple[QueueEntry, ...]" = ()  #: the same job with each candidate as its slice
    lost: bool = False  #: the slice lost a race: its job goes on when it is handed on

    @property
    def waits(self) -> bool:
        """Whether the job waits for a slice. A job that was cancelled, or may request nothing any more, is about to
        end."""
        return self.state is State.QUEUED and bool(self.wanted)

    def usual(self, lengths: Lengths) -> float | None:
        """Return the seconds that jobs of its kind have taken; None: unknown."""
        return usual(lengths, self.owner, self.group, self.program)

    def giving(self, slice: str) -> "QueueEntry | None":
        """Return the entry with the slice of that name; None: the job has no such slice."""
        return next((e for e in (self, *self.beside) if e.slice == slice), None)

    def fits(self, giver: "QueueEntry") -> bool:
        """Return whether the job can use the slice of another job, by the two records."""
        usable = giver.holds in self.wanted and giver.holds not in self.uncopied
        lasts = giver.left is None or giver.left >= self.run_for
        return usable and lasts and self.hand_on and giver.slice not in self.had


def entry(
    job: Job, prices: PriceList = LIST, group: Job | None = None, *, now: float | None = None
) -> QueueEntry:
    """Return the entry of a job that is no group and has not ended. `group`: the job's group, whose hold, release and
    rank in the queue hold for all of its elements. `now`: its deadline decides what it wants at that time; None: it
    wants every offer."""
    whole = group or job
    queued = job.state is State.QUEUED and job.desired is DesiredState.RUN
    offers = circuits.allowed(job, prices) if queued else ()
    offers = offers if now is None else deadline.requestable(job, offers, now)
    slices = tuple(map(wanted, offers))
    slice = job.slice
    racing = tuple(map(wanted, race.places(job, now, prices))) if race.size(job) > 1 else ()
    own = QueueEntry(
        id=job.id,
        number=int(job.id),
        owner=job.submitter,
        share=job.spec.share,
        band=BANDS.index(job.spec.priority),
        rank=max(job.rank, whole.rank),
        state=job.state,
        since=_began(job, whole),
        waiting_since=waiting_since(job, whole),
        acted_at=max(job.fresh_at, job.queued_at, whole.queued_at),
        held_by=job.held_by or whole.held_by,
        not_before=job.spec.not_before,
        wake=job.wake,
        edges=() if job.slices else job.edges,
        group=job.group,
        index=job.index,
        wanted=slices,
        holds=wanted(slice) if slice and job.state in HOLDS else None,
        in_cloud_queue=bool(slice and slice.in_queue),
        rate=rate(offers[0].usd_per_hour, slices[0].chips) if offers else 0.0,
        time=float(job.spec.time or 0.0),
        program=job.spec.run.program,
        began=slice.requested_at if slice else 0.0,
        leaves=_leaves(job),
        refusals=len(circuits.refusals(job)) if queued else 0,
        hand_on=job.spec.hand_on and not job.beside,
        patience={
            wanted(o): seconds for o in offers if (seconds := elastic.patience(job.spec, o.type))
        },
        uncopied=tuple(wanted(o) for o in offers if any(datasets.missing(job, o.zone, prices))),
        slice=slice.name if slice else "",
        had={s.name for s in job.slices},
        gives_until=gives_until(job),
        epoch=slice.epoch if slice else 0,
        run_for=float(job.spec.tpu.run_for or 0.0),
        left=slice.ends_at - job.state_since if slice and slice.ends_at is not None else None,
        gives_way_at=giving_way.gives_way_at(job),
        gives_way_to=giving_way.gives_way_to(job),
        runs_since=job.attempt.running_at if job.attempt and job.state is State.RUNNING else None,
        race=racing,
        race_left=race.size(job) - 1 - len(job.candidates),
    )
    return replace(own, beside=tuple(_beside(job, own))) if job.beside else own


def _beside(job: Job, own: QueueEntry) -> Iterator[QueueEntry]:
    """Yield the job's entry with each candidate as its slice."""
    for slice in (*job.candidates, *job.losers):
        waits = slice.lost_at is None
        given = _may_be_handed_on(job, slice)
        yield replace(
            own,
            holds=wanted(slice),
            slice=slice.name,
            epoch=slice.epoch,
            began=slice.requested_at,
            in_cloud_queue=waits,
            leaves=0.0 if waits else (slice.lost_at or 0.0) + RELEASED_WITHIN,
            gives_until=(slice.lost_at or 0.0) + HANDED_WITHIN if given else 0.0,
            lost=not waits,
            gives_way_at=own.gives_way_at if waits else inf,
        )


def _may_be_handed_on(job: Job, slice: Slice) -> bool:
    """Return whether a slice that lost a race is ready for another job. One that ends by itself is not handed on, as
    its end is known only of a slice that serves."""
    ready = slice.ready_at is not None and slice.preempted_at is None
    ready = ready and not find_pricing(slice.pricing).ends_by_itself
    leaves = slice.delete_asked_at is not None or slice.missing_since is not None
    runs = job.state in (State.PREPARING, State.RUNNING)
    return ready and not leaves and runs and slice.lost_at is not None and job.spec.hand_on


def waiting_since(job: Job, group: Job | None = None) -> float:
    """Return the start of the job's wait for a slice: when it began to wait, or last had a slice. Refused requests are
    part of the wait."""
    had = (s.gone_at or job.state_since for s in job.slices if s.ready_at is not None)
    return max((_began(job, group or job), *had))


def _began(job: Job, whole: Job) -> float:
    return max(job.created_at, job.fresh_at, job.queued_at, whole.queued_at)


def _leaves(job: Job) -> float:
    if job.state not in (State.HOLDING, State.RELEASING):
        return 0.0
    return max(job.state_since, job.hold_until or 0.0) + RELEASED_WITHIN


def gives_until(job: Job) -> float:
    """Return the end of the time in which the job's slice may be handed on; 0: it may not. The program has ended by
    itself, the job was requeued by a person, or its hold ran out; and the end does not blame the hosts."""
    slice, attempt = job.slice, job.attempt
    if job.state is not State.RELEASING or not slice or not attempt or not job.spec.hand_on:
        return 0.0
    over = job.next_state in (State.SUCCEEDED, State.FAILED)
    ended = job.desired is DesiredState.RUN and (
        over or (job.next_state is State.QUEUED and not job.cause)
    )
    ran_out = job.desired is DesiredState.CANCEL and job.next_state is State.CANCELLED  # its hold
    good = (
        ((ended and job.cause in _HARMLESS) or (ran_out and attempt.cause is Cause.CANCELLED))
        and attempt.slice == slice.name
        and slice.delete_asked_at is None
        and slice.missing_since is None
    )
    return max(job.state_since + HANDED_WITHIN, job.hold_until or 0.0) if good else 0.0


def wanted(target: Offer | Slice) -> Wanted:
    """Return one shared object for equal slices, as thousands of jobs may want the same."""
    return _wanted(
        target.type, target.zone, target.pricing, target.tpu_slices,
        target.system_image, target.provider,
    )  # fmt: skip


@lru_cache(4096)
def _wanted(
    type: str, zone: str, pricing: str, tpu_slices: int, system_image: str, provider: str
) -> Wanted:
    facts = accelerators.find(type, provider)
    pools = circuits.names(Offer(type, zone, pricing, provider, system_image, None))
    pool = f"{zone}/{facts.generation}/{find_pricing(pricing).quota}{at_provider(provider)}"
    chips = facts.chips * tpu_slices
    return Wanted(type, pools[0], pool, pools, chips, system_image, provider)
