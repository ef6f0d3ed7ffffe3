"""The knowledge of one backend about refused offers, when several of its jobs look at once."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from tests.support.records import NOW, A, B, job_in, request
from tests.support.stores import in_memory
from tests.support.world import Clock
from tpujob.domain.capacity.circuits import PROBE
from tpujob.domain.events import Event, EventKind
from tpujob.domain.model import Cause, Job, State
from tpujob.engine.spending import CircuitBreaker
from tpujob.errors import Conflict

C = replace(A, zone="us-east5-c")


def asking(refused: Cause | None, at: float) -> Job:
    slice = replace(request(B, refused, at), gone_at=None)
    return replace(job_in(State.PROVISIONING), slices=(slice,))


def note(offers: CircuitBreaker, kind: EventKind, job: Job, at: float = NOW) -> None:
    offers.note(job, job, Event(kind, at, State.RELEASING, "refused"))


def test_refusals_a_backend_sees_are_added_to_those_in_the_records() -> None:
    store = in_memory()
    waits = replace(job_in(State.QUEUED), slices=(request(A, Cause.STOCKOUT, NOW - 60),))
    ended = replace(waits, state=State.FAILED, slices=(request(C, Cause.STOCKOUT, NOW - 60),))
    for job in (waits, ended):
        store.create(job, Event(EventKind.CREATED, NOW, job.state, "created"))
    offers = CircuitBreaker(store, Clock(NOW))
    note(offers, EventKind.RELEASE_STARTED, asking(Cause.STOCKOUT, NOW - 1))
    assert set(offers.circuits()) == {"us-east5-a/v6e-8/spot/8", "us-east5-b/v6e-8/spot/8"}, (
        "nobody waits on account of a job that has ended"
    )


def test_only_events_about_an_offer_change_its_circuit() -> None:
    offers, refused = CircuitBreaker(in_memory(), Clock(NOW)), asking(Cause.STOCKOUT, NOW)
    for kind in EventKind:
        if kind not in (
            EventKind.RELEASE_STARTED,
            EventKind.SLICE_READY,
            EventKind.CANDIDATE_LOST,
            EventKind.CANDIDATE_PROMOTED,
        ):
            note(offers, kind, refused)
    assert offers.circuits() == {}
    note(offers, EventKind.RELEASE_STARTED, asking(None, NOW))
    assert offers.circuits() == {}, "it was given back, not refused"
    note(offers, EventKind.RELEASE_STARTED, refused)
    circuits = dict(offers.circuits())
    assert len(circuits) == 1
    note(offers, EventKind.DELETE_ASKED, refused, NOW + 5)
    assert offers.circuits() == circuits
    note(offers, EventKind.SLICE_READY, refused, NOW + 5)
    assert offers.circuits() == {}, "it can be had"


def test_an_offer_may_be_asked_for_from_the_moment_it_opens() -> None:
    offers = CircuitBreaker(in_memory(), Clock(NOW))
    note(offers, EventKind.RELEASE_STARTED, asking(Cause.STOCKOUT, NOW))
    (circuit,) = offers.circuits().values()
    with pytest.raises(Conflict, match="another job is requesting v6e-8 in us-east5-b just now"):
        note(offers, EventKind.SLICE_REQUESTED, asking(None, NOW), circuit.until - 0.01)
    note(offers, EventKind.SLICE_REQUESTED, asking(None, NOW), circuit.until)


def test_of_jobs_that_see_an_offer_open_at_once_only_one_asks() -> None:
    offers = CircuitBreaker(in_memory(), Clock(NOW))
    refused = asking(Cause.STOCKOUT, NOW)
    offers.note(refused, refused, Event(EventKind.RELEASE_STARTED, NOW, State.RELEASING, "refused"))
    then = NOW + 60
    asks = asking(None, then)
    wish = Event(EventKind.SLICE_REQUESTED, then, State.PROVISIONING, "asked for a slice")

    def ask(_: int) -> bool:
        try:
            offers.note(asks, asks, wish)
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(8) as jobs:
        assert sum(jobs.map(ask, range(8))) == 1, "the others wait for what comes of it"
    assert {c.until for c in offers.circuits().values()} == {then + PROBE}


def test_a_circuit_that_a_clock_ahead_of_time_has_opened_is_half_open() -> None:
    clock = Clock(NOW + 2 * 3600)
    offers = CircuitBreaker(in_memory(), clock)
    refused = replace(request(B, Cause.QUOTA, clock.time), gone_at=None)
    note(
        offers,
        EventKind.RELEASE_STARTED,
        replace(job_in(State.PROVISIONING), slices=(refused,)),
        clock.time,
    )
    assert all(c.until > clock.time for c in offers.circuits().values())
    clock.time = NOW
    assert [c.until for c in offers.circuits().values()] == [NOW]
