"""Each slice is requested, looked at and deleted through its own provider, and no provider waits for another."""

import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.records import NOW, a_slice
from tests.support.stage import Stage, leftover
from tests.support.waiting import until
from tests.support.world import Clock, Cloud, Faults
from tpujob.domain.hardware.generations import CLOUD_TPU
from tpujob.domain.model import Slice
from tpujob.domain.observations import Absent, Present, SliceSeen, Unknown
from tpujob.engine import Orphans
from tpujob.engine.slice_cache import SliceCache
from tpujob.errors import Refused, Transient
from tpujob.ports import Owned, Providers, SliceSurvey, types_in
from tpujob.ports.routing import AT_ONCE

ENGINE = "compute-engine"
ZONE = "us-central2-b"
OURS, OTHER = a_slice(), a_slice(2, provider=ENGINE)


class Held(Cloud):
    """A cloud that answers no call until `go`."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock, Faults())
        self.go = threading.Event()
        self.waiting: list[None] = []

    def _answer(self) -> None:
        self.waiting.append(None)
        assert self.go.wait(60)

    def look(self, slice: Slice, *, timeout: float) -> SliceSeen:
        self._answer()
        return super().look(slice, timeout=timeout)

    def survey(self, zones: Collection[str], *, timeout: float) -> SliceSurvey:
        self._answer()
        return super().survey(zones, timeout=timeout)


class Types:
    """A catalog with one answer."""

    def __init__(self, answer: frozenset[str] | Refused | None) -> None:
        self._answer = answer

    def types(self, zone: str) -> frozenset[str] | None:
        assert zone == ZONE
        if isinstance(self._answer, Refused):
            raise self._answer
        return self._answer


@pytest.fixture
def clock() -> Clock:
    made = Clock()
    made.time = NOW
    return made


@pytest.fixture
def clouds(clock: Clock) -> dict[str, Cloud]:
    return {name: Cloud(clock, Faults()) for name in (CLOUD_TPU, ENGINE)}


def test_each_provider_is_asked_for_its_own_slices(clouds: dict[str, Cloud]) -> None:
    both = Providers(clouds)
    for slice_ in (OURS, OTHER):
        both.create(slice_, job_id="000001", public_key="", timeout=10)
        assert isinstance(both.look(slice_, timeout=10), Present)
    assert {name: [*cloud.machines] for name, cloud in clouds.items()} == {
        CLOUD_TPU: [OURS.name],
        ENGINE: [OTHER.name],
    }
    both.delete(OTHER, timeout=10)
    assert isinstance(both.look(OTHER, timeout=10), Absent)
    assert [*clouds[CLOUD_TPU].machines] == [OURS.name]


def test_a_slice_of_a_provider_that_the_backend_lacks_is_not_lost(clouds: dict[str, Cloud]) -> None:
    """After a rollback such a slice is neither taken for gone, nor forgotten when its deletion is due."""
    old = Providers({CLOUD_TPU: clouds[CLOUD_TPU]})
    seen = old.look(OTHER, timeout=10)
    assert isinstance(seen, Unknown)
    assert ENGINE in seen.error
    with pytest.raises(Transient, match="this backend lacks"):
        old.delete(OTHER, timeout=10)
    with pytest.raises(Transient):
        old.create(OTHER, job_id="000001", public_key="", timeout=10)


def test_a_provider_that_does_not_answer_delays_no_slice_of_another(clock: Clock) -> None:
    """Neither by its lists nor by all the looks by name that wait for it: workers are left for the others."""
    fast, slow = Cloud(clock, Faults()), Held(clock)
    fast.add(OURS, "000001")
    providers = Providers({CLOUD_TPU: fast, ENGINE: slow})
    caches = {name: SliceCache(providers, name, clock) for name in providers.slices}
    others = [a_slice(k, provider=ENGINE) for k in range(2, 66)]

    def look(slice_: Slice) -> SliceSeen:
        return caches[slice_.provider].look(slice_, timeout=10)[0]

    with ThreadPoolExecutor(32) as workers:
        try:
            looks = [workers.submit(look, slice_) for slice_ in others]
            until(lambda: len(slow.waiting) == 1 + AT_ONCE, "one list and looks by name waiting")
            refused = until(lambda: _ended(looks, 63 - AT_ONCE), "all other looks answered")
            assert {type(seen) for seen in refused} == {Unknown}
            assert isinstance(workers.submit(look, OURS).result(60), Present)
            with pytest.raises(Transient, match=f"{AT_ONCE} calls wait for answers of"):
                providers.delete(OTHER, timeout=10)
        finally:
            slow.go.set()
    assert isinstance(providers.look(OTHER, timeout=10), Absent), "its calls are over"


def _ended(looks: Sequence[Future[SliceSeen]], count: int) -> list[SliceSeen]:
    """Return the results of those that have ended, if there are so many."""
    results = [future.result() for future in looks if future.done()]
    return results if len(results) == count else []


def test_the_only_provider_has_all_workers(clock: Clock) -> None:
    slow = Held(clock)
    providers = Providers({CLOUD_TPU: slow})
    with ThreadPoolExecutor(2 * AT_ONCE) as workers:
        try:
            for _ in range(2 * AT_ONCE):
                workers.submit(providers.look, OURS, timeout=10)
            until(lambda: len(slow.waiting) == 2 * AT_ONCE, "all looks waiting")
        finally:
            slow.go.set()


def test_one_sweep_lists_all_providers_at_once_and_the_outage_of_one_keeps_no_orphan_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path)
    leftover(stage, "tj-000077-1", ZONE)
    stage.hosts.keys.add("tj-000066-1")
    other, together = Cloud(stage.clock, Faults()), threading.Barrier(2, timeout=60)

    def meeting(
        real: Callable[..., list[Owned]], error: Transient | None = None
    ) -> Callable[..., list[Owned]]:
        def list_all(zones: Sequence[str], *, timeout: float) -> list[Owned]:
            together.wait()
            if error:
                raise error
            return real(zones, timeout=timeout)

        return list_all

    away = Transient("503 the service is unavailable")
    monkeypatch.setattr(stage.cloud, "list_all", meeting(stage.cloud.list_all))
    monkeypatch.setattr(other, "list_all", meeting(other.list_all, away))
    both = Providers({CLOUD_TPU: stage.cloud, ENGINE: other})
    sweep = Orphans(stage.store, both, stage.hosts, stage.clock, zones=lambda: [ZONE])
    swept = sweep.sweep()
    assert [owned.name for owned in swept.deleted] == ["tj-000077-1"]
    assert swept.unlisted == {ENGINE: "503 the service is unavailable"}
    assert stage.hosts.kept() == ["tj-000066-1"], "its slice may be at the other provider"


CLOSED = Refused("the zone is not open", cause="PERMISSION")


@pytest.mark.parametrize(
    ("answers", "types"),
    [
        ([{"v4-8"}], {"v4-8"}),
        ([{"v4-8"}, {"v6e-8"}], {"v4-8", "v6e-8"}),
        ([{"v4-8"}, None], None),
        ([CLOSED, {"v6e-8"}], {"v6e-8"}),
        ([CLOSED, None], None),
    ],
)
def test_a_zone_offers_what_any_provider_lists_there(
    answers: list[set[str] | Refused | None], types: set[str] | None
) -> None:
    """Unless a provider that may offer more does not answer."""
    catalogs = {
        str(place): Types(frozenset(answer) if isinstance(answer, set) else answer)
        for place, answer in enumerate(answers)
    }
    assert types_in(catalogs, ZONE) == types


def test_a_zone_that_is_open_at_no_provider_is_refused() -> None:
    with pytest.raises(Refused, match="the zone is not open"):
        types_in({CLOUD_TPU: Types(CLOSED), ENGINE: Types(CLOSED)}, ZONE)
