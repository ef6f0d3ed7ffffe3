"""Estimates as the service makes them where there was no job before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from tpujob.adapters.clock import SystemClock
from tpujob.api import EstimateSaid, EstimateView
from tpujob.domain.hardware.accelerators import region_of
from tpujob.domain.model import Job
from tpujob.domain.money import Surroundings
from tpujob.domain.placement import EVERYWHERE, Offer, offers, settled
from tpujob.domain.spec import JobSpec, parse
from tpujob.ports import Store
from tpujob.service.estimate import Estimates


class _NoJobs:
    def list(self) -> list[Job]:
        return []


def estimate_view(spec: Mapping[str, Any], said: EstimateSaid | None = None) -> EstimateView:
    """As the service makes it where there was no job before."""

    def placed(given: Mapping[str, Any]) -> tuple[JobSpec, Sequence[Offer], str, list[str]]:
        wanted = settled(parse(given), EVERYWHERE)
        found = offers(wanted)
        return wanted, found, f"gs://tpujob-{region_of(found[0].zone)}", []

    made = Estimates(cast(Store, _NoJobs()), SystemClock(), EVERYWHERE, placed, Surroundings())
    return made.estimate(spec, said)
