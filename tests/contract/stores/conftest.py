"""Each test of a store runs once for each adapter."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.stores.place import Place
from tests.support.stores import ADAPTERS, a_job, an_event
from tpujob.domain.model import Job
from tpujob.ports import Store


@pytest.fixture(params=ADAPTERS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    elsewhere = {"firestore": "firestore_place"}  #: the fixture that makes the place, if any does
    fixture = elsewhere.get(request.param)
    where = request.getfixturevalue(fixture) if fixture else str(tmp_path / "state")
    place = Place(request.param, where)
    yield place
    for store in place.opened:
        store.close()
    for process in place.running:
        process.kill()
        process.communicate()


@pytest.fixture
def store(place: Place) -> Store:
    return place.open()


@pytest.fixture
def job(store: Store) -> Job:
    return store.create(a_job(), an_event())
