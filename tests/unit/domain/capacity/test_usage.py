"""Recent use of slices, for fair shares."""

from dataclasses import replace

from tests.support.records import NOW, a_slice, job_in
from tpujob.domain.capacity import usage
from tpujob.domain.model import State


def test_a_slice_that_was_ready_by_a_clock_ahead_and_gone_by_another_counts_for_nothing() -> None:
    mixed = replace(a_slice(), ready_at=NOW - 100, gone_at=NOW - 3700)
    assert usage.used(replace(job_in(State.SUCCEEDED), slices=(mixed,)), NOW, {}) == 0.0
    right = replace(mixed, ready_at=NOW - 3700, gone_at=NOW - 100)
    assert usage.used(replace(job_in(State.SUCCEEDED), slices=(right,)), NOW, {}) > 0.0
