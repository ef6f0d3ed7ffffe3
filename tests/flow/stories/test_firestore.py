"""Two backends, as Cloud Run may run them, on one Firestore."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.firestore_network import LOSE, Network
from tests.support.hour import Hour
from tests.support.stores import a_job, an_event, firestore
from tests.support.world import orphans
from tpujob.adapters.firestore import FirestoreStore
from tpujob.config import settings
from tpujob.domain.model import State
from tpujob.domain.money.estimate import FIRESTORE
from tpujob.engine import Loop
from tpujob.wiring import world


@pytest.fixture
def networks() -> list[Network]:
    return [Network(), Network()]


@pytest.fixture
def stores(firestore_place: str, networks: list[Network]) -> Iterator[list[FirestoreStore]]:
    stores = [
        FirestoreStore(firestore(firestore_place, network), mirrored=True) for network in networks
    ]
    yield stores
    for store in stores:
        store.close()


def test_two_backends_lose_no_update_and_never_lead_at_once(
    stores: list[FirestoreStore], networks: list[Network]
) -> None:
    """An hour with three jobs, two preemptions each, and every fortieth commit's reply lost."""
    for network in networks:
        count = iter(range(1, 100_000))
        network.fault = lambda method, _, count=count: (
            LOSE if method == "Commit" and next(count) % 40 == 0 else None
        )
    hour = Hour(stores, jobs=3)
    hour.run(preempted=[900, 2400])
    for network in networks:
        network.fault = lambda *_: None
    hour.check(attempts=3)
    led = {lease.owner for leases in hour.ledger.leases.values() for lease in leases}
    assert led == {"backend-0", "backend-1"}, "both had work"


def test_an_hour_takes_no_more_operations_than_estimates_count_on(
    stores: list[FirestoreStore], networks: list[Network]
) -> None:
    """Jobs start, are preempted and end in it, with two backends."""
    jobs = 4
    hour = Hour(stores, jobs)
    hour.run(preempted=[1800])
    billed = Counter[str]()
    for network in networks:
        for (kind, _), count in network.billed.items():
            billed[kind] += count
    hour.check(attempts=2)
    assert billed["reads"] > billed["writes"] > 0
    assert {kind for kind in billed if billed[kind] / jobs > FIRESTORE[kind]} == set(), dict(billed)


def test_a_backend_that_starts_reads_no_job_that_has_ended(firestore_place: str) -> None:
    network = Network()
    store = FirestoreStore(firestore(firestore_place, network))
    ended = a_job(state=State.SUCCEEDED, finished_at=2000.0)
    store.create_many([(ended, an_event()) for _ in range(20)], key="k")
    hour = Hour([store], jobs=0)
    network.billed.clear()
    Loop(hour.backends[0].reconciler, store, hour.clock, sweep=lambda: None).make_pass()
    assert network.total("reads") < 5, network.billed
    store.close()


def test_a_sweep_and_what_is_tidied_after_it_read_each_job_once(
    stores: list[FirestoreStore], networks: list[Network]
) -> None:
    reconciler = Hour(stores[:1], jobs=3).backends[0].reconciler
    networks[0].billed.clear()
    reconciler.tidy(orphans(reconciler, store=stores[0]).sweep().live)
    assert networks[0].billed["reads", "query jobs by number"] == 3


def test_settings_of_a_backend_lead_to_its_database(firestore_place: str, tmp_path: Path) -> None:
    endpoint, _, project = firestore_place.partition("/")
    env = {
        "TPUJOB_STATE": str(tmp_path),
        "TPUJOB_PROJECT": project,
        "TPUJOB_STORE": "firestore",
        "FIRESTORE_EMULATOR_HOST": endpoint,
    }
    store = world.open_store(settings.load(env=env))
    made = store.create(a_job(wake=1.0), an_event())
    assert made.id in store.due(2)
    store.close()
    assert list(tmp_path.iterdir()) == [], "nothing of it is on this machine"
