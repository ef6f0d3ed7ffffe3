"""The rules for every report of money and time, whatever happened to the job."""

from itertools import pairwise

from tpujob.domain.model import Job
from tpujob.domain.money.goodput import spans
from tpujob.domain.money.ledger import US, covered, micros, moment
from tpujob.domain.money.report import Group, report


def assert_adds_up(job: Job, now: float, by: Group) -> None:
    """Assert that parts, rows and slices add up to the micro-dollar and the microsecond."""
    whole = report([job], now, by, covered([job]))
    bills = [micros([slice], now) or 0 for slice in job.slices]
    total = whole.total
    assert total.list == sum(bills) == sum(share.micros for share in total.parts.values())
    assert total.list == sum(row.list for row in whole.rows)
    assert total.chip_time == sum(row.chip_time for row in whole.rows)
    assert total.billed == sum(row.billed for row in whole.rows)
    for row in whole.rows:
        assert (
            row.list == sum(share.micros for share in row.parts.values()) == row.pay + row.granted
        )
    for slice_ in job.slices:
        of_it = sorted((s.start, s.end) for s in spans(job, now) if s.slice is slice_ and s.billed)
        assert all(end == start for (_, end), (start, _) in pairwise(of_it))


def assert_covers(job: Job, now: float, slack: float) -> None:
    """Assert that parts and rests cover the time from creation to end; `slack`: seconds by which clocks differ."""
    reached = moment(job.created_at)
    rests = [(moment(rest.start), moment(rest.end)) for rest in job.idle_periods]
    for start, end in sorted([*((s.start, s.end) for s in spans(job, now)), *rests]):
        assert start <= reached + slack * US, f"nothing covers {(start - reached) / US:.1f} s"
        reached = max(reached, end)
    end = now if job.finished_at is None else job.finished_at
    assert abs(moment(end) - reached) <= slack * US
