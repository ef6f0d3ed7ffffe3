"""Each slice is requested, looked at and deleted through the adapter of its own provider, and through no other."""

from dataclasses import replace

import pytest

from tests.contract.slices.tpu_slices import SLICE
from tests.support.world import Clock, Cloud, Faults
from tpujob.adapters.providers import Providers
from tpujob.domain.model import CLOUD_TPU
from tpujob.domain.observations import Absent, Present, Unknown
from tpujob.errors import Transient

OTHER = replace(SLICE, name="tj-000007-2", provider="compute-engine")


@pytest.fixture
def clouds() -> dict[str, Cloud]:
    clock = Clock()
    return {name: Cloud(clock, Faults()) for name in (CLOUD_TPU, "compute-engine")}


def test_each_provider_is_asked_for_its_own_slices(clouds: dict[str, Cloud]) -> None:
    both = Providers(clouds)
    for slice_ in (SLICE, OTHER):
        both.create(slice_, job_id="000007", public_key="", timeout=10)
        assert isinstance(both.look(slice_, timeout=10), Present)
    assert {name: [*cloud.machines] for name, cloud in clouds.items()} == {
        CLOUD_TPU: [SLICE.name],
        "compute-engine": [OTHER.name],
    }
    assert {*both.survey([SLICE.zone], timeout=10).seen} == {SLICE.name, OTHER.name}
    assert {o.name for o in both.list_all([SLICE.zone], timeout=10)} == {SLICE.name, OTHER.name}
    both.delete(OTHER, timeout=10)
    assert isinstance(both.look(OTHER, timeout=10), Absent)
    assert [*clouds[CLOUD_TPU].machines] == [SLICE.name]


def test_a_zone_that_one_provider_missed_is_missed(clouds: dict[str, Cloud]) -> None:
    clouds["compute-engine"].unlisted.add(SLICE.zone)
    assert SLICE.zone in Providers(clouds).survey([SLICE.zone], timeout=10).missed


def test_a_slice_of_a_provider_that_the_backend_lacks_is_not_lost(clouds: dict[str, Cloud]) -> None:
    """After a rollback such a slice is neither taken for gone, nor forgotten when its deletion is due."""
    old = Providers({CLOUD_TPU: clouds[CLOUD_TPU]})
    seen = old.look(OTHER, timeout=10)
    assert isinstance(seen, Unknown)
    assert "compute-engine" in seen.error
    with pytest.raises(Transient, match="this backend lacks"):
        old.delete(OTHER, timeout=10)
    with pytest.raises(Transient):
        old.create(OTHER, job_id="000007", public_key="", timeout=10)
