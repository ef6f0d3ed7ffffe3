"""The plan of the queue: the job that gets a slice next, and why another one waits."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpujob.domain.capacity import circuits as offered
from tpujob.domain.capacity.dependencies import JobEnd
from tpujob.domain.capacity.entries import QueueEntry, Wanted
from tpujob.domain.capacity.planning import (
    AGED,
    FREE_PASS,
    START_UP,
    UNPASSED,
    QueuePlan,
    free_at,
    plan,
)
from tpujob.domain.capacity.settings import OwnerLimits, QueueSettings
from tpujob.domain.capacity.usage import RecentUsage
from tpujob.domain.capacity.waiting_reasons import describe
from tpujob.domain.model import Cause, Edge, State
from tpujob.domain.observations import Circuit, Reason, ReasonKind

NOW = 1_000_000.0
HOUR = 3600.0


def wanted(chips: int = 8, zone: str = "us-central2-b") -> Wanted:
    pool = f"{zone}/v4/spot"
    shape = f"{zone}/v4-{2 * chips}/spot"
    return Wanted(f"v4-{2 * chips}", shape, pool, (shape, pool, f"{zone[:-2]}/v4/spot"), chips)


SMALL, BIG = wanted(8), wanted(64)


def waits(number: int, *slices: Wanted, **changes: object) -> QueueEntry:
    """A job that was submitted `number` seconds ago in reverse: job 1 is the oldest."""
    since = NOW - 1000 + number
    entry = QueueEntry(
        id=f"{number:06d}",
        number=number,
        owner="ada",
        state=State.QUEUED,
        since=since,
        waiting_since=since,
        wanted=slices or (SMALL,),
        rate=1e6,
    )
    return replace(entry, **changes)  # type: ignore[arg-type]


def holds(number: int, slice: Wanted = SMALL, **changes: object) -> QueueEntry:
    """A job that has just got a slice."""
    state = {"state": State.RUNNING, "wanted": (), "holds": slice, "began": NOW}
    state["slice"] = f"tj-{number:06d}-1"
    return waits(number, **(state | changes))


@dataclass
class World:
    ends: Mapping[str, JobEnd | None] = field(default_factory=dict)
    groups: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    elements: Mapping[tuple[str, int], str] = field(default_factory=dict)

    def end(self, job_id: str) -> JobEnd | None:
        return self.ends[job_id]

    def element(self, group: str, index: int) -> str | None:
        return self.elements.get((group, index))

    def group(self, group: str) -> tuple[str, int] | None:
        return self.groups.get(group)


def planned(
    *jobs: QueueEntry,
    settings: QueueSettings = QueueSettings(),  # noqa: B008
    circuits: Mapping[str, Circuit] | None = None,
    usage: RecentUsage | None = None,
    now: float = NOW,
    world: World | None = None,
) -> QueuePlan:
    return plan(jobs, settings, circuits or {}, usage or RecentUsage(), now, world or World())


def numbers(plan: QueuePlan) -> list[int]:
    return [int(job_id) for job_id in plan.order]


def reason(plan: QueuePlan, number: int) -> ReasonKind | None:
    place = plan.places[f"{number:06d}"]
    return place.reasons[0].kind if place.reasons else None


def may_start(plan: QueuePlan) -> list[int]:
    return sorted(int(job_id) for job_id, place in plan.places.items() if place.ask)


# Order ---------------------------------------------------------------------------------------------------------------


def test_the_second_owner_is_next_although_the_first_submitted_a_thousand_jobs() -> None:
    thousand = [waits(n) for n in range(1, 1001)]
    other = waits(2000, owner="bob")
    assert numbers(planned(*thousand, other))[:4] == [1, 2000, 2, 3]


def test_a_higher_band_comes_first_and_a_day_of_waiting_raises_a_job_by_one() -> None:
    jobs = [waits(1, band=2), waits(2, band=1), waits(3, band=0)]
    assert numbers(planned(*jobs)) == [3, 2, 1]
    old = replace(jobs[0], since=NOW - AGED, waiting_since=NOW - AGED)
    plan = planned(old, *jobs[1:])
    assert numbers(plan) == [3, 1, 2]
    order = plan.places[old.id].order
    assert order
    assert (order.band, order.raised) == (1, True)


JOBS = st.lists(
    st.builds(
        lambda number, owner, share, band, rank, rate, small: waits(
            number,
            SMALL if small else BIG,
            owner=owner,
            share=share,
            band=band,
            rank=rank,
            rate=rate,
        ),
        st.integers(1, 60),
        st.sampled_from("abc"),
        st.sampled_from("xy"),
        st.integers(0, 2),
        st.integers(0, 2),
        st.sampled_from([0.0, 1e6, 1.5e6]),
        st.booleans(),
    ),
    max_size=12,
    unique_by=lambda one: one.number,
)


@given(JOBS, st.randoms())
def test_the_same_jobs_give_the_same_plan_however_they_are_sorted(
    jobs: list[QueueEntry], random
) -> None:  # type: ignore[no-untyped-def]
    settings = QueueSettings(quota={SMALL.pool: 64}, limits=OwnerLimits(running=3))
    first = planned(*jobs, settings=settings)
    random.shuffle(jobs)
    assert planned(*jobs, settings=settings) == first
    assert sorted(first.order) == sorted(job.id for job in jobs)
    for place in first.places.values():
        assert bool(place.ask) != bool(place.reasons), "a job may start, or there is a reason"


# The walk ------------------------------------------------------------------------------------------------------------


def refused(slice: Wanted, until: float) -> dict[str, Circuit]:
    return {slice.shape: Circuit(slice.shape, Cause.STOCKOUT, 1, NOW - 60, until)}


def test_while_the_cloud_refuses_a_shape_others_pass_and_none_of_its_own() -> None:
    plan = planned(waits(1, BIG), waits(2, BIG), waits(3), circuits=refused(BIG, NOW + 300))
    assert may_start(plan) == [3]
    assert (reason(plan, 1), reason(plan, 2)) == (ReasonKind.REFUSED, ReasonKind.ORDER)
    assert plan.next_at == NOW + 300


def test_a_job_requests_its_second_choice_while_the_first_is_refused() -> None:
    elsewhere = wanted(64, "us-east1-d")
    plan = planned(waits(1, BIG, elsewhere), circuits=refused(BIG, NOW + 300))
    assert plan.places["000001"].ask == {elsewhere.shape}


@pytest.mark.parametrize("ended", [1, 2])
def test_a_group_runs_no_more_elements_when_slices_are_handed_on_to_it(ended: int) -> None:
    world = World(groups={"000001": ("sweep", 1)})
    gives = [holds(n, gives_until=NOW + 60) for n in range(2, 2 + ended)]
    elements = [waits(n, group="000001", index=n) for n in range(5, 8)]
    plan = planned(*gives, *elements, world=world)
    assert list(plan.heirs.values()) == ["000005"]
    assert may_start(plan) == []
    assert reason(plan, 6) is ReasonKind.GROUP


# Quota that is kept free ---------------------------------------------------------------------------------------------

QUOTA = QueueSettings(quota={SMALL.pool: 64})


def test_small_jobs_pass_a_big_one_for_a_while_and_then_if_they_end_before_its_start() -> None:
    half_hour = 1800.0
    running = [holds(n, time=HOUR) for n in range(1, 5)]
    big = waits(10, BIG, since=NOW - FREE_PASS, waiting_since=NOW - FREE_PASS + 1)
    plan = planned(*running, big, waits(11), settings=QUOTA)
    assert (reason(plan, 10), may_start(plan)) == (ReasonKind.QUOTA, [11])
    big = replace(big, waiting_since=NOW - FREE_PASS)
    plan = planned(
        *running, big, waits(11, time=2 * HOUR), waits(12, time=half_hour), settings=QUOTA
    )
    assert (reason(plan, 11), may_start(plan)) == (ReasonKind.RESERVED, [12])
    start = NOW + START_UP + HOUR
    assert plan.places[big.id].reasons[0].until == start
    assert plan.places["000011"].reasons[0].until == start
    history = RecentUsage(lengths={("ada", "lm"): half_hour})
    young = waits(11, program="lm")
    assert may_start(planned(*running, big, young, settings=QUOTA)) == [11], "it takes an hour"
    late = [replace(job, time=half_hour) for job in running]
    assert may_start(planned(*late, big, young, settings=QUOTA)) == []
    assert may_start(planned(*late, big, young, settings=QUOTA, usage=history)) == [11]
    old = replace(big, since=NOW - UNPASSED, waiting_since=NOW - UNPASSED)
    assert may_start(planned(*running, old, waits(12, time=half_hour), settings=QUOTA)) == []
    plan = planned(big, waits(11), settings=QUOTA)
    assert may_start(plan) == [10], "all chips are free"


def test_of_a_job_that_takes_longer_than_expected_half_is_taken_to_be_over() -> None:
    job = holds(1, time=HOUR)
    first = START_UP + HOUR
    ends = [free_at(replace(job, began=NOW - at), {}, NOW) - NOW for at in (0, first, 3 * first)]
    assert ends == [first, first, first]
    assert free_at(replace(job, leaves=NOW - 5), {}, NOW) == NOW + 60


def test_who_leaves_enough_chips_passes_however_long_it_takes() -> None:
    middle = wanted(56)
    running = [holds(n, time=HOUR) for n in range(1, 3)]
    big = waits(10, middle, since=NOW - HOUR, waiting_since=NOW - HOUR)
    long = [waits(n, time=9 * HOUR) for n in (11, 12)]
    assert may_start(planned(*running, big, *long, settings=QUOTA)) == [11]


def named(chips: int) -> dict[str, Circuit]:
    """The cloud has named a quota of so many chips, and has refused the big job."""
    at, until = NOW - 60, NOW + 900
    limit = Circuit(SMALL.pool, Cause.QUOTA, 1, at, until, at, chips=chips + 1, limit=chips)
    refused = Circuit(SMALL.pool, Cause.QUOTA, 9, at, until, at, chips=BIG.chips)
    return {offered.key_of_limit(SMALL.pool): limit, "refused": refused}


@pytest.mark.parametrize("asks", [False, True])
def test_a_quota_that_the_cloud_has_named_is_kept_for_a_big_job_in_the_same_way(asks: bool) -> None:
    running = [holds(n) for n in range(1, 8)]
    circuits = named(64)
    if asks:
        circuits["refused"] = replace(circuits["refused"], until=NOW - 1)
    since = NOW - FREE_PASS
    big = waits(10, BIG, since=since, waiting_since=since, refusals=9)
    plan = planned(*running, big, waits(11, time=2 * HOUR), circuits=circuits)
    assert (may_start(plan), reason(plan, 11)) == ([10] if asks else [], ReasonKind.RESERVED)
    young = planned(*running, replace(big, waiting_since=NOW - 60), waits(11), circuits=circuits)
    assert may_start(young) == [10, 11] if asks else [11]
    alone = planned(big, waits(11), circuits=circuits)
    assert may_start(alone) == [10, 11] if asks else [11], "others of the project hold the quota"


def test_no_quota_is_kept_for_a_job_that_is_larger_than_the_quota() -> None:
    huge = waits(10, wanted(128), waiting_since=NOW - FREE_PASS)
    assert may_start(planned(holds(1), huge, waits(11), settings=QUOTA)) == [11]


# Dependencies, holds and times ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("on", "other", "starts", "broken"),
    [
        ("success", JobEnd(State.RUNNING, NOW), False, False),
        ("success", JobEnd(State.SUCCEEDED, NOW, NOW), True, False),
        ("success", JobEnd(State.FAILED, NOW, NOW), False, True),
        ("success", JobEnd(State.CANCELLED, None, NOW), False, True),
        ("end", JobEnd(State.CANCELLED, None, NOW), True, False),
        ("failure", JobEnd(State.FAILED, NOW, NOW), True, False),
        ("failure", JobEnd(State.SUCCEEDED, NOW, NOW), False, True),
        ("start", JobEnd(State.QUEUED, NOW), True, False),
        ("start", JobEnd(State.PREPARING), False, False),
        ("start", JobEnd(State.FAILED, None, NOW), False, True),
        ("end", None, False, True),
    ],
)
def test_a_job_waits_for_what_may_still_be_and_never_for_what_may_not(
    on: str, other: JobEnd | None, starts: bool, broken: bool
) -> None:
    job = waits(2, edges=(Edge("000001", on),))  # type: ignore[arg-type]
    plan = planned(job, world=World(ends={"000001": other}))
    place = plan.places[job.id]
    assert bool(place.ask) is starts
    assert (place.broken is not None) is broken


def test_an_element_waits_for_the_one_of_its_index() -> None:
    ends = {
        "000001": JobEnd(State.QUEUED, is_group=True),
        "000003": JobEnd(State.SUCCEEDED, NOW, NOW),
        "000004": JobEnd(State.RUNNING, NOW),
        "": None,
    }
    elements = {("000001", 0): "000003", ("000001", 1): "000004", ("000001", 3): ""}
    world = World(ends=ends, elements=elements)
    edge = Edge("000001", each=True)
    jobs = [waits(10 + i, edges=(edge,), group="000002", index=i) for i in range(4)]
    plan = planned(*jobs, world=world)
    broken = plan.places[jobs[3].id].broken
    assert (broken and broken.how) == "removed"
    assert may_start(plan) == [10]
    assert reason(plan, 12) is ReasonKind.DEPENDENCY, "the element is not there yet"


@pytest.mark.parametrize(
    ("on", "broken"), [("success", True), ("start", True), ("end", False), ("failure", False)]
)
def test_an_element_does_not_wait_for_one_of_a_cancelled_group(on: str, broken: bool) -> None:
    ends = {"000001": JobEnd(State.CANCELLED, NOW - 9, NOW, is_group=True)}
    job = waits(9, edges=(Edge("000001", on, each=True),), group="000002", index=7)  # type: ignore[arg-type]
    place = planned(job, world=World(ends=ends)).places[job.id]
    assert (place.broken is not None, bool(place.ask)) == (broken, not broken)


def test_a_job_waits_for_a_person_a_time_and_its_own_pause_and_gets_no_older_meanwhile() -> None:
    late = waits(3, not_before=NOW + HOUR)
    plan = planned(waits(1, held_by="ada"), waits(2, wake=NOW + 5), late)
    kinds = [reason(plan, n) for n in (1, 2, 3)]
    assert kinds == [ReasonKind.HELD, ReasonKind.RETRY, ReasonKind.NOT_BEFORE]
    assert numbers(plan) == [2]
    assert plan.next_at == NOW + 5
    plan = planned(late, now=NOW + HOUR)
    order = plan.places[late.id].order
    assert order
    assert order.since == NOW + HOUR


def test_every_reason_has_a_sentence() -> None:
    for kind in ReasonKind:
        text = describe(Reason(kind, ("000001",), 1, 2, what="v4-16", until=NOW))
        assert text
        assert not text.endswith(".")
        assert not re.search(r"\b1 (\w+s|.* (are|wait))\b", text), text


# Races ----------------------------------------------------------------------------------------------------------------


ELSEWHERE = [wanted(8, f"us-east1-{letter}") for letter in "bcd"]


def races(number: int, left: int = 2, **changes: object) -> QueueEntry:
    """A job that has requested a slice, and may ask in other zones."""
    return holds(number, **{"race": tuple(ELSEWHERE), "race_left": left, **changes})


def beside(entry: QueueEntry, *ways: Wanted, **changes: object) -> QueueEntry:
    """Return the job with these candidates."""
    others = (replace(entry, holds=way, slice=f"{entry.slice}-{way.shape}") for way in ways)
    return replace(entry, beside=tuple(replace(o, **changes) for o in others))  # type: ignore[arg-type]


def test_a_race_takes_the_next_places_of_the_job_and_no_more_than_it_may() -> None:
    assert planned(races(1)).races == {"000001": {way.shape for way in ELSEWHERE[:2]}}
    assert planned(races(1, left=0)).races == {}


def test_a_race_asks_nowhere_where_the_cloud_refuses_or_another_job_waits() -> None:
    closed = refused(ELSEWHERE[0], NOW + 300)
    assert planned(races(1, left=1), circuits=closed).races == {"000001": {ELSEWHERE[1].shape}}
    pool = {ELSEWHERE[0].pool: 12}
    big = waits(2, wanted(16, "us-east1-b"))
    holder = holds(3, ELSEWHERE[1])
    quota = QueueSettings(quota={ELSEWHERE[0].pool: 20})
    busy = holds(4, ELSEWHERE[0])
    plan = planned(races(1, left=1), big, holder, busy, settings=quota)
    assert plan.races == {"000001": {ELSEWHERE[1].shape}}, "chips that the big job waits for"
    plan = planned(races(1, left=1), busy, settings=QueueSettings(quota=pool))
    assert plan.races == {"000001": {ELSEWHERE[1].shape}}, "the quota has 4 chips left"


def test_candidates_count_for_the_limits_of_their_owner() -> None:
    limits = QueueSettings(limits=OwnerLimits(running=1, chips=24))
    racer = beside(races(1, left=1), ELSEWHERE[0])
    assert len(planned(racer, settings=limits).races["000001"]) == 1, "it is one job"
    less = replace(limits, limits=OwnerLimits(chips=16))
    assert planned(racer, settings=less).races == {}
    other = waits(2, owner="ada")
    limits = QueueSettings(limits=OwnerLimits(chips=16))
    assert planned(racer, other, settings=limits).places["000002"].ask == frozenset()


def test_all_races_together_make_a_few_requests() -> None:
    every = [beside(races(n), *ELSEWHERE) for n in range(1, 4)]
    one_more = planned(*every, races(9))
    assert one_more.races == {"000001": {ELSEWHERE[0].shape}}


def test_a_ready_loser_goes_to_the_first_job_that_fits_if_its_owner_may_run_one_more() -> None:
    lost = {"lost": True, "gives_until": NOW + 30, "leaves": NOW + 60}
    racer = beside(holds(1), ELSEWHERE[0], **lost)
    first, second = waits(2, ELSEWHERE[0]), waits(3, ELSEWHERE[0])
    plan = planned(racer, first, second)
    assert plan.heirs == {racer.beside[0].slice: "000002"}
    one = QueueSettings(limits=OwnerLimits(running=1))
    assert planned(racer, first, settings=one).heirs == {}
