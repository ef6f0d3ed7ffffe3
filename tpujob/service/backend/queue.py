"""The queue, as people see it: places with their reasons, shares; and what is checked of it when a job is submitted.

The order is made in `domain/capacity/` and kept in `engine/queue.py`.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice

from tpujob.api import OrderView, OwnerUsage, PlaceView, QueueRow, QueueView, ReasonView, ShareView
from tpujob.doctor.zones import QUOTA_PAGE
from tpujob.domain import access, pace
from tpujob.domain.access import Principal
from tpujob.domain.capacity.entries import waiting_since, wanted
from tpujob.domain.capacity.offers import Offer
from tpujob.domain.capacity.planning import too_big
from tpujob.domain.capacity.settings import QueueSettings
from tpujob.domain.capacity.waiting_reasons import describe
from tpujob.domain.hardware import accelerators
from tpujob.domain.model import DesiredState, Edge, Job
from tpujob.domain.observations import PER_OWNER, Order, Place, Reason, ReasonKind
from tpujob.domain.progress import job_progress
from tpujob.domain.spec import JobSpec, elements
from tpujob.domain.spec.queue import BANDS
from tpujob.domain.text import many, rfc3339
from tpujob.engine import Queue
from tpujob.engine.spending import CircuitBreaker
from tpujob.errors import BadRequest, BadSpec, IllegalInState, NotFound
from tpujob.ports import Clock, Store
from tpujob.service.authorization import find_job
from tpujob.service.backend.capacity import Quotas, allows
from tpujob.service.job_index import JobIndex
from tpujob.service.next_step import held_id
from tpujob.service.runtime_info import RuntimeReader
from tpujob.service.views import speed

_K = ReasonKind
#: what a person can do about a slice that exceeds the project's quota
_MORE = f"`tpujob quota` shows the limits. Ask for more at {QUOTA_PAGE}, or name a smaller type."
#: and one that exceeds a limit of the context
_SMALLER = "`queue` of the context has the limits. Name a smaller type."


class QueueReader:
    """The part of `api.JobsApi` that is about the queue."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        queue: Queue,
        index: JobIndex,
        knowledge: RuntimeReader,
        breaker: CircuitBreaker,
        quotas: Quotas | None,
    ) -> None:
        self._breaker, self._quotas = breaker, quotas
        self._store, self._clock, self._queue = store, clock, queue
        self._index, self._knowledge = index, knowledge

    def queue(self, caller: Principal, *, jobs: Sequence[str] = (), limit: int = 0) -> QueueView:
        plan, live, now = self._queue.plan(), self._queue.jobs(), self._clock.now()
        rest = sorted(plan.places.keys() - set(plan.order))
        ids = [job_id for job_id in (*plan.order, *rest) if job_id in live]
        if jobs:
            named = {find_job(self._store, caller, "get", job).id for job in jobs}
            ids = [job_id for job_id in ids if named & {job_id, live[job_id].group}]
        every = ([job_id] for job_id in ids)
        parts = islice(_alike(ids, live, plan.places), limit) if limit else every
        rows = [self._row(caller, part, plan.places[part[0]], live, now) for part in parts]
        return QueueView(rows=rows, waiting=len(ids))

    def shares(self) -> list[ShareView]:
        settings, usage, live = self._queue.settings, self._queue.usage(), self._queue.jobs()
        queued = [live[id] for id in self._queue.plan().places if id in live]
        waiting = Counter(job.spec.share for job in queued)
        names = sorted({*settings.weights, *usage.shares, *waiting})
        people = {*usage.owners, *((job.spec.share, job.submitter) for job in queued)}
        dues = _dues(settings, names, Counter(share for share, _ in people))
        all_used = sum(usage.shares.values()) or 1.0
        users = self._index.users()
        owners: defaultdict[str, list[OwnerUsage]] = defaultdict(list)
        for (share, owner), used in sorted(
            usage.owners.items(), key=lambda item: (-item[1], item[0])
        ):
            part = round(used / (usage.shares.get(share) or 1.0), 4)
            owners[share].append(
                OwnerUsage(user=users.get(owner, owner), usd=_usd(used), part=part)
            )
        return [
            ShareView(
                name=name,
                weight=settings.weight(name),
                usd=_usd(usage.shares.get(name, 0.0)),
                part=round(usage.shares.get(name, 0.0) / all_used, 4),
                due=round(dues[name], 4),
                waiting=waiting[name],
                owners=owners[name],
            )
            for name in names
        ]

    def place(self, job: Job, place: Place) -> PlaceView:
        """Return the place of a waiting job, as the job's page shows it."""
        return self._place(job, place, self._queue.jobs(), self._clock.now())

    def _row(
        self, caller: Principal, part: list[str], place: Place, live: Mapping[str, Job], now: float
    ) -> QueueRow:
        job = live[part[0]]
        tpu, since = job.spec.tpu, waiting_since(job, live.get(job.group))
        return QueueRow(
            **self._place(job, place, live, now),
            id=job.id,
            name=job.name,
            user=job.user,
            mine=access.is_own(caller, job.owner),
            share=job.spec.share,
            type=tpu.types[0],
            zones=list(tpu.zones),
            pricing=tpu.pricing,
            tpu_slices=tpu.slices,
            chips=accelerators.find(tpu.types[0]).chips * tpu.slices,
            since=rfc3339(since),
            alike=len(part) - 1,
        )

    def _place(self, job: Job, place: Place, live: Mapping[str, Job], now: float) -> PlaceView:
        at = self._starts_about(place, live, now)
        return PlaceView(
            position=place.position,
            starts_about=None if at is None else rfc3339(at),
            passed=self._queue.overtaken[job.id],
            reasons=[
                ReasonView(
                    kind=reason.kind.value,
                    text=describe(reason),
                    jobs=list(reason.jobs),
                    count=reason.count,
                    limit=reason.limit,
                    until=None if reason.until is None else rfc3339(reason.until),
                )
                for reason in place.reasons
            ],
            order=_order_view(place.order) if place.order else None,
            helps=list(
                dict.fromkeys(filter(None, (_help(job, reason, live) for reason in place.reasons)))
            ),
        )

    def _starts_about(self, place: Place, live: Mapping[str, Job], now: float) -> float | None:
        """Return when its request may go out, as far as that is known: when everything that it waits for is over; of
        several slices that it may have, the soonest."""
        if not place.reasons:
            return place.order.since if place.order else None
        times = [self._over_at(reason, live, now) for reason in place.reasons]
        known_times = [at for at in times if at is not None]
        if place.position:
            return min(known_times, default=None)
        return max(known_times) if len(known_times) == len(times) else None

    def _over_at(self, reason: Reason, live: Mapping[str, Job], now: float) -> float | None:
        """Return when a reason ends; None: unknown."""
        if reason.kind is not _K.DEPENDENCY:
            # the start of the other job: how long that one then runs is another matter
            return None if reason.kind is _K.RESERVED else reason.until
        ends = [self._ends_at(live.get(job_id), now) for job_id in reason.jobs]
        known_ends = [at for at in ends if at is not None]
        return max(known_ends) if len(known_ends) == reason.count else None

    def _ends_at(self, job: Job | None, now: float) -> float | None:
        """Return when a running job ends, by its steps, or by the time in its file."""
        attempt = job.attempt if job else None
        if job is None or attempt is None or attempt.running_at is None or attempt.ended_at:
            return None
        going = self._knowledge.going(job)
        has = job_progress(job, going.progress if going else None)
        left = pace.seconds_left(has, speed(job, has, going.moved_at if going else None))
        if left is not None:
            return now + left
        return attempt.running_at + job.spec.time if job.spec.time else None

    # Submission -------------------------------------------------------------------------------------------------------

    def check(self, caller: Principal, spec: JobSpec, offers: Sequence[Offer]) -> None:
        """Raises BadSpec for a priority or a share that is not allowed and for slices above the project's quota,
        IllegalInState when the limit of jobs is reached."""
        self._check_sizes(offers)
        settings = self._queue.settings
        if spec.priority == BANDS[0] and settings.high and caller.name not in settings.high:
            raise BadSpec(
                f"priority: {caller.name} may not submit jobs of high priority",
                hint="Use normal. `high` in the settings of the queue names who may.",
            )
        if spec.share and spec.share not in settings.weights:
            names = ", ".join(settings.weights) or "none; `queue.shares` of the context names them"
            raise BadSpec(f"share: there is no share {spec.share}", hint=f"There are: {names}.")
        members = settings.members.get(spec.share)
        if members is not None and caller.name not in members:
            raise BadSpec(
                f"share: {caller.name} is no member of the share {spec.share}",
                hint=f"Its members: {', '.join(sorted(members)) or 'none'}. `queue.shares` of the context names them.",
            )
        new = elements.size(spec) or 1
        for type in ("", *spec.tpu.types):
            limits = settings.by_type.get(type) if type else settings.limits
            if limits is None or limits.queued is None:
                continue
            mine = [job for job in self._queue.jobs().values() if job.submitter == caller.id]
            counted = [job for job in mine if not type or type in job.spec.tpu.types]
            count = sum(_not_ended(job) for job in counted)
            if count + new > limits.queued:
                of, amount = (
                    f" for {type}" if type else "",
                    f"{new:,} more" if new > 1 else "another",
                )
                raise IllegalInState(
                    f"{caller.name} has {many(count, 'unfinished job')}{of} and cannot submit {amount}: the limit "
                    f"is {limits.queued:,}",
                    hint="Submit it when enough of them have ended: `tpujob list --mine`.",
                )

    def _check_sizes(self, offers: Sequence[Offer]) -> None:
        """Raises BadSpec if every offer exceeds the quota or the limit of each owner. A limit that the cloud has named
        counts for a day, unless a newer reading of the quota allows more."""
        texts, hint = list[str](), _MORE
        settings, known, now = self._queue.settings, self._breaker.circuits(), self._clock.now()
        for offer in offers:
            way = wanted(offer)
            above = too_big(way, settings, known, now)
            if not above:
                return
            if self._quotas and all(r.since and allows(self._quotas, offer, r) for r in above):
                self._breaker.raised(offer)
                return
            texts.append(f"{offer.type}: {describe(above[0])}")
            hint = _SMALLER if above[0].how == PER_OWNER else _MORE
        raise BadSpec(f"tpu.type: {'; '.join(dict.fromkeys(texts))}", hint=hint)

    def edges(self, caller: Principal, spec: JobSpec) -> tuple[Edge, ...]:
        """Return the jobs that `after` names: the caller's own by name, any by its id. Raises BadSpec."""
        resolved: list[Edge] = []
        size = elements.size(spec)
        for n, dependency in enumerate(spec.after):
            try:
                job = find_job(self._store, caller, "get", dependency.job)
            except (NotFound, BadRequest) as error:
                raise BadSpec(f"after[{n}].job: {error.message}", hint=error.hint) from error
            if any(edge.job == job.id for edge in resolved):
                raise BadSpec(
                    f"after[{n}].job: {dependency.job} is job {job.id}, which is named before"
                )
            if dependency.each and (not size or job.group_size != size):
                has = f"job {job.id} has {many(job.group_size, 'element')}"
                raise BadSpec(
                    f"after[{n}].each: needs two groups of equal size: {has}, this one {size:,}"
                )
            resolved.append(Edge(job.id, dependency.on, dependency.each))
        return tuple(resolved)


def _not_ended(job: Job) -> int:
    """Return how many unfinished jobs a live record stands for; a group: for the elements yet to be made."""
    if not job.spec.is_group:
        return 1
    return job.group_size - job.submitted if job.desired is DesiredState.RUN else 0


def waits_for(job: Job, other: Job) -> bool:
    """Return whether a job was submitted to start after another one, or after the group of that one."""
    return any(
        edge.job == other.id
        or (edge.job == other.group and (not edge.each or job.index == other.index))
        for edge in job.edges
    )


def still_waiting(jobs: Iterable[Job], other: Job, is_element: Callable[[str], bool]) -> list[str]:
    """Return the ids of the jobs that would never start if the records of `other` and of its elements were removed.
    `is_element`: whether a job of that id is one of these."""
    waiting = (job for job in jobs if not job.slices and job.desired is DesiredState.RUN)
    return [
        job.id
        for job in waiting
        if not job.state.final
        and (waits_for(job, other) or any(is_element(edge.job) for edge in job.edges))
    ]


# Views ----------------------------------------------------------------------------------------------------------------


def _alike(
    ids: Sequence[str], live: Mapping[str, Job], places: Mapping[str, Place]
) -> Iterator[list[str]]:
    """Join elements of a group that follow each other and wait for the same things."""

    def key(job_id: str) -> tuple[object, ...]:
        return (live[job_id].group or job_id, *map(_same, places[job_id].reasons))

    return (list(part) for _, part in groupby(ids, key))


def _dues(
    settings: QueueSettings, names: Sequence[str], users: Mapping[str, int]
) -> dict[str, float]:
    """Return the part of all use that is due to each share, by its weight; of those that are open to all users, by the
    weights of the users who use each."""
    weights = settings.account_weights
    total = sum(weights[account] for account in {settings.account(name) for name in names})
    counts = {n: settings.weight(n) * max(1, users[n]) for n in names if n not in settings.members}
    dues = {n: weights[n] / total for n in names if n in settings.members}
    return dues | {
        n: weights[""] / total * count / sum(counts.values()) for n, count in counts.items()
    }


def _same(reason: Reason) -> tuple[object, ...]:
    """Return what elements in one row share of a reason: of the order, not the jobs before each."""
    return (reason.kind, reason.what, () if reason.kind is _K.ORDER else reason.jobs)


def _order_view(order: Order) -> OrderView:
    return OrderView(
        priority=BANDS[order.band],
        raised=order.raised,
        share_usd=_usd(order.share_used),
        owner_usd=_usd(order.owner_used),
        rank=order.rank,
        since=rfc3339(order.since),
    )


def _usd(micros: float) -> float:
    return round(micros / 1e6, 2)


def _help(job: Job, reason: Reason, live: Mapping[str, Job]) -> str:
    """Return what a person can do about a reason; empty: only waiting helps."""
    match reason.kind:
        case _K.HELD:
            return f"`tpujob queue release {held_id(job)}` lets it start"
        case _K.DEPENDENCY:
            return f"`tpujob why {reason.jobs[0]}` says how far that is"
        case _K.ORDER if any(
            id in live and live[id].submitter == job.submitter for id in reason.jobs
        ):
            return f"`tpujob queue top {job.id}` moves it before {job.user}'s other jobs"
        case _K.RUNNING | _K.CHIPS:
            return f"it is a limit of the context: it starts when one of {job.user}'s jobs ends"
        case _K.TOO_BIG if reason.since is None:
            return "the limit is in `queue` of the context"
        case _K.TOO_BIG:
            at_once = f"`tpujob queue hold {job.id}` and `tpujob queue release {job.id}` ask again at once"
            return f"{_MORE} Once it is raised, {at_once}"
        case _K.QUOTA | _K.RESERVED | _K.ORDER | _K.REQUESTED | _K.REFUSED:
            return "a new job may name more types or zones: `tpujob capacity` shows where slices were got lately"
        case _:
            return ""
