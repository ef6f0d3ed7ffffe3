"""How each offer fares: what is held and asked of it, and what became of the requests of the last day. Pure."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tpujob.api import OfferView, OpenCircuit
from tpujob.domain.hardware import accelerators
from tpujob.domain.model import Cause, Job, Slice
from tpujob.domain.observations import Circuit
from tpujob.domain.text import rfc3339

DAY = 86_400.0


@dataclass(slots=True)
class _Offer:
    held: list[Slice] = field(default_factory=list[Slice])
    asked: list[Slice] = field(default_factory=list[Slice])
    waits: list[float] = field(default_factory=list[float])
    refused: int = 0
    preempted: int = 0


def offers(jobs: Iterable[Job], now: float) -> list[OfferView]:
    """Of every offer that something is held or asked of, or that had requests within the day; by zone and type. A
    Multislice counts as one slice with the chips of all."""
    found: defaultdict[tuple[str, str, str], _Offer] = defaultdict(_Offer)
    for job in jobs:
        ended = {
            a.slice for a in job.attempts if a.cause is Cause.PREEMPTED and within(a.ended_at, now)
        }
        for one in job.slices:
            _count(found, one, now, preempted=one.name in ended)
    return [_view(*key, offer) for key, offer in sorted(found.items())]


def _count(
    found: defaultdict[tuple[str, str, str], _Offer], one: Slice, now: float, *, preempted: bool
) -> None:
    key = (one.zone, one.type, one.pricing)
    if one.gone_at is None:
        (found[key].asked if one.ready_at is None else found[key].held).append(one)
    if one.ready_at is not None and within(one.ready_at, now):
        found[key].waits.append(max(0.0, one.ready_at - one.requested_at))
    if one.refused is not None and within(one.gone_at or one.requested_at, now):
        found[key].refused += 1
    if preempted:
        found[key].preempted += 1


def within(at: float | None, now: float) -> bool:
    """Whether it was within the last day."""
    return at is not None and now - at <= DAY


def _view(zone: str, type: str, pricing: str, offer: _Offer) -> OfferView:
    prices = [s.usd_per_hour for s in offer.held]
    since = min((s.requested_at for s in offer.asked), default=None)
    return OfferView(
        type=type,
        zone=zone,
        pricing=pricing,
        held=len(offer.held),
        held_chips=chips(offer.held),
        usd_per_hour=None if None in prices else round(sum(filter(None, prices)), 4),
        asked=len(offer.asked),
        asked_chips=chips(offer.asked),
        asked_since=None if since is None else rfc3339(since),
        ready=len(offer.waits),
        wait_p50_s=quantile(offer.waits, 0.5),
        wait_p90_s=quantile(offer.waits, 0.9),
        refused=offer.refused,
        preempted=offer.preempted,
    )


def chips(slices: Iterable[Slice]) -> int:
    return sum(accelerators.find(s.type).chips * s.tpu_slices for s in slices)


def quantile(values: Sequence[float], part: float) -> float | None:
    """The smallest value that at least that part of them does not exceed; None: there are none."""
    return sorted(values)[max(0, math.ceil(part * len(values)) - 1)] if values else None


def open_circuits(circuits: Mapping[str, Circuit], now: float) -> list[OpenCircuit]:
    """Those that open last come first."""
    found: list[OpenCircuit] = []
    for name, one in sorted(circuits.items(), key=lambda each: (-each[1].until, each[0])):
        place, what, pricing = name.split("/")
        found.append(
            OpenCircuit(
                cause=one.cause,
                place=place,
                what=what,
                pricing=pricing,
                refusals=one.refusals,
                since=rfc3339(one.since),
                again_at=rfc3339(one.until),
                open=one.until > now,
            )
        )
    return found
