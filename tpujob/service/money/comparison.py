"""Comparison of duration and cost of one program on several types and in several zones. Stores nothing."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, get_args

from tpujob.api import CompareOptions, CompareView, EstimateInputs, Unit, WayView
from tpujob.domain.capacity.site import Site
from tpujob.domain.hardware import accelerators
from tpujob.domain.model import Job
from tpujob.domain.money.estimate_shapes import DataToCopy
from tpujob.domain.money.forecast import Best, Outlook, PlaceOption, best
from tpujob.domain.money.run_time import SliceKind, Source, Throughput, steps_of_spec, throughputs
from tpujob.domain.money.samples import SamplePlace
from tpujob.domain.spec import JobSpec
from tpujob.domain.text import many, rfc3339
from tpujob.errors import BadRequest
from tpujob.ports import Clock, Store
from tpujob.service.money.estimate import (
    MAX_STATED,
    Estimates,
    Forecaster,
    Placing,
    checked,
    forecast_view,
)

#: most places of one comparison
MAX_PLACES = 60


class Comparisons:
    """The part of `api.JobsApi` that compares types and zones."""

    def __init__(
        self, store: Store, clock: Clock, site: Site, placing: Placing, estimates: Estimates
    ) -> None:
        self._store, self._clock, self._site = store, clock, site
        self._placing, self._estimates = placing, estimates

    def compare(
        self,
        spec: Mapping[str, Any],
        inputs: EstimateInputs | None = None,
        options: CompareOptions | None = None,
    ) -> CompareView:
        placed = self._placing(spec)
        job_spec = placed.spec
        stated, options = checked(inputs or {}), options or {}
        unit, amount = _amount(job_spec, options)
        jobs, now, prices = self._store.list(), self._clock.now(), self._site.prices
        places = _places(job_spec, options)
        speeds = _speeds(jobs, job_spec, unit, options)
        first, _ = self._estimates.use(placed, stated, jobs)
        forecaster = Forecaster(jobs, now, prices)
        copies: dict[str, tuple[DataToCopy, ...]] = {}

        def outlook(place: SamplePlace, speed: Throughput) -> Outlook:
            region = accelerators.region_of(place.zone)  # compared as if the bucket were there
            if region not in copies:
                copies[region] = self._estimates.copies(job_spec, place.zone)
            use = replace(
                first, type=place.type, zone=place.zone, location=region, copies=copies[region]
            )
            return forecaster.of(job_spec, use, _hours(amount, speed), stated)

        def usd_per_hour(place: SamplePlace) -> float | None:
            return prices.usd_per_hour(place.type, place.zone, place.pricing, place.tpu_slices)

        ways = list[PlaceOption]()
        for place in places:
            speed = speeds.get(SliceKind(place.type, place.tpu_slices))
            ways.append(PlaceOption(place, speed, outlook(place, speed) if speed else None))
        marks = best(ways)
        ways.sort(key=_order)
        return CompareView(
            at=rfc3339(now),
            name=job_spec.name,
            unit=unit,
            amount=amount,
            ways=[
                _view(way, marks, usd_per_hour(way.place), emulated=self._estimates.emulated)
                for way in ways
            ],
            warnings=placed.doubts,
            emulated=self._estimates.emulated,
        )


def _amount(spec: JobSpec, request: CompareOptions) -> tuple[Unit, float]:
    """Return the unit and the amount of the work. Raise BadRequest for an invalid one, or without an amount."""
    unit, amount = request.get("unit", "steps"), request.get("amount")
    if unit not in get_args(Unit):
        raise BadRequest(
            f"work is not counted in {str(unit)[:40]!r}",
            hint=f"one of: {', '.join(get_args(Unit))}",
        )
    if amount is None and unit == "steps":
        amount = steps_of_spec(spec)
    if amount is None:
        raise BadRequest(
            f"the number of {unit} is not stated", hint="--steps, --tokens or --samples"
        )
    if not _positive(amount):
        raise BadRequest(f"{amount!r} {unit} is not possible", hint="a number above 0")
    return unit, float(amount)


def _positive(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return 0 < value <= 1e300


def _hours(amount: float, speed: Throughput) -> float:
    """Return the hours of the work at that speed. Raise BadRequest for more than an estimate may have."""
    hours = amount / speed.per_second / 3600
    if hours > MAX_STATED:
        raise BadRequest(
            f"{amount:g} at {speed.per_second:g} a second take {hours:.3g} h",
            hint=f"at most {MAX_STATED:,} h can be estimated",
        )
    return hours


def _places(spec: JobSpec, request: CompareOptions) -> list[SamplePlace]:
    """Return the places that the request names, else those of the job file. A type that none of the file's zones may
    have gets all its zones. Raise BadSpec for an invalid type, BadRequest for no places or too many."""
    types = [accelerators.canonical(t) for t in request.get("types") or spec.tpu.types]
    named = request.get("zones")
    places: list[SamplePlace] = []
    for type in dict.fromkeys(types):
        accelerators.find(type)
        near = named or spec.tpu.zones
        wished = [z for z in near if accelerators.in_table(type, z)]
        wished = wished or [z for z in near if accelerators.may_have(type, z)]
        zones = wished or (() if named else accelerators.zones(type))
        places += [SamplePlace(type, z, spec.tpu.pricing, spec.tpu.slices) for z in zones]
    if not places:
        raise BadRequest(
            f"none of these zones has {' or '.join(types)}", hint="name others, or leave them out"
        )
    if len(places) > MAX_PLACES:
        raise BadRequest(
            f"{many(len(places), 'way')} are too many for one table",
            hint=f"{MAX_PLACES} at most: name zones",
        )
    return places


def _speeds(
    jobs: Iterable[Job], spec: JobSpec, unit: Unit, request: CompareOptions
) -> dict[SliceKind, Throughput]:
    """Return the speed on each kind of slice: as stated, else as measured, else by a compile check. Raise BadRequest
    for an invalid speed, BadSpec for an invalid type."""
    slices = spec.tpu.slices
    return (
        _stated_speeds(request.get("rooflines", {}), unit, slices, "roofline")
        | throughputs(jobs, spec, unit)
        | _stated_speeds(request.get("throughput", {}), unit, slices, "stated")
    )


def _stated_speeds(
    by_type: Mapping[str, float], unit: Unit, slices: int, source: Source
) -> dict[SliceKind, Throughput]:
    """Return the speeds of one source. Raise BadRequest for an invalid speed, BadSpec for an invalid type."""
    speeds: dict[SliceKind, Throughput] = {}
    for type, speed in by_type.items():
        if not _positive(speed):
            raise BadRequest(f"{speed!r} {unit} a second is not possible", hint="a number above 0")
        accelerators.find(type)
        speeds[SliceKind(accelerators.canonical(type), slices)] = Throughput(float(speed), source)
    return speeds


def _order(way: PlaceOption) -> tuple[bool, bool, float, float]:
    """Return the sort key: the cheapest first, then places without a price by time, then those of unknown speed."""
    if way.outlook is None:
        return True, True, 0, 0.0
    costs, time = way.outlook.amounts, way.outlook.forecast.wall.p50
    return False, not costs.priced, costs.pay.p50 if costs.priced else 0, time


def _view(way: PlaceOption, marks: Best, usd_per_hour: float | None, *, emulated: bool) -> WayView:
    place, speed = way.place, way.throughput
    forecast = forecast_view(way.outlook, emulated=emulated) if way.outlook else None
    return WayView(
        type=place.type,
        tpu_slices=place.tpu_slices,
        chips=accelerators.find(place.type).chips * place.tpu_slices,
        zone=place.zone,
        pricing=place.pricing,
        usd_per_hour=usd_per_hour,
        per_second=speed.per_second if speed else None,
        throughput_by=speed.source if speed else "",
        measured_jobs=speed.jobs if speed else 0,
        forecast=forecast,
        cheapest=place == marks.cheapest,
        fastest=place == marks.fastest,
        note=_note(way, usd_per_hour),
    )


def _note(way: PlaceOption, usd_per_hour: float | None) -> str:
    if way.throughput is None:
        return f"no job ran it on {way.place.type}: --throughput {way.place.type}=N"
    if usd_per_hour is None:
        return f"no price is known for {way.place.pricing} {way.place.type} in {way.place.zone}"
    if way.throughput.source == "roofline":
        return f"the speed on {way.place.type} is that of a compile check: no job ran it there"
    if way.outlook and not way.outlook.ends:
        ends = ", recovery.planned_ends" if way.outlook.forecast.planned_ends else ""
        return f"it is likely to fail before its end: recovery.preemptions, recovery.wait{ends}"
    return ""
