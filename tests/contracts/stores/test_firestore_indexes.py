"""`deploy/firestore.indexes.json` has the index of every query, and none that no query uses. The emulator needs none of
them, Firestore refuses a query without."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

from tests.support.firestore_network import Network
from tests.support.stores import a_job, an_event
from tpujob.adapters.firestore import Firestore, FirestoreStore

FILE = Path(__file__).parents[3] / "deploy" / "firestore.indexes.json"
Index = tuple[str, frozenset[str], tuple[tuple[str, str], ...]]


def needed(query: Any) -> Index | None:
    """The composite index that a query needs: what is compared for equality, then what it is ordered by."""
    compared = [(f.field_filter.field.field_path, f.field_filter.op.name) for f in filters(query)]
    equal = frozenset(name for name, op in compared if op == "EQUAL")
    order = tuple((o.field.field_path, o.direction.name) for o in query.order_by)
    ranged = {name for name, op in compared if op != "EQUAL"}
    assert ranged <= {name for name, _ in order}, "a range goes by the order's field"
    if not equal and len(order) == 1:
        return None  # every field has an index of its own
    return query.from_[0].collection_id, equal, order


def filters(query: Any) -> list[Any]:
    return list(query.where.composite_filter.filters)


def declared() -> set[Index]:
    found: set[Index] = set()
    for index in json.loads(FILE.read_text())["indexes"]:
        assert index["queryScope"] == "COLLECTION"
        *equal, last = index["fields"]
        names = frozenset(field["fieldPath"] for field in equal)
        found.add((index["collectionGroup"], names, ((last["fieldPath"], last["order"]),)))
    return found


def test_every_query_has_its_index_and_every_index_its_query(firestore_place: str) -> None:
    endpoint, _, project = firestore_place.partition("/")
    network = Network()
    store = FirestoreStore(Firestore(project, endpoint=endpoint, interceptors=[network]))
    job = store.create(a_job(), an_event())
    for user, name, live in product(("", "ana"), ("", "mlp"), (None, True, False)):
        store.list(user=user, name=name, live=live)
    store.events(job.id)
    store.events(job.id, after=1)
    for call in (store.damaged, store.zones, store.reputation.suspects):
        call()
    store.due(0)
    store.changes(store.changes(0)[0])
    store.remove(job.id, lease=None)
    store.close()
    asked = [r.structured_query for method, r, _ in network.seen if method == "RunQuery"]
    assert len(asked) >= 20
    assert {index for index in map(needed, asked) if index} == declared()


def test_the_text_of_records_and_events_is_in_no_index() -> None:
    """An indexed text of more than 1,500 bytes is cut, of a record with many hosts refused."""
    overrides = json.loads(FILE.read_text())["fieldOverrides"]
    exempt = {(o["collectionGroup"], o["fieldPath"]) for o in overrides if o["indexes"] == []}
    assert {("jobs", "document"), ("events", "document")} <= exempt
