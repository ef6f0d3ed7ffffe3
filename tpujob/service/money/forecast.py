"""What a job will probably take, with the slices that it will probably lose: from the records of earlier jobs."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from statistics import median
from typing import Any

from tpujob.api import ForecastView, HalvesView, RangeView
from tpujob.domain.hardware.prices import PriceList
from tpujob.domain.model import Job
from tpujob.domain.money import Use, steps_of_spec
from tpujob.domain.money.conditions import Conditions, conditions
from tpujob.domain.money.forecast import Micros, Outlook, PlannedWork, Range, amounts, forecast
from tpujob.domain.money.samples import SamplePlace, SliceSample, history, program_of
from tpujob.domain.spec import JobSpec

#: newest jobs that are read
NEWEST = 2000
#: seconds between two checkpoints, where it is not stated
CHECKPOINTS = 600.0


class Forecaster:
    """For one question: the records are read once, for however many places."""

    def __init__(self, jobs: Sequence[Job], now: float, prices: PriceList) -> None:
        newest = sorted(jobs, key=lambda job: job.created_at)[-NEWEST:]
        self._samples: list[SliceSample] = history(newest, now)
        self._prices = prices

    def of(
        self, wanted: JobSpec, use: Use, hours: Decimal | float, stated: Mapping[str, Any]
    ) -> Outlook:
        """For so many hours of steps with that use of slices. Of `stated`, it reads `preempt_every`, `wait` and
        `checkpoint_every`, in seconds."""
        place = SamplePlace(use.type, use.zone, use.pricing, use.slices)
        expected = conditions(
            self._samples,
            place,
            program_of(wanted),
            wait=stated.get("wait"),
            preempt_every=stated.get("preempt_every"),
        )
        seconds = float(hours) * 3600
        work = PlannedWork(
            seconds,
            checkpoint=stated.get("checkpoint_every", _checkpoints(wanted, seconds)),
            preemptions=wanted.recovery.preemptions,
            wait=None if "wait" in expected.unknown else wanted.recovery.wait,
        )
        found = forecast(work, expected)
        return Outlook(float(hours), found, expected, amounts(use, found, self._prices))


def _checkpoints(wanted: JobSpec, seconds: float) -> float:
    """By the arguments of a bundled program, at the pace at which its steps take so long."""
    every, steps = wanted.run.args.get("checkpoint_every"), steps_of_spec(wanted)
    if isinstance(every, int) and steps and 0 < every <= steps:
        return seconds * every / steps
    return CHECKPOINTS


def forecast_view(outlook: Outlook, *, emulated: bool = False) -> ForecastView:
    """`emulated`: nothing is paid."""
    hours, found, expected, costs = outlook
    pay = Micros(0, 0, 0, 0, 0) if emulated else costs.pay
    return ForecastView(
        work_hours=round(hours, 6),
        wall_hours=None if "wait" in expected.unknown else _hours(found.wall),
        billed_hours=_hours(found.billed),
        preemptions=_range(found.preemptions),
        list_micros=_range(costs.list) if costs.priced else None,
        pay_micros=_range(pay) if costs.priced or emulated else None,
        waiting_hours=_unless("wait" in expected.unknown, found.waiting / 3600, 6),
        setup_hours=_unless("setup" in expected.unknown, found.setup / 3600, 6),
        redone_hours=round(found.redone / 3600, 6),
        releasing_hours=_unless("release" in expected.unknown, found.releasing / 3600, 6),
        fails=round(found.fails, 4),
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


def _hours(found: Range) -> RangeView:
    return _range(Range(*(seconds / 3600 for seconds in found)))


def _range(found: Range | Micros) -> RangeView:
    low, p10, p50, p90, high = (round(value, 6) for value in found)
    return RangeView(low=low, p10=p10, p50=p50, p90=p90, high=high)
