"""Circuits: when an offer that was refused may be asked for again, and by whom."""

from dataclasses import replace

import pytest

from tests.support.records import NOW, V6E, A, B, job_in, request
from tpujob.domain.capacity import circuits as capacity
from tpujob.domain.capacity.circuits import PROBE, RAISED
from tpujob.domain.capacity.offers import Offer
from tpujob.domain.model import Cause, Job, Slice, State
from tpujob.domain.observations import Circuit
from tpujob.errors import Scope


def refuse(
    circuits: capacity.Circuits, offer: Offer, at: float, *, cause: Cause = Cause.STOCKOUT
) -> dict[str, Circuit]:
    return capacity.refused(circuits, request(offer, cause, at), at)


def test_a_stockout_sends_everybody_to_the_next_zone_and_then_to_wait() -> None:
    circuits = refuse({}, B, NOW)
    assert capacity.pick((B, A), circuits, NOW) == A
    circuits = refuse(circuits, A, NOW + 1)
    assert capacity.pick((B, A), circuits, NOW + 2) is None
    first, opens = capacity.first_available((B, A), circuits)
    assert opens > NOW + 2
    assert capacity.pick((B, A), circuits, opens) == first


def test_pauses_double_up_to_ten_minutes_and_never_end() -> None:
    circuits: dict[str, Circuit] = {}
    now, pauses = NOW, list[float]()
    for _ in range(12):
        circuits = refuse(circuits, B, now)
        opens = capacity.retry_at(B, circuits)
        pauses.append(opens - now)
        now = opens
    assert 11 <= pauses[0] <= 19, pauses
    assert pauses[4] > 8 * pauses[0], f"they grow: {pauses}"
    assert max(pauses) <= 600 * 1.25, pauses
    assert min(pauses[7:]) >= 450, f"and stay long: {pauses}"


def test_many_jobs_refused_at_once_count_as_one_refusal() -> None:
    circuits = refuse({}, B, NOW)
    for k in range(9):  # asked for before the first of them was refused
        circuits = capacity.refused(circuits, request(B, Cause.STOCKOUT, NOW - k), NOW + 2)
    assert [c.refusals for c in circuits.values()] == [1]


def test_each_pause_counts_from_the_refusal_that_began_it() -> None:
    first = refuse({}, B, NOW)
    opens = capacity.retry_at(B, first)
    (second,) = refuse(first, B, opens + 5).values()
    assert (second.refusals, second.since, second.opened_at) == (2, NOW, opens + 5)
    late = request(B, Cause.STOCKOUT, opens + 4)  # asked for before the second refusal was known
    (third,) = capacity.refused({f"{second.pool}/8": second}, late, opens + 6).values()
    assert (third.refusals, third.opened_at) == (2, opens + 5)


def test_a_late_answer_to_an_old_request_does_not_let_others_ask_beside_the_one_who_asks() -> None:
    circuits = refuse({}, B, NOW)
    opens = capacity.retry_at(B, circuits)
    circuits = capacity.asked(circuits, B, opens)
    old = request(B, Cause.STOCKOUT, NOW - 1)  # asked for before anything was refused
    circuits = capacity.refused(circuits, old, opens + 5)
    assert capacity.retry_at(B, circuits) == opens + PROBE, "the answer is still to come"


def test_a_refusal_that_is_new_to_this_backend_does_not_either() -> None:
    circuits = refuse({}, B, NOW)
    opens = capacity.retry_at(B, circuits)
    circuits = capacity.asked(circuits, B, opens + 60)
    old = request(B, Cause.STOCKOUT, opens + 1)  # by another backend, and after the first refusal
    circuits = capacity.refused(circuits, old, opens + 65)
    assert capacity.retry_at(B, circuits) == opens + 60 + PROBE, "the answer is still to come"
    circuits = capacity.refused(circuits, request(B, Cause.STOCKOUT, opens + 60), opens + 90)
    (circuit,) = circuits.values()
    assert circuit.opened_at == opens + 65, "it was out before that refusal arrived"
    assert circuit.until < opens + 60 + PROBE, "the answer has come: only the pause is left"


def test_a_half_open_circuit_lets_one_ask_and_the_others_wait_for_the_answer() -> None:
    circuits = refuse({}, B, NOW)
    opens = capacity.retry_at(B, circuits)
    assert capacity.pick((B,), circuits, opens) == B
    circuits = capacity.asked(circuits, B, opens)
    assert capacity.pick((B,), circuits, opens + 1) is None, "a request is out already"
    assert capacity.pick((B,), circuits, opens + PROBE) == B, "no answer came: the next may"
    assert capacity.granted(circuits, B) == {}


def test_asking_for_an_offer_that_nobody_refused_opens_nothing() -> None:
    assert capacity.asked({}, B, NOW) == {}
    open_one = refuse({}, B, NOW)
    assert capacity.asked(open_one, B, NOW) == open_one, "still open: no request"


@pytest.mark.parametrize(("scope", "blocks_a"), [("", False), ("zone", False), ("region", True)])
def test_a_quota_blocks_a_zone_or_region_as_the_cloud_says(scope: Scope, blocks_a: bool) -> None:
    refused = replace(request(B, Cause.QUOTA, NOW), refused_scope=scope)
    circuits = capacity.refused({}, refused, NOW)
    assert capacity.recalled([waiting_job(refused)]).keys() == circuits.keys(), "as the records say"
    assert capacity.retry_at(replace(B, type="v6e-16"), circuits) > NOW, "it needs more of it"
    assert capacity.retry_at(replace(B, type="v6e-4"), circuits) == 0, "there may be less"
    assert capacity.retry_at(replace(B, pricing="on-demand"), circuits) == 0
    assert (capacity.retry_at(A, circuits) > NOW) is blocks_a


def limited(type: str, limit: int, at: float = NOW) -> Slice:
    refused = request(replace(V4, type=type), Cause.QUOTA, at)
    return replace(refused, refused_scope="zone", refused_limit=limit)


V4 = Offer("v4-8", "us-central2-b", "spot", "cloud-tpu", "rt", 1.0)


def test_a_slice_above_the_named_limit_is_requested_once_a_day_and_closes_nothing_else() -> None:
    circuits = capacity.refused({}, limited("v4-64", 48), NOW)
    assert capacity.retry_at(replace(V4, type="v4-64"), circuits) == NOW + RAISED
    assert capacity.retry_at(replace(V4, type="v4-128"), circuits) == NOW + RAISED
    assert capacity.retry_at(replace(V4, type="v4-32", tpu_slices=2), circuits) == NOW + RAISED
    assert capacity.retry_at(replace(V4, type="v4-48"), circuits) == 0, "48 cores are 24 chips"
    assert capacity.recalled([waiting_job(limited("v4-64", 48))]) == circuits | {
        f"{c.pool}/limit": replace(c, since=NOW + 1, opened_at=NOW + 1, until=NOW + 1 + RAISED)
        for c in circuits.values()
    }


def test_a_refusal_within_the_limit_is_for_what_is_in_use_and_names_the_limit_for_others() -> None:
    circuits = capacity.refused({}, limited("v4-16", 48), NOW)
    assert NOW < capacity.retry_at(replace(V4, type="v4-16"), circuits) < NOW + 100
    assert capacity.retry_at(V4, circuits) == 0
    assert capacity.retry_at(replace(V4, type="v4-64"), circuits) == NOW + RAISED


def test_a_larger_limit_or_a_larger_slice_ends_what_a_limit_has_closed() -> None:
    circuits = capacity.refused({}, limited("v4-64", 48), NOW)
    raised = capacity.refused(circuits, limited("v4-256", 128, NOW + 60), NOW + 60)
    assert capacity.retry_at(replace(V4, type="v4-64"), raised) == 0
    assert capacity.retry_at(replace(V4, type="v4-256"), raised) == NOW + 60 + RAISED
    assert capacity.granted(circuits, replace(V4, type="v4-32")) == circuits
    assert capacity.granted(circuits, replace(V4, type="v4-64")) == {}


def test_slices_of_one_host_have_a_quota_of_their_own_where_the_generation_has_one() -> None:
    small, large = (
        Offer(t, "us-west4-a", "spot", "cloud-tpu", "rt", 1.0)
        for t in ("v5litepod-8", "v5litepod-16")
    )
    refused = replace(request(small, Cause.QUOTA, NOW), refused_limit=0)
    circuits = capacity.refused({}, refused, NOW)
    assert capacity.retry_at(small, circuits) == NOW + RAISED
    assert capacity.retry_at(large, circuits) == 0, "its quota is another one"


def test_a_stockout_says_nothing_of_fewer_slices_and_of_other_types() -> None:
    two = replace(request(B, Cause.STOCKOUT, NOW), tpu_slices=2)
    circuits = capacity.refused({}, two, NOW)
    assert capacity.retry_at(replace(B, tpu_slices=2), circuits) > NOW
    assert capacity.retry_at(replace(B, tpu_slices=4), circuits) > NOW
    assert capacity.retry_at(B, circuits) == 0
    assert capacity.retry_at(replace(B, type="v6e-4"), circuits) == 0


def test_a_quota_may_be_requested_as_soon_as_an_own_slice_of_it_is_gone() -> None:
    circuits = capacity.refused({}, limited("v4-16", 48), NOW)
    circuits = capacity.refused(
        circuits, request(replace(V4, type="v4-16"), Cause.STOCKOUT, NOW), NOW
    )
    gone = request(replace(V4, type="v4-32"), None, NOW - 900, ready=True)
    opened = capacity.freed(circuits, gone, NOW + 5)
    assert [c.until for c in opened.values() if c.cause is Cause.QUOTA and c.limit is None] == [
        NOW + 5
    ]
    assert [c.until > NOW + 5 for c in opened.values() if c.cause is Cause.STOCKOUT] == [True]
    assert capacity.retry_at(replace(V4, type="v4-64"), opened) == NOW + RAISED
    elsewhere = replace(gone, zone="us-east1-d")
    assert capacity.freed(circuits, elsewhere, NOW + 5) == circuits


def test_a_large_request_that_is_under_way_does_not_make_small_ones_wait_for_its_answer() -> None:
    circuits = capacity.refused({}, replace(limited("v4-8", 48), refused_limit=None), NOW)
    opens = capacity.retry_at(V4, circuits)
    circuits = capacity.asked(circuits, replace(V4, type="v4-32"), opens)
    assert capacity.retry_at(V4, circuits) == opens
    assert capacity.retry_at(replace(V4, type="v4-32"), circuits) == opens + PROBE
    asked = capacity.asked(circuits, V4, opens)
    assert capacity.retry_at(V4, asked) == opens + PROBE


def test_a_large_request_keeps_the_count_of_its_own_refusals() -> None:
    large = replace(V4, type="v4-32")
    circuits = capacity.refused({}, replace(limited("v4-8", 48), refused_limit=None), NOW - 900)
    for k in range(4):
        again = replace(limited("v4-32", 48, NOW + k), refused_limit=None)
        circuits = capacity.refused(circuits, again, NOW + k + 0.5)
    opens = capacity.retry_at(large, circuits)
    asked = capacity.asked(circuits, large, opens)
    assert sorted(c.refusals for c in asked.values()) == [1, 4]


def waiting_job(*slices: Slice, wake: float = NOW) -> Job:
    return replace(job_in(State.QUEUED), spec=V6E, slices=slices, wake=wake)


def test_a_new_backend_recalls_the_circuits_from_the_records() -> None:
    job = waiting_job(
        *(request(B, Cause.STOCKOUT, NOW + 100 * k, k) for k in range(1, 5)),
        request(A, Cause.STOCKOUT, NOW + 500, 5),
    )
    recalled = capacity.recalled([job])
    assert {name: c.refusals for name, c in recalled.items()} == {
        "us-east5-b/v6e-8/spot/8": 4,
        "us-east5-a/v6e-8/spot/8": 1,
    }


def test_refusals_of_one_moment_are_recalled_too() -> None:
    jobs = [replace(waiting_job(request(B, Cause.STOCKOUT, NOW)), id=f"{n:06}") for n in (1, 2)]
    (circuit,) = capacity.recalled(jobs).values()
    assert circuit.refusals == 1, "both were asked for before either was refused"


def test_refusals_before_the_last_slice_do_not_count() -> None:
    job = waiting_job(
        request(B, Cause.STOCKOUT, NOW - 900, 1),
        request(B, None, NOW - 800, 2, ready=True),
        request(B, Cause.STOCKOUT, NOW - 60, 3),
    )
    assert [s.k for s in capacity.refusals(job)] == [3]
    assert capacity.waiting_since(job) == NOW - 60
    assert capacity.refusals(replace(job, fresh_at=NOW)) == [], "a person set it going again"


def test_a_permanent_refusal_lasts_until_a_person_resumes() -> None:
    job = waiting_job(request(B, Cause.PERMISSION, NOW - 60))
    assert [o.zone for o in capacity.allowed(job)] == ["us-east5-a"]
    assert capacity.refusals(job) == [], "time does not mend it"
    assert capacity.refused({}, job.slices[0], NOW) == {}, "nor does it bar other jobs"
    assert len(capacity.allowed(replace(job, fresh_at=NOW))) == 2
    nothing_left = waiting_job(
        request(A, Cause.STOCKOUT, NOW - 90),
        *(request(o, Cause.PERMISSION, NOW - 60, k) for k, o in ((2, A), (3, B))),
    )
    assert capacity.wait(nothing_left, {}, NOW) is None


def test_a_waiting_job_says_how_often_where_since_when_and_what_comes_next() -> None:
    # NOW is 02:46:40 UTC
    job = waiting_job(*(request(B, Cause.STOCKOUT, NOW - 60 * (5 - k), k) for k in range(1, 5)))
    pool = "us-east5-b/v6e-8/spot"
    circuits = {pool: Circuit(pool, Cause.STOCKOUT, 4, NOW - 240, NOW + 360, NOW)}
    text = capacity.waiting(job, circuits, NOW)
    assert text == (
        "4th stockout in us-east5-b since 02:42 UTC, next try there in 6 min, us-east5-a next now"
    )
    assert capacity.waiting(job, circuits, NOW + 2 * 86_400).startswith(
        "4th stockout in us-east5-b since 1970-01-01 02:42 UTC"
    ), "the time of day alone would be that of today"
    assert capacity.waiting(waiting_job(), {}, NOW) == ""
    later = replace(job, wake=NOW + 400)
    assert capacity.waiting(later, circuits, NOW).endswith(
        "there in 7 min, us-east5-a next in 7 min"
    )
    quota = waiting_job(request(A, Cause.QUOTA, NOW - 60), request(B, Cause.STOCKOUT, NOW - 30, 2))
    assert capacity.waiting(quota, {}, NOW) == (
        "1st stockout in us-east5-b since 02:46 UTC, next try there now"
    )
    wait = capacity.wait(job, circuits, NOW)
    assert (wait.times, wait.since, wait.again_at) == (4, NOW - 240, NOW + 360)
    assert (wait.refused.zone, wait.first.zone, wait.first_at) == ("us-east5-b", "us-east5-a", NOW)
    current = replace(request(A, None, NOW, 5), gone_at=None)
    asking = replace(job, state=State.PROVISIONING, slices=(*job.slices, current))
    assert capacity.waiting(asking, circuits, NOW) == (
        "4th stockout in us-east5-b since 02:42 UTC; asking in us-east5-a now"
    )


def test_ordinals() -> None:
    ordinals = [capacity.ordinal(n) for n in (1, 2, 3, 4, 11, 12, 22, 101, 111)]
    assert ordinals == ["1st", "2nd", "3rd", "4th", "11th", "12th", "22nd", "101st", "111th"]
