"""Estimates and forecasts of a job, from its offer, stated facts and earlier jobs. Stores nothing."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from statistics import median
from typing import Any, cast

from tpujob.api import (
    EstimateInputs,
    EstimateLineView,
    EstimateView,
    ForecastView,
    HalvesView,
    PriceView,
    RangeView,
)
from tpujob.domain.capacity.offers import Offer
from tpujob.domain.capacity.site import Site
from tpujob.domain.hardware import accelerators
from tpujob.domain.hardware.prices import PriceList
from tpujob.domain.hardware.pricing import find_pricing
from tpujob.domain.model import ExpectedRun, Job
from tpujob.domain.money import budget
from tpujob.domain.money.conditions import Conditions, conditions
from tpujob.domain.money.estimate import estimate, sums
from tpujob.domain.money.estimate_shapes import (
    DataToCopy,
    Estimate,
    EstimateLine,
    Surroundings,
    Use,
)
from tpujob.domain.money.forecast import Outlook, PlannedWork, Range, amounts, forecast
from tpujob.domain.money.ledger import in_use
from tpujob.domain.money.run_time import RunTime, StatedWork, estimate_run_time, steps_of_spec
from tpujob.domain.money.samples import SamplePlace, SliceSample, history
from tpujob.domain.spec import JobSpec, elements
from tpujob.domain.text import rfc3339
from tpujob.errors import BadRequest
from tpujob.ports import Clock, Store
from tpujob.service.money import budgets, deadlines
from tpujob.service.submission import ResolvedSpec

#: number of newest jobs with a slice that are read, and of those that requested one
NEWEST = 2000
#: seconds between two checkpoints, where neither the user nor the job file states them
CHECKPOINTS = 600.0


class Forecaster:
    """Forecasts for one request: the records are read once, for any number of places."""

    def __init__(self, jobs: Sequence[Job], now: float, prices: PriceList) -> None:
        asked = sorted((job for job in jobs if job.slices), key=lambda job: job.created_at)
        held = [job for job in asked if any(s.ready_at is not None for s in job.slices)]
        newest = {job.id: job for job in (*asked[-NEWEST:], *held[-NEWEST:])}
        self._samples: list[SliceSample] = history(newest.values(), now)
        self._prices = prices

    def of(
        self, spec: JobSpec, use: Use, hours: Decimal | float, stated: Mapping[str, Any]
    ) -> Outlook:
        """Return the forecast for so many hours of steps with that use of slices. Of `stated`, it reads
        `preempt_every`, `wait` and `checkpoint_every`, in seconds."""
        expected = self._conditions(spec, use, stated)
        seconds = float(hours) * 3600
        work = PlannedWork(
            seconds,
            checkpoint=stated.get("checkpoint_every", _checkpoints(spec, seconds)),
            preemptions=spec.recovery.preemptions,
            wait=None if "wait" in expected.unknown else spec.recovery.wait,
            run_for=_program_time(spec, use.pricing),
            planned_ends=spec.recovery.planned_ends,
        )
        outcome = forecast(work, expected)
        return Outlook(float(hours), outcome, expected, amounts(use, outcome, self._prices))

    def expected_run(self, spec: JobSpec, use: Use, hours: Decimal) -> ExpectedRun:
        """Return what is expected of a job with a deadline, with that use of slices that cannot be preempted."""
        seconds = float(hours) * 3600
        expected = self._conditions(spec, use, {})
        return deadlines.expect(spec, seconds, _checkpoints(spec, seconds), expected)

    def _conditions(self, spec: JobSpec, use: Use, stated: Mapping[str, Any]) -> Conditions:
        return conditions(
            self._samples,
            SamplePlace(use.type, use.zone, use.pricing, use.slices),
            spec.run.program,
            wait=stated.get("wait"),
            preempt_every=stated.get("preempt_every"),
        )


def _program_time(spec: JobSpec, pricing: str) -> float | None:
    """Return for how long a slice may serve before the program is stopped for its planned end; None: for any time."""
    run_for = spec.tpu.run_for if find_pricing(pricing).takes_run_for else None
    return None if run_for is None else run_for - budget.LOOK - spec.stop_grace


def _checkpoints(spec: JobSpec, seconds: float) -> float:
    """Return the seconds between checkpoints of a bundled program whose steps take `seconds` in all."""
    every, steps = spec.run.args.get("checkpoint_every"), steps_of_spec(spec)
    if isinstance(every, int) and steps and 0 < every <= steps:
        return seconds * every / steps
    return CHECKPOINTS


def forecast_view(outlook: Outlook, *, emulated: bool = False) -> ForecastView:
    """Return the view of a forecast. `emulated`: nothing is paid."""
    hours, outcome, expected, costs = outlook
    pay = Range(0, 0, 0, 0, 0) if emulated else costs.pay
    return ForecastView(
        work_hours=round(hours, 6),
        wall_hours=None if "wait" in expected.unknown else _hours(outcome.wall),
        billed_hours=_hours(outcome.billed),
        preemptions=_range(outcome.preemptions),
        planned_ends=outcome.planned_ends,
        list_micros=_range(costs.list) if costs.priced else None,
        pay_micros=_range(pay) if costs.priced or emulated else None,
        waiting_hours=_unless("wait" in expected.unknown, outcome.waiting / 3600, 6),
        setup_hours=_unless("setup" in expected.unknown, outcome.setup / 3600, 6),
        redone_hours=round(outcome.redone / 3600, 6),
        releasing_hours=_unless("release" in expected.unknown, outcome.releasing / 3600, 6),
        fails=round(outcome.fails, 4),
        slices=expected.slices,
        losses=expected.losses,
        half_seconds=_halves(expected),
        stated=[*expected.stated],
    )


def _halves(expected: Conditions) -> HalvesView:
    first, later = expected.first, expected.later
    no_wait, no_setup, no_release = (w in expected.unknown for w in ("wait", "setup", "release"))
    return HalvesView(
        first_wait=_unless(no_wait, first.wait.half, 1),
        first_life=round(first.life.half, 1),
        later_wait=_unless(no_wait, later.wait.half, 1),
        later_life=round(later.life.half, 1),
        setup=_unless(no_setup, median(expected.setup), 1),
        release=_unless(no_release, median(expected.release), 1),
    )


def _unless(unknown: bool, value: float, digits: int) -> float | None:
    return None if unknown else round(value, digits)


def _hours(hours: Range[float]) -> RangeView:
    return _range(Range(*(seconds / 3600 for seconds in hours)))


def _range(values: Range[float] | Range[int]) -> RangeView:
    low, p10, p50, p90, high = (round(value, 6) for value in values)
    return RangeView(low=low, p10=p10, p50=p50, p90=p90, high=high)


#: the largest stated number
MAX_STATED = 10**12

#: returns a spec with its place at the site; raises BadSpec
Placing = Callable[[Mapping[str, Any]], ResolvedSpec]
#: returns the data of a job that a zone lacks; raises BadSpec
ToCopy = Callable[[JobSpec, str], Sequence[DataToCopy]]


class Estimates:
    """The part of `api.JobsApi` that estimates the cost of a job."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        site: Site,
        placing: Placing,
        around: Surroundings,
        to_copy: ToCopy,
    ) -> None:
        self._store, self._clock, self._site = store, clock, site
        self._placing, self._around, self._to_copy = placing, around, to_copy
        self.emulated = around.emulated  #: nothing is paid

    def estimate(
        self, spec: Mapping[str, Any], inputs: EstimateInputs | None = None
    ) -> EstimateView:
        placed, stated, jobs = self._placing(spec), checked(inputs or {}), self._store.list()
        use, long = self.use(placed, stated, jobs)
        use = replace(use, copies=self.copies(placed.spec, use.zone))
        cost = estimate(use, self._site.prices)
        view = self._view(placed, cost, long)
        if placed.spec.budget is not None:
            view["budget_micros"] = budgets.limit(placed.spec.budget.usd)
            paid = budgets.paid_hours(placed.spec, placed.first, cost)
            if paid is not None:
                view["budget_hours"] = round(paid, 6)
                kept = budget.reserve(placed.first, placed.spec.stop_grace)
                view["budget_reserve_micros"] = kept
        if long.work is not None:
            forecaster = Forecaster(jobs, self._clock.now(), self._site.prices)
            outlook = forecaster.of(placed.spec, cost.use, long.work, stated)
            view["forecast"] = forecast_view(outlook, emulated=self.emulated)
        return view

    def within_budget(self, placed: ResolvedSpec) -> None:
        """Raise BadSpec if the job is estimated to cost more than its own budget. If its run time is unknown,
        nothing is checked: the budget ends it."""
        if placed.spec.budget is None:
            return
        use, long = self.use(placed, {}, self._store.list())
        if long.hours is not None:
            cost = estimate(use, self._site.prices)
            budgets.check_estimate(placed.spec, placed.first, cost, long.text)

    def expected_run(self, placed: ResolvedSpec) -> ExpectedRun | None:
        """Return what the records say of a job with a deadline; None: it has none. Raise BadSpec if it cannot end in
        time, or if its own budget does not pay for that."""
        spec = placed.spec
        if spec.finish_by is None:
            return None
        jobs, now = self._store.list(), self._clock.now()
        offer = deadlines.safe_offer(placed.offers)
        use, long = self.use(placed, {}, jobs, offer)
        if long.work is None:
            raise deadlines.unknown_work()
        expected = Forecaster(jobs, now, self._site.prices).expected_run(spec, use, long.work)
        deadlines.check(spec, expected, now)
        hours = Decimal(expected.work + expected.start) / 3600
        cost = estimate(replace(use, hours=hours), self._site.prices)
        how = f"all of it {offer.pricing}, which its deadline may require"
        budgets.check_estimate(spec, offer, cost, how)
        return expected

    def copies(self, spec: JobSpec, zone: str) -> tuple[DataToCopy, ...]:
        """Return what is copied before a slice is requested in that zone. Ask the storage. Raise BadSpec."""
        return tuple(self._to_copy(spec, zone))

    def use(
        self,
        placed: ResolvedSpec,
        stated: EstimateInputs,
        jobs: Sequence[Job],
        offer: Offer | None = None,
    ) -> tuple[Use, RunTime]:
        """Return the use and the run time for an offer, by default the first, without the copies of data."""
        spec, offer = placed.spec, offer or placed.first
        amount = {key: Decimal(str(value)) for key, value in stated.items() if key != "quiet"}
        long = estimate_run_time(
            spec,
            offer.type,
            jobs,
            StatedWork(amount.get("hours"), stated.get("steps"), amount.get("step_seconds")),
        )
        use = Use(
            type=offer.type,
            zone=offer.zone,
            pricing=offer.pricing,
            location=self._site.region_of_bucket(placed.bucket)
            or accelerators.region_of(offer.zone),
            slices=spec.tpu.slices,
            hours=long.hours,
            grants=self._site.grants,
            granted_in_use=in_use(jobs),
            prints=not stated.get("quiet", False),
            stored_gib=amount.get("stored_gib"),
            stored_days=amount.get("stored_days"),
            objects_written=stated.get("objects_written"),
            objects_read=stated.get("objects_read"),
            read_gib=amount.get("read_gib"),
            written_gib=amount.get("written_gib"),
            around=self._around,
        )
        return use, long

    def _view(self, placed: ResolvedSpec, cost: Estimate, long: RunTime) -> EstimateView:
        spec, offer = placed.spec, placed.first
        facts, slices = accelerators.find(offer.type, offer.provider), spec.tpu.slices
        if self.emulated:
            cost = cost.unpaid()
        return EstimateView(
            at=rfc3339(self._clock.now()),
            name=spec.name,
            jobs=elements.size(spec) or 1,
            type=offer.type,
            tpu_slices=slices,
            chips=facts.chips * slices,
            hosts=facts.hosts * slices,
            zone=offer.zone,
            pricing=offer.pricing,
            bucket=placed.bucket,
            hours=_float(long.hours),
            length_by=long.by,
            length=long.text,
            least_hours=_float(long.least),
            most_hours=_float(long.most),
            lines=[_line(line) for line in cost.lines],
            list_micros=cost.list_micros,
            pay_micros=cost.pay_micros,
            sums=sums(cost),
            unknown=[f"{line.what}: {line.note}" for line in cost.unknown],
            warnings=placed.doubts,
            emulated=self.emulated,
        )


def checked(stated: EstimateInputs) -> EstimateInputs:
    """Return the stated facts unchanged. Raise BadRequest for an invalid one."""
    for name, value in stated.items():
        whole = name in ("steps", "objects_written", "objects_read")
        fits = isinstance(value, bool) if name == "quiet" else _amount(value, whole=whole)
        if name not in EstimateInputs.__annotations__:
            raise BadRequest(f"an estimate has no parameter {name[:40]!r}")
        if not fits:
            kind = "a whole number" if whole else "a number"
            raise BadRequest(f"{name} cannot be {value!r}", hint=f"{kind} from 0 to {MAX_STATED:,}")
    return stated


def _amount(value: object, *, whole: bool) -> bool:
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
        return False
    return 0 <= value <= MAX_STATED


def _line(line: EstimateLine) -> EstimateLineView:
    return EstimateLineView(
        kind=line.kind,
        what=line.what,
        formula=line.formula,
        amount=_float(line.amount),
        price=cast(PriceView, line.price.record()) if line.price else None,
        list_micros=line.list_micros,
        pay_micros=line.pay_micros,
        note=line.note,
    )


def _float(amount: Decimal | None) -> float | None:
    return None if amount is None else round(float(amount), 6)
