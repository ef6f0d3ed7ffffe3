"""The rule of deadlines: which slices a job may request, and when it may give up one that is not preempted."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.records import NOW, SPEC, a_slice
from tpujob.domain.capacity.deadline import (
    JobDeadline,
    Terms,
    changes_in,
    deadline_of,
    in_order,
    requestable,
)
from tpujob.domain.capacity.offers import offers
from tpujob.domain.model import Attempt, DesiredState, ExpectedRun, Job, Progress, State
from tpujob.domain.spec import dump, parse

HOUR = 3600.0
#: 48 h of work in 60 h, 12 min a start
FACTS = JobDeadline(60 * HOUR, 0.0, 48 * HOUR, 48 * HOUR, 720.0)


def after(hours: float, done: float) -> Terms:
    """The terms after so many hours, of which so many were work that counts."""
    return replace(FACTS, left=FACTS.work - done * HOUR).terms(hours * HOUR)


def test_a_job_ahead_of_the_line_waits_for_spot_and_one_behind_it_does_not() -> None:
    assert FACTS.terms(0.0) is Terms.CHEAP
    assert after(10, done=8) is Terms.CHEAP, "exactly on the line"
    assert after(10, done=7.9) is Terms.EITHER
    assert after(40, done=33) is Terms.CHEAP
    behind = replace(FACTS, left=20 * HOUR).behind_at
    assert behind == pytest.approx(35 * HOUR), "28 of 48 h are done, which is due at 35 of 60 h"


def test_the_net_comes_two_starts_before_the_last_moment() -> None:
    assert FACTS.latest == 12 * HOUR - 2 * 720
    assert FACTS.terms(FACTS.latest - 1) is Terms.EITHER
    assert FACTS.terms(FACTS.latest) is Terms.SAFE
    assert FACTS.last_start == FACTS.latest + 720


@pytest.mark.parametrize("name", ["wait", "lost"])
def test_what_else_a_safe_slice_takes_brings_the_net_forward(name: str) -> None:
    changed: Any = {name: 1800.0}
    assert replace(FACTS, **changed).latest == FACTS.latest - 1800


def test_a_safe_slice_is_given_up_only_with_room_for_two_starts() -> None:
    ahead = replace(FACTS, left=40 * HOUR)
    assert ahead.terms(9 * HOUR) is Terms.CHEAP
    assert not ahead.may_wait(9.7 * HOUR), "it would be behind within two starts"
    assert ahead.may_wait(9.6 * HOUR)
    assert not replace(FACTS, left=1440).may_wait(40 * HOUR), "another start would cost more"


@given(
    done=st.floats(0, 48), start=st.floats(1, 7200), wait=st.floats(0, 7200), now=st.floats(0, 80)
)
def test_terms_only_grow_stricter_while_no_work_is_done(
    done: float, start: float, wait: float, now: float
) -> None:
    """So a plan for now holds until `changes_in`, and the net is never later than the last safe start."""
    facts = replace(FACTS, left=FACTS.work - done * HOUR, start=start, wait=wait)
    order = [Terms.CHEAP, Terms.EITHER, Terms.SAFE]
    assert order.index(facts.terms(now * HOUR)) <= order.index(facts.terms(now * HOUR + 600))
    assert facts.terms(facts.finish_by - facts.left - start - wait) is Terms.SAFE
    if facts.may_wait(now * HOUR):
        assert facts.terms(now * HOUR + 2 * start - 1) is not Terms.EITHER


def pair() -> tuple[Any, ...]:
    tpu = {"type": "v4-16", "zones": ["us-central2-b"], "pricing": ["spot", "on-demand"]}
    return offers(parse({**dump(SPEC), "tpu": tpu}))


def test_a_list_of_pricings_is_an_order_of_preference() -> None:
    assert [o.pricing for o in pair()] == ["spot", "on-demand"]


def test_the_terms_put_the_offers_in_order() -> None:
    named = {terms: [o.pricing for o in in_order(pair(), terms)] for terms in Terms}
    assert named == {
        Terms.CHEAP: ["spot"],
        Terms.EITHER: ["spot", "on-demand"],
        Terms.SAFE: ["on-demand", "spot"],
    }
    assert in_order(pair()[1:], Terms.CHEAP) == pair()[1:], "where spot is closed to the job"


# Of a job ------------------------------------------------------------------------------------------------------------


def job_with(*attempts: Attempt, **spec: Any) -> Job:
    tpu = {"type": "v4-16", "zones": ["us-central2-b"], "pricing": ["spot", "on-demand"]}
    document = {**dump(SPEC), "tpu": tpu, "finish_by": "1970-01-01T10:00Z", **spec}
    return Job(
        id="000001",
        name="x",
        user="ada",
        spec=parse(document),
        state=State.QUEUED,
        desired=DesiredState.RUN,
        created_at=NOW,
        state_since=NOW,
        slices=(a_slice(),),
        attempts=attempts,
        expected=ExpectedRun(work=10_000, start=300, wait=200, lost=100),
    )


def ran(step: int, checkpoint: int | None, number: int = 1) -> Attempt:
    """An attempt of 1000 steps that made a step in 5 s."""
    progress = Progress(step=step, steps=1000, checkpoint=checkpoint, resumed_from=0)
    return Attempt(
        number=number,
        slice="tj-000001-1",
        started_at=NOW,
        running_at=NOW,
        first_step_at=NOW,
        first_step=0,
        progress=progress,
        progress_at=NOW + 5 * step,
    )


def test_a_new_job_has_all_of_the_work_that_was_expected_of_it() -> None:
    facts = deadline_of(job_with())
    assert facts == JobDeadline(36_000, NOW, 10_000, 10_000, 300, 200, 100)


def test_its_own_pace_counts_more_and_its_work_only_up_to_the_kept_checkpoint() -> None:
    facts = deadline_of(job_with(ran(500, 400)))
    assert facts
    assert (facts.work, facts.left) == (5000, 3000)


def test_without_a_checkpoint_nothing_is_kept() -> None:
    facts = deadline_of(job_with(ran(500, None)))
    assert facts
    assert facts.left == facts.work == 5000


def test_a_time_before_which_it_may_not_start_is_not_part_of_the_line() -> None:
    facts = deadline_of(job_with(not_before="1970-01-01T05:00Z"))
    assert facts
    assert facts.since == 18_000


def test_a_job_without_a_deadline_may_request_every_offer() -> None:
    job = replace(job_with(), spec=parse({**dump(SPEC), "tpu": dump(job_with().spec)["tpu"]}))
    assert requestable(job, pair(), 1e9) == pair()
    assert changes_in(job, NOW) is None


def test_the_time_of_the_next_change_is_known() -> None:
    job = job_with()
    facts = deadline_of(job)
    assert facts
    assert changes_in(job, NOW) == pytest.approx(1.0), "it falls behind the line at once"
    assert changes_in(job, NOW + 2) == facts.latest - NOW - 2
    assert changes_in(job, facts.latest) == facts.last_start - facts.latest
    assert changes_in(job, 36_000) is None
    assert changes_in(replace(job, state=State.FAILED), NOW) is None
