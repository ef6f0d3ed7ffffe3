"""What jobs have cost and what came of it, read from their records. Changes nothing, and holds nothing up."""

from __future__ import annotations

from typing import cast, get_args

from tpujob.api import CostGroup, CostPartView, CostRowView, CostView
from tpujob.domain import money
from tpujob.domain.money import Part, Row
from tpujob.domain.text import rfc3339
from tpujob.errors import BadRequest
from tpujob.ports import Clock, Store

CHIP_HOUR = 3600 * 1_000_000  #: in chip-microseconds


class Costs:
    """The part of `api.JobsApi` that is about money."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock

    def cost(self, *, by: str = "job", user: str = "", job: str = "") -> CostView:
        if by not in get_args(CostGroup):
            groups = ", ".join(get_args(CostGroup))
            raise BadRequest(f"costs are not shown by {by[:40]!r}", hint=f"one of: {groups}")
        now, group = self._clock.now(), cast(CostGroup, by)
        jobs = self._store.list()
        covered = money.covered(jobs)  # of all jobs, as they share a grant
        wanted = [j for j in jobs if user in ("", j.user) and job in ("", j.id)]
        found = money.report(wanted, now, group, covered)
        return CostView(
            at=rfc3339(now),
            by=group,
            rows=[_row(row) for row in found.rows],
            total=_row(found.total),
        )


def _row(row: Row) -> CostRowView:
    shares = [(part, row.parts[part]) for part in Part if part in row.parts]
    return CostRowView(
        key=row.key,
        name=row.name,
        jobs=len(row.jobs),
        slices=len(row.slices),
        open_slices=len(row.open),
        chip_hours=_hours(row.billed),
        unpriced_chip_hours=_hours(row.unpriced),
        list_micros=row.list,
        least_micros=row.list - row.unsure,
        pay_micros=row.pay,
        goodput=row.goodput,
        parts=[
            CostPartView(part=part, chip_hours=_hours(share.chip_time), list_micros=share.micros)
            for part, share in shares
        ],
    )


def _hours(chip_time: int) -> float:
    return round(chip_time / CHIP_HOUR, 6)
