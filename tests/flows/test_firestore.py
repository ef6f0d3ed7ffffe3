"""Two backends, as Cloud Run may run them, on one Firestore."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contracts.conftest import firestore_endpoint, firestore_place
from tests.contracts.firestore_network import LOSE, Network
from tests.flows.hour import Hour
from tpujob.adapters.firestore import FirestoreStore
from tpujob.adapters.firestore_calls import Firestore

_ = firestore_endpoint, firestore_place


@pytest.fixture
def networks() -> list[Network]:
    return [Network(), Network()]


@pytest.fixture
def stores(firestore_place: str, networks: list[Network]) -> Iterator[list[FirestoreStore]]:
    endpoint, _, project = firestore_place.partition("/")
    stores = [
        FirestoreStore(Firestore(project, endpoint=endpoint, interceptors=[each]), mirrored=True)
        for each in networks
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
    for n in networks:
        print(*sorted(n.billed.items()), sep="\n")
    led = {lease.owner for leases in hour.ledger.leases.values() for lease in leases}
    assert led == {"backend-0", "backend-1"}, "both had work"
