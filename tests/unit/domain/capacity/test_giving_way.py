"""Which jobs of low priority give way to the first job that waits for their chips."""

from dataclasses import replace
from math import inf

import pytest

from tests.support.records import NOW as AT
from tests.support.records import SPEC, job_in
from tests.unit.domain.capacity.test_plan import (
    HOUR,
    NOW,
    SMALL,
    holds,
    may_start,
    planned,
    reason,
    waits,
    wanted,
)
from tpujob.domain.capacity import circuits as offered
from tpujob.domain.capacity.entries import QueueEntry, Wanted
from tpujob.domain.capacity.giving_way import AGAIN, LEAST_RUN, Holder, choose, gives_way_at
from tpujob.domain.capacity.planning import AGED, FREE_PASS, LAPSES, QueuePlan
from tpujob.domain.capacity.settings import OwnerLimits, QueueSettings
from tpujob.domain.model import Attempt, Cause, DesiredState, GaveWay, Job, State
from tpujob.domain.observations import Circuit, GiveWay, ReasonKind
from tpujob.domain.spec import dump, parse

QUOTA = QueueSettings(quota={SMALL.pool: 64})
HIGH, NORMAL, LOW = range(3)
MEDIUM, LARGE = wanted(32), wanted(64)


def low(number: int, slice: Wanted = MEDIUM, ago: float = HOUR, **changes: object) -> QueueEntry:
    """A job of low priority whose program has run for `ago` seconds, and that may give way."""
    facts = {"band": LOW, "began": NOW - ago, "runs_since": NOW - ago, "gives_way_at": NOW - 1}
    return holds(number, slice, **(facts | changes))


def those_who_give_way(plan: QueuePlan) -> dict[int, int]:
    return {int(job_id): int(needed.to) for job_id, needed in plan.gives_way.items()}


# Who gives way, and to whom -------------------------------------------------------------------------------------------


def test_as_many_give_way_as_the_first_job_needs_the_last_started_first() -> None:
    old, young = low(1, ago=9 * HOUR), low(2, ago=HOUR)
    plan = planned(old, young, waits(3, MEDIUM), settings=QUOTA)
    assert plan.gives_way == {young.id: GiveWay("000003", MEDIUM.shape)}
    assert reason(plan, 3) is ReasonKind.GIVEN_WAY
    plan = planned(old, young, waits(3, LARGE), settings=QUOTA)
    assert those_who_give_way(plan) == {1: 3, 2: 3}


def test_nobody_is_stopped_if_all_together_are_not_enough() -> None:
    plan = planned(low(1), holds(2, MEDIUM), waits(3, LARGE), settings=QUOTA)
    assert those_who_give_way(plan) == {}
    assert reason(plan, 3) is ReasonKind.QUOTA


def test_nobody_is_stopped_while_enough_chips_are_about_to_be_free() -> None:
    leaving = holds(2, MEDIUM, state=State.RELEASING, leaves=NOW + 20)
    assert those_who_give_way(planned(low(1), leaving, waits(3, MEDIUM), settings=QUOTA)) == {}
    held = holds(2, MEDIUM, state=State.HOLDING, leaves=NOW + 600)
    plan = planned(low(1), held, waits(3, MEDIUM), settings=QUOTA)
    assert those_who_give_way(plan) == {1: 3}, "a person may still resume the held job"


@pytest.mark.parametrize(
    ("head", "gets"),
    [
        (waits(3, MEDIUM, band=HIGH), True),
        (waits(3, MEDIUM, band=LOW), False),
        # it counts as of normal priority after a day
        (waits(3, MEDIUM, band=LOW, since=NOW - AGED, waiting_since=NOW - AGED), False),
        (waits(3, MEDIUM, refusals=LAPSES), False),
        (waits(3, MEDIUM, uncopied=(MEDIUM,)), False),
        (waits(3, MEDIUM, wake=NOW + 30), False),
        (waits(3, MEDIUM, held_by="ada"), False),
        (waits(3, MEDIUM, wanted(8, "us-east1-d")), False),
    ],
    ids=["high", "low", "aged", "refused", "without data", "pausing", "held", "goes elsewhere"],
)
def test_only_a_job_of_a_higher_priority_that_lacks_chips_alone_is_given_way(
    head: QueueEntry, gets: bool
) -> None:
    plan = planned(low(1), low(2), head, settings=QUOTA)
    assert bool(plan.gives_way) == gets


def test_a_job_at_the_limit_of_its_owner_is_not_given_way() -> None:
    settings = replace(QUOTA, limits=OwnerLimits(chips=64))
    jobs = low(1), low(2), waits(3, MEDIUM)
    assert those_who_give_way(planned(*jobs, settings=settings)) == {}
    other = replace(jobs[2], owner="bob")
    assert those_who_give_way(planned(*jobs[:2], other, settings=settings)) == {2: 3}


def test_only_the_first_job_of_a_pool_is_given_way() -> None:
    first = waits(3, LARGE, band=HIGH)
    jobs = low(1), holds(2, MEDIUM), waits(4, MEDIUM)
    assert those_who_give_way(planned(*jobs, settings=QUOTA)) == {1: 4}
    assert those_who_give_way(planned(*jobs, first, settings=QUOTA)) == {}
    pausing = replace(first, wake=NOW + 30)
    assert those_who_give_way(planned(*jobs, pausing, settings=QUOTA)) == {}
    aged = waits(3, MEDIUM, band=LOW, since=NOW - AGED, waiting_since=NOW - AGED)
    assert those_who_give_way(planned(*jobs, aged, settings=QUOTA)) == {}, "it would take them"


def test_who_may_not_give_way_yet_is_asked_when_it_may() -> None:
    jobs = low(1, gives_way_at=NOW + 50), low(2, gives_way_at=inf), waits(3, MEDIUM)
    plan = planned(*jobs, settings=QUOTA)
    assert those_who_give_way(plan) == {}
    assert plan.next_at <= NOW + 50


def test_it_is_off_by_a_setting() -> None:
    settings = replace(QUOTA, give_way=False)
    assert those_who_give_way(planned(low(1), low(2), waits(3, MEDIUM), settings=settings)) == {}


def limited(cause: Cause, limit: int = 64) -> dict[str, Circuit]:
    """The cloud has named the limit and refuses what exceeds it, for want of `cause`."""
    key = offered.key_of_limit(SMALL.pool)
    refused = Circuit(MEDIUM.pool, cause, 1, NOW - 60, NOW + 900, chips=32)
    named = replace(refused, pool=SMALL.pool, cause=Cause.QUOTA, opened_at=NOW - 60)
    return {"refused": refused, key: replace(named, chips=limit + 1, limit=limit)}


def test_so_it_is_with_a_limit_that_the_cloud_has_named_and_our_jobs_fill() -> None:
    jobs = low(1), low(2), waits(3, MEDIUM)
    assert those_who_give_way(planned(*jobs, circuits=limited(Cause.QUOTA))) == {2: 3}
    assert those_who_give_way(planned(*jobs, circuits=limited(Cause.STOCKOUT))) == {}
    assert those_who_give_way(planned(*jobs, circuits=limited(Cause.QUOTA, 96))) == {}, "others do"


# The chips that they give up ------------------------------------------------------------------------------------------


def gone(number: int, to: int) -> QueueEntry:
    """A job that is giving way, before its slice is gone."""
    facts = {"leaves": NOW + 60, "gives_way_to": f"{to:06d}", "gives_way_at": inf}
    return low(number, state=State.HOLDING, **facts)


def test_chips_are_kept_at_once_for_the_job_that_others_gave_way_to() -> None:
    head, passes = waits(4, LARGE), waits(5, MEDIUM, time=600.0)
    plan = planned(gone(1, to=4), head, passes, settings=QUOTA)
    assert may_start(plan) == []
    assert reason(plan, 5) is ReasonKind.RESERVED
    (first, second) = plan.places[head.id].reasons
    assert (first.kind, first.jobs, first.until) == (ReasonKind.GIVEN_WAY, ("000001",), NOW + 60)
    assert (second.kind, second.since) == (ReasonKind.QUOTA, None)
    by_itself = replace(gone(1, to=4), gives_way_to="")
    assert may_start(planned(by_itself, head, passes, settings=QUOTA)) == [5], "for a while"


def test_while_one_gives_way_no_other_is_stopped_for_the_same_chips() -> None:
    plan = planned(gone(1, to=3), low(2), waits(3, MEDIUM), settings=QUOTA)
    assert those_who_give_way(plan) == {}
    # the clock of the backend that stopped it is ahead
    ahead = replace(gone(1, to=3), leaves=NOW + 900)
    assert those_who_give_way(planned(ahead, low(2), waits(3, MEDIUM), settings=QUOTA)) == {}


def test_the_time_in_which_smaller_jobs_pass_does_not_delay_it() -> None:
    since = NOW - FREE_PASS - 60
    head = waits(3, MEDIUM, since=since, waiting_since=since)
    assert those_who_give_way(planned(low(1), low(2), head, settings=QUOTA)) == {2: 3}


# One job --------------------------------------------------------------------------------------------------------------


def test_the_jobs_that_give_way_are_the_fewest_of_the_newest() -> None:
    large, eight = Holder(NOW - 900, 1, 64, "1"), Holder(NOW - 60, 2, 8, "2")
    pending = Holder(inf, 3, 8, "3")
    assert choose(8, [large, eight, pending]) == [pending], "a request loses nothing"
    assert choose(16, [large, eight, pending]) == [pending, eight]
    assert choose(24, [large, eight, pending]) == [large], "the small ones are not needed then"
    assert choose(72, [large, eight, pending]) == [pending, large]
    assert choose(88, [large, eight, pending]) == []


LOWLY = parse({**dump(SPEC), "priority": "low"})


def runs(**changes: object) -> Job:
    attempt = Attempt(1, "tj-000001-1", AT - 60, running_at=AT)
    made = replace(job_in(State.RUNNING), spec=LOWLY, attempts=(attempt,))
    return replace(made, **changes)  # type: ignore[arg-type]


def test_a_job_of_low_priority_gives_way_after_twenty_minutes() -> None:
    assert gives_way_at(runs()) == AT + LEAST_RUN
    pending = replace(job_in(State.PROVISIONING), spec=LOWLY)
    assert gives_way_at(pending) == 0.0, "it has no slice yet"
    for other in (
        runs(spec=SPEC),
        runs(spec=parse({**dump(LOWLY), "recovery": {"attempts": 3}})),
        runs(state=State.PREPARING),
        runs(state=State.HOLDING),
        runs(desired=DesiredState.CANCEL),
        runs(next_state=State.QUEUED),
        replace(job_in(State.QUEUED), spec=LOWLY),
    ):
        assert gives_way_at(other) == inf


def test_no_job_gives_way_twice_in_an_hour() -> None:
    record = runs()
    assert record.slice
    before = replace(record.slice, k=0, name="earlier", gone_at=AT - 60, gave_way=GaveWay("7", AT))
    assert gives_way_at(replace(record, slices=(before, *record.slices))) == AT + AGAIN
