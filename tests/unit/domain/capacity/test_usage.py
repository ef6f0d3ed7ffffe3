"""Recent use of slices, for fair shares, and how long jobs take."""

from dataclasses import replace

from tests.support.records import NOW, a_slice, job_in
from tpujob.domain.capacity import usage
from tpujob.domain.capacity.run_lengths import RunLengths, charged, expected
from tpujob.domain.model import State


def test_a_slice_that_was_ready_by_a_clock_ahead_and_gone_by_another_counts_for_nothing() -> None:
    mixed = replace(a_slice(), ready_at=NOW - 100, gone_at=NOW - 3700)
    assert usage.used(replace(job_in(State.SUCCEEDED), slices=(mixed,)), NOW, {}) == 0.0
    right = replace(mixed, ready_at=NOW - 3700, gone_at=NOW - 100)
    assert usage.used(replace(job_in(State.SUCCEEDED), slices=(right,)), NOW, {}) > 0.0


def test_a_slice_counts_at_once_for_no_less_than_such_jobs_take_whatever_the_file_says() -> None:
    assert [charged(stated, None) for stated in (0, 1, 9000)] == [3600, 3600, 9000]
    assert [charged(stated, 7200) for stated in (0, 1, 9000)] == [7200, 7200, 9000]
    assert charged(1, 60) == 600
    assert [expected(stated, 7200) for stated in (0, 1, 1800)] == [7200, 600, 1800]
    assert expected(0, None) == 3600


def test_nine_in_ten_of_the_newest_jobs_that_succeeded_say_how_long_one_takes() -> None:
    runs = RunLengths()
    jobs = [
        replace(
            job_in(State.SUCCEEDED),
            id=f"{n:06d}",
            finished_at=NOW + n,
            slices=(replace(a_slice(), ready_at=NOW - 100 * n, gone_at=NOW),),
        )
        for n in range(1, 31)
    ]
    name = jobs[0].submitter, jobs[0].spec.run.program
    for job in jobs[:10]:
        runs.count(job)
    assert runs.lengths() == {name: 900}
    runs.count(replace(jobs[8], state=State.QUEUED))
    runs.count(replace(jobs[9], state=State.FAILED))
    before = runs.lengths()
    for job in jobs:
        runs.count(job)
    assert (before, runs.lengths()) == ({name: 800}, {name: 2800}), "of the newest 20"
