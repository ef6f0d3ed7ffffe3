"""The places that a job asks at once in a race, and how many. Pure.

`decide/candidates.py` decides what happens there.
"""

from collections.abc import Mapping, Sequence

from tpujob.domain.capacity import circuits, datasets, deadline
from tpujob.domain.capacity.offers import Offer
from tpujob.domain.capacity.waits import PlaceKey, place_of
from tpujob.domain.hardware.prices import LIST, PriceList
from tpujob.domain.hardware.pricing import find_pricing
from tpujob.domain.model import Job, SliceRole, State
from tpujob.domain.observations import UsualWait
from tpujob.domain.spec import JobSpec
from tpujob.errors import BadSpec

#: number of places that a job asks at once which has been refused, or will wait
DEFAULT = 2
#: seconds of a usual wait above which a job asks in DEFAULT places
LONG = 600.0


def check(spec: JobSpec, offers: Sequence[Offer]) -> None:
    """Raise BadSpec for a race of a job that has one place to ask."""
    if (spec.tpu.race or 1) > 1 and len(offers) < 2:
        raise BadSpec(
            f"tpu.race: {spec.tpu.race} places cannot be asked at once, as {offers[0].type} in {offers[0].zone} is the "
            "only one",
            hint="name more zones or types, or leave race out",
        )


def size(job: Job) -> int:
    """Return the number of places that the job asks at once, as of its present request; 1: no race."""
    return job.slice.race if job.slice else 1


def size_of_request(job: Job, offer: Offer, waits: Mapping[PlaceKey, UsualWait]) -> int:
    """Return the number of places to ask at once from this request on: as the spec says; else DEFAULT for one job on
    terms that cost least, after a refusal or where half of the lab's requests have waited for longer than LONG."""
    stated = job.spec.tpu.race
    if stated is not None:
        return stated
    alone = not job.group and job.spec.priority != "low" and job.spec.finish_by is None
    cheap = find_pricing(offer.pricing).preemptible
    usual = waits.get(place_of(offer))
    is_long = usual is not None and usual.median > LONG
    return DEFAULT if alone and cheap and (is_long or circuits.refusals(job)) else 1


def places(job: Job, now: float | None, prices: PriceList = LIST) -> tuple[Offer, ...]:
    """Return the offers for another candidate, in the job's order of preference: none of a place that is being asked,
    where data must be copied first, or whose machines have just failed. A place where a candidate lost in this race is
    asked again only after a refusal, when its circuit lets it. An elastic job races for one size. `now`: the job's
    deadline decides what it may request at that time; None: any offer."""
    if job.state is not State.PROVISIONING:
        return ()
    taken = {
        s.place
        for s in job.slices
        if s.gone_at is None
        or (s.condemned_at or 0.0) >= job.state_since
        or (s.role is SliceRole.CANDIDATE and not s.refused and s.requested_at >= job.state_since)
    }
    offers = circuits.allowed(job, prices)
    if job.spec.tpu.elastic and job.slice:
        offers = tuple(offer for offer in offers if offer.type == job.slice.type)
    return tuple(
        offer
        for offer in (offers if now is None else deadline.requestable(job, offers, now))
        if offer.place not in taken and not any(datasets.missing(job, offer.zone, prices))
    )


def slice_name(job: Job, k: int) -> str:
    """Return the name of the job's k-th slice in the cloud. Jobs of two stores, such as a lost one and its successor,
    can have the same ids; the job's suffix makes the names different."""
    return f"tj-{job.id}-{k}-{job.suffix}" if job.suffix else f"tj-{job.id}-{k}"
