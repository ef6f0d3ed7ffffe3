"""What one backend knows of offers that were refused, when several of its jobs look at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from tests.domain.test_capacity import FULL, B, request
from tests.domain.test_decide import NOW, job_in
from tests.simulation.store import in_memory
from tpujob.domain.capacity import PROBE
from tpujob.domain.model import Cause, Event, EventKind, Job, State
from tpujob.errors import Conflict
from tpujob.offers import Offers


def asking(refused: Cause | None, at: float) -> Job:
    slice = replace(request(B, refused, at), gone_at=None)
    return replace(job_in(State.PROVISIONING), slices=(slice,))


def test_of_jobs_that_see_an_offer_open_at_the_same_moment_one_asks() -> None:
    offers = Offers(in_memory())
    refused = asking(Cause.STOCKOUT, NOW)
    offers.note(refused, refused, Event(EventKind.RELEASE_STARTED, NOW, State.RELEASING, FULL))
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
