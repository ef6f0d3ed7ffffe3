"""`deploy/firestore.indexes.json` has the index of every query, and none that no query uses. The emulator needs none of
them, Firestore refuses a query without."""

import json
from itertools import product
from typing import Any

from tests.support.firestore_network import Network
from tests.support.paths import ROOT
from tests.support.stores import a_job, an_event, firestore
from tpujob.adapters.firestore import FirestoreStore
from tpujob.ports import EventKey

FILE = ROOT / "deploy" / "firestore.indexes.json"
Index = tuple[str, frozenset[str], tuple[tuple[str, str], ...]]


def needed(query: Any) -> Index | None:
    """The composite index that a query needs: what is compared for equality, then what it is ordered by."""
    compared = [(f.field_filter.field.field_path, f.field_filter.op.name) for f in filters(query)]
    equal = frozenset(name for name, op in compared if op == "EQUAL")
    order = tuple((o.field.field_path, o.direction.name) for o in query.order_by)
    ranged = {name for name, op in compared if op != "EQUAL"}
    assert ranged <= {name for name, _ in order}, "a range goes by the order's field"
    used = {*(name for name, _ in compared), *(name for name, _ in order)}
    without = {field["fieldPath"] for field in overrides(query.from_[0].collection_id)}
    assert query.from_[0].all_descendants or not used & without, "a field without its usual indexes"
    if order[-1][0] == "__name__":  # which every index ends with
        order = order[:-1]
    if len(equal) + len(order) <= 1:
        return None  # every field has an index of its own
    return query.from_[0].collection_id, equal, order


def overrides(collection: str) -> list[Any]:
    fields = json.loads(FILE.read_text())["fieldOverrides"]
    return [field for field in fields if field["collectionGroup"] == collection]


def filters(query: Any) -> list[Any]:
    return list(query.where.composite_filter.filters)


def declared() -> set[Index]:
    indexes: set[Index] = set()
    for index in json.loads(FILE.read_text())["indexes"]:
        assert index["queryScope"] == "COLLECTION"
        *equal, last = index["fields"]
        names = frozenset(field["fieldPath"] for field in equal)
        indexes.add((index["collectionGroup"], names, ((last["fieldPath"], last["order"]),)))
    return indexes


def test_every_query_has_its_index_and_every_index_its_query(firestore_place: str) -> None:
    network = Network()
    store = FirestoreStore(firestore(firestore_place, network))
    job = store.create(a_job(), an_event())
    for name, live in product(("", "mlp"), (None, True, False)):
        store.list(name=name, live=live)
    store.walk_page = 1
    assert len([*store.walk()]) == 1  # a page, and an empty one after it
    store.events(job.id)
    store.events(job.id, after=1)
    store.recent(limit=1)
    store.recent(before=EventKey(1.0, job.id, 1), limit=1)
    for call in (store.damaged, store.zones, store.reputation.suspects, store.members.all):
        call()
    store.members.with_id("google:1")
    for channel in ("", "lab"):
        store.outbox.messages(channel=channel, limit=5)
    store.outbox.due(0, 5)
    store.outbox.forget(0, 5)
    store.due(0)
    store.changes(store.changes(0)[0])
    store.remove(job.id, lease=None)
    store.close()
    queries = [r.structured_query for method, r, _ in network.seen if method == "RunQuery"]
    assert len(queries) >= 20
    assert {index for index in map(needed, queries) if index} == declared()
    everywhere = {
        (q.from_[0].collection_id, *ordered(q)) for q in queries if q.from_[0].all_descendants
    }
    assert everywhere == declared_everywhere() != set()


def ordered(query: Any) -> tuple[str, str]:
    first = query.order_by[0]
    return first.field.field_path, first.direction.name


def declared_everywhere() -> set[tuple[str, str, str]]:
    """Single fields that are indexed over all collections of a name: Firestore makes none by itself."""
    return {
        (field["collectionGroup"], field["fieldPath"], index["order"])
        for field in json.loads(FILE.read_text())["fieldOverrides"]
        for index in field["indexes"]
        if index["queryScope"] == "COLLECTION_GROUP"
    }


def test_the_text_of_records_and_events_is_in_no_index() -> None:
    """An indexed text of more than 1,500 bytes is cut, of a record with many hosts refused."""
    overrides = json.loads(FILE.read_text())["fieldOverrides"]
    exempt = {(o["collectionGroup"], o["fieldPath"]) for o in overrides if o["indexes"] == []}
    kept_as_text = {"jobs", "events", "messages"}
    assert {(collection, "document") for collection in kept_as_text} <= exempt
