"""Estimates and comparisons as the service makes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from tpujob.adapters.calling import SystemClock
from tpujob.api import CompareOptions, CompareView, EstimateInputs, EstimateView
from tpujob.domain.capacity.offers import offers
from tpujob.domain.capacity.site import EVERYWHERE, Site, settled
from tpujob.domain.hardware.accelerators import region_of
from tpujob.domain.model import Job
from tpujob.domain.money.estimate_shapes import Surroundings
from tpujob.domain.spec import parse
from tpujob.ports import Store
from tpujob.service.money.comparison import Comparisons
from tpujob.service.money.estimate import Estimates, ToCopy
from tpujob.service.submission import ResolvedSpec


class _Jobs:
    def __init__(self, jobs: Sequence[Job]) -> None:
        self.jobs = jobs

    def list(self) -> list[Job]:
        return [*self.jobs]


def _placed(document: Mapping[str, Any]) -> ResolvedSpec:
    spec = settled(parse(document), EVERYWHERE)
    offered = offers(spec)
    buckets = {o.zone: f"gs://tpujob-{region_of(o.zone)}" for o in offered}
    return ResolvedSpec(spec, offered, buckets, doubts=[])


def _estimates(
    jobs: Sequence[Job],
    site: Site = EVERYWHERE,
    to_copy: ToCopy = lambda _spec, _zone: (),
    *,
    emulated: bool = False,
) -> Estimates:
    store, around = cast(Store, _Jobs(jobs)), Surroundings(emulated=emulated)
    return Estimates(store, SystemClock(), site, _placed, around, to_copy)


def estimate_view(
    spec: Mapping[str, Any],
    stated: EstimateInputs | None = None,
    jobs: Sequence[Job] = (),
    *,
    emulated: bool = False,
) -> EstimateView:
    """Return the estimate that the service makes after these earlier jobs."""
    return _estimates(jobs, emulated=emulated).estimate(spec, stated)


def compare_view(
    spec: Mapping[str, Any],
    stated: EstimateInputs | None = None,
    query: CompareOptions | None = None,
    jobs: Sequence[Job] = (),
    site: Site = EVERYWHERE,
    to_copy: ToCopy = lambda _spec, _zone: (),
    *,
    emulated: bool = False,
) -> CompareView:
    """Return the comparison that the service makes after these earlier jobs."""
    store, estimates = cast(Store, _Jobs(jobs)), _estimates(jobs, site, to_copy, emulated=emulated)
    made = Comparisons(store, SystemClock(), site, _placed, estimates)
    return made.compare(spec, stated, query)
