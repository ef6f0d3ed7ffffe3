"""Circuit breakers of offers: a stockout or a refused quota opens one, for all jobs. Pure.

A refusal concerns requests for as much of the same, or more: smaller ones have circuits of their own. While a circuit
is open, no such request is made before `until`; then it is half open: one job requests, and the others wait for the
result. A slice that becomes ready closes the circuits of all that is no larger; one that is gone opens its quota to a
request. A limit that the cloud names has a circuit, too: what exceeds it is requested once a day, or when a person asks
for it again. A backend keeps the circuits in memory (`engine/spending.py`) and can compute them again from the records.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from tpujob.domain.capacity import datasets, deadline
from tpujob.domain.capacity.offers import Offer, offers
from tpujob.domain.failures import retry
from tpujob.domain.hardware import accelerators
from tpujob.domain.hardware.generations import at_provider
from tpujob.domain.hardware.prices import LIST, PriceList
from tpujob.domain.hardware.pricing import find_pricing
from tpujob.domain.model import REFUSALS, Cause, Job, Slice, State
from tpujob.domain.observations import Circuit
from tpujob.domain.text import duration
from tpujob.errors import Scope

#: refusals that may end by themselves; after any other, the offer is closed to the job
FOR_NOW = frozenset({Cause.STOCKOUT, Cause.QUOTA})
#: seconds for which a half-open circuit waits for the answer to its request; then another job may request
PROBE = 120.0
#: seconds after which what exceeds a quota's limit is requested again, as limits are raised
RAISED = 86_400.0

Circuits = Mapping[str, Circuit]


def key(target: Offer | Slice, cause: Cause, scope: Scope = "") -> str:
    """Return what a refused request would have taken up: for a stockout, the type in the zone; for a quota, that of the
    generation in the zone, or in the region if `scope` is that. Pricings of one quota share it. Slices of one host have
    their own, where the generation has a quota for these. So has each provider."""
    at = at_provider(target.provider)
    if cause is Cause.STOCKOUT:
        return f"{target.zone}/{target.type}/{target.pricing}{at}"
    place = accelerators.region_of(target.zone) if scope == "region" else target.zone
    generation = accelerators.find(target.type, target.provider).generation
    one_host = " one host" if accelerators.has_one_host_quota(target.type, target.provider) else ""
    return f"{place}/{generation}{one_host}/{find_pricing(target.pricing).quota}{at}"


def key_of_limit(pool: str) -> str:
    """Return the key of the circuit of what exceeds a quota."""
    return f"{pool}/limit"


def concerning(
    circuits: Circuits, pools: Sequence[str], chips: int, *, limits: bool = True
) -> dict[str, Circuit]:
    """Return the circuits of a request for so many chips. `limits`: with those of what exceeds a quota."""
    return {
        name: c
        for name, c in circuits.items()
        if c.pool in pools and c.chips <= chips and (limits or c.limit is None)
    }


def refused(circuits: Circuits, slice: Slice, now: float) -> dict[str, Circuit]:
    """Return the circuits after the request for `slice` came to nothing (`slice.refused` says why). Requests that were
    made before the first refusal count as one. Each refusal starts the wait again. Only the refusal of the request
    that was made half open ends the wait for its answer. That of an older request does not: the answer is still to
    come."""
    cause = slice.refused
    if cause is None or cause not in FOR_NOW:
        return dict(circuits)
    pool, size, limit = (
        key(slice, cause, slice.refused_scope),
        accelerators.chips_of(slice),
        _limit(slice),
    )
    number = f"{slice.tpu_slices} x " if slice.tpu_slices > 1 else ""
    what = f"{number}{slice.type} {slice.pricing} in {slice.zone}"
    if limit is not None:
        above = Circuit(pool, cause, 1, now, now + RAISED, now, 0.0, limit + 1, what, limit)
        circuits = {**circuits, key_of_limit(pool): above}
        if size > limit:
            return circuits
    name = f"{pool}/{size}"
    old = circuits.get(name) or Circuit(pool, cause, refusals=0, since=now, until=0.0, chips=size)
    if old.refusals == 0 or slice.requested_at > old.opened_at:
        old = replace(old, refusals=old.refusals + 1, opened_at=now)
    delay = retry.backoff(retry.POLICIES[cause], old.refusals - 1, seed=f"{pool}:{old.refusals}")
    waited_for = old.until if slice.requested_at < old.asked_at else 0.0
    return {**circuits, name: replace(old, until=max(now + delay, waited_for), what=what)}


def _limit(slice: Slice) -> int | None:
    """Return the chips of the quota that refused the request; None: unknown."""
    if slice.refused is not Cause.QUOTA or slice.refused_limit is None:
        return None
    return accelerators.chips_of_quota(slice.type, slice.refused_limit)


def asked(circuits: Circuits, target: Offer | Slice, now: float) -> dict[str, Circuit]:
    """Return the circuits after a request for an offer: one that was half open waits for the answer, as far as the
    answer will concern it. That is not so of smaller requests: a larger one says nothing of them if it is refused."""
    size, result = accelerators.chips_of(target), dict(circuits)
    for name, c in concerning(circuits, names(target), size).items():
        own = f"{c.pool}/{size}"
        if c.until <= now and (c.chips == size or c.limit is not None):
            result[name] = replace(c, until=now + PROBE, asked_at=now)
        elif c.until <= now and own not in circuits:
            result[own] = replace(c, until=now + PROBE, asked_at=now, chips=size)
    return result


def granted(circuits: Circuits, target: Offer | Slice) -> dict[str, Circuit]:
    """Return the circuits after an offer became a slice."""
    mine = concerning(circuits, names(target), accelerators.chips_of(target))
    return {name: c for name, c in circuits.items() if name not in mine}


def freed(circuits: Circuits, slice: Slice, now: float) -> dict[str, Circuit]:
    """Return the circuits after a slice that was had is gone: its quota may be requested at once."""
    pools = names(slice)[1:]
    return {
        name: replace(c, until=min(c.until, now)) if c.pool in pools and c.limit is None else c
        for name, c in circuits.items()
    }


def pick(offers: Sequence[Offer], circuits: Circuits, now: float) -> Offer | None:
    """Return the most preferred offer that may be requested now; None: all are waited for."""
    return next((o for o in offers if retry_at(o, circuits) <= now), None)


def first_available(offers: Sequence[Offer], circuits: Circuits) -> tuple[Offer, float]:
    """Return the offer that may be asked for soonest, of equals the most preferred, and when."""
    best = min(offers, key=lambda o: retry_at(o, circuits))
    return best, retry_at(best, circuits)


def retry_at(target: Offer | Slice, circuits: Circuits) -> float:
    """Return when it may be asked for again; 0: no circuit of it is open."""
    mine = concerning(circuits, names(target), accelerators.chips_of(target))
    return max((c.until for c in mine.values()), default=0.0)


def raised(circuits: Circuits, target: Offer | Slice) -> dict[str, Circuit]:
    """Return the circuits after a quota was seen to be large enough for the target."""
    mine = concerning(circuits, names(target), accelerators.chips_of(target))
    return {name: c for name, c in circuits.items() if name not in mine or c.limit is None}


def below_limits(circuits: Circuits) -> dict[str, Circuit]:
    """Return the circuits without those of what exceeds a quota: for a job whom the plan has let request it."""
    return {name: c for name, c in circuits.items() if c.limit is None}


def corrected(circuits: Circuits, now: float) -> Circuits:
    """Return the circuits, half open if a clock that was ahead has opened them."""

    def half_open(circuit: Circuit) -> Circuit:
        longest = retry.MAX_DELAY if circuit.limit is None else RAISED
        until = retry.due_at(circuit.until, now, longest)
        return circuit if until == circuit.until else replace(circuit, until=until)

    return {name: half_open(circuit) for name, circuit in circuits.items()}


def recalled(jobs: Iterable[Job]) -> dict[str, Circuit]:
    """Return the circuits as computed from the records: for a backend that has just started."""
    circuits: dict[str, Circuit] = {}
    ends = [(s.gone_at or s.requested_at, s) for job in jobs for s in refusals(job)]
    for at, slice in sorted(ends, key=lambda end: end[0]):
        circuits = refused(circuits, slice, at)
    return circuits


def refusals(job: Job) -> list[Slice]:
    """Return the requests that were refused for now since the job last had a slice, the oldest first."""
    return [s for s in job.failed_requests if s.refused in FOR_NOW]


def allowed(job: Job, prices: PriceList = LIST) -> tuple[Offer, ...]:
    """Return the offers that the job may request, in its order of preference, without those that the cloud refused for
    good: a zone that is closed to the project, a type that the zone does not have, a region to which its data cannot be
    copied. A person's `resume` allows all of them again."""
    never = {
        s.place
        for s in job.slices
        if s.refused and s.refused not in FOR_NOW and s.requested_at >= job.fresh_at
    }
    every = offers(job.spec, accepted=True, prices=prices)
    return tuple(o for o in every if o.place not in never and not datasets.refused(job, o.zone))


def requestable(job: Job, now: float, prices: PriceList = LIST) -> tuple[Offer, ...]:
    """Return the allowed offers that the job's deadline lets it request now, in order."""
    return deadline.requestable(job, allowed(job, prices), now)


def waiting_since(job: Job) -> float:
    """Return when the job began to wait for its next slice."""
    tried = job.failed_requests
    return tried[0].requested_at if tried else job.state_since


@dataclass(frozen=True, slots=True)
class Wait:
    """The wait of a job without a slice after a refusal of the cloud."""

    refused: Slice  #: the newest request that came to nothing
    #: refusals of its type, zone and provider for its cause since the job last had a slice
    times: int
    since: float  #: time of the first of these requests
    asking: str  #: the zone that is being asked just now; empty: none
    again_at: float  #: when the same may be asked for again
    first: Offer  #: what may be asked for soonest
    first_at: float


def wait(job: Job, circuits: Circuits, now: float) -> Wait | None:
    """Return the wait of the job; None: the cloud has not refused its requests, or no offer is left."""
    acted_at = max(job.fresh_at, job.queued_at)
    circuits = {
        n: c
        for n, c in corrected(circuits, now).items()
        if c.limit is None or c.opened_at >= acted_at
    }  # a person has asked for it again
    tried, left = refusals(job), requestable(job, now)
    if not tried or not left:
        return None
    last = tried[-1]
    # before these the record may lack some, so that their number would not fit the time
    tried = tried[-REFUSALS:]
    same = [s for s in tried if (s.place, s.refused) == (last.place, last.refused)]
    first, opens = first_available(left, circuits)
    wake = retry.due_at(job.wake, now)
    return Wait(
        refused=last,
        times=len(same),
        since=same[0].requested_at,
        asking=job.slice.zone if job.state is State.PROVISIONING and job.slice else "",
        again_at=max(wake, retry_at(last, circuits)),
        first=first,
        first_at=max(opens, wake),
    )


def waiting(job: Job, circuits: Circuits, now: float) -> str:
    """Return `wait` in one line; empty: there is none."""
    current = wait(job, circuits, now)
    return describe_wait(current, now) if current else ""


def describe_wait(current: Wait, now: float) -> str:
    """Return one line: how often it was refused, where, since when, when it is asked for again and where else first."""
    last = current.refused
    kind = "stockout" if last.refused is Cause.STOCKOUT else "quota refusal"
    long_ago = now - current.since > 86_400
    clock = "%Y-%m-%d %H:%M" if long_ago else "%H:%M"
    since = datetime.fromtimestamp(current.since, UTC).strftime(clock)
    text = f"{ordinal(current.times)} {kind} in {last.zone} since {since} UTC"
    if current.asking:
        return f"{text}; asking in {current.asking} now"
    text += f", next try there {_in(current.again_at - now)}"
    if current.first.place != last.place:
        first = f"{current.first.zone}{at_provider(current.first.provider)}"
        if current.first.pricing != last.pricing:
            first = f"{current.first.pricing} in {first}"
        text += f", {first} next {_in(current.first_at - now)}"
    return text


def ordinal(n: int) -> str:
    """Return an ordinal: `1st`, `2nd`, `13th`."""
    ending = "th" if n % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{ending}"


def _in(seconds: float) -> str:
    return "now" if seconds < 1 else f"in {duration(seconds)}"


def names(target: Offer | Slice) -> tuple[str, str, str]:
    """Return what it takes up, by `key`: its type in the zone, the zone's quota, the region's."""
    quota = (key(target, Cause.QUOTA), key(target, Cause.QUOTA, "region"))
    return (key(target, Cause.STOCKOUT), *quota)
