"""The Firestore store on a network that fails: nothing is lost or happens twice, and errors are clear."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import grpc
import pytest

from tests.support import stores
from tests.support.firestore_network import LOSE, Network
from tests.support.records import a_slice, accusation
from tests.support.stores import DAMAGE, a_job, an_event
from tests.support.waiting import until
from tpujob.adapters.firestore import Firestore, FirestoreStore
from tpujob.adapters.firestore.calls import PAGE, Patience
from tpujob.adapters.firestore.errors import REFUSALS
from tpujob.domain.model import Job, Suspect
from tpujob.errors import Fenced, NotFound, StoreError, Transient
from tpujob.ports import Lease


@dataclass
class Time:
    """Waits in no time, and remembers how long it would have been."""

    now: float = 0.0
    pauses: list[float] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def patience(self) -> Patience:
        return Patience(clock=lambda: self.now, sleep=self.sleep)


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def network() -> Network:
    return Network()


@pytest.fixture
def firestore(firestore_place: str, network: Network, time: Time) -> Firestore:
    endpoint, _, project = firestore_place.partition("/")
    return Firestore(project, endpoint=endpoint, patience=time.patience(), interceptors=[network])


@pytest.fixture
def store(firestore: Firestore) -> Iterator[FirestoreStore]:
    store = FirestoreStore(firestore)
    yield store
    store.close()


@pytest.fixture
def job(store: FirestoreStore) -> Job:
    return store.create(a_job(), an_event())


@contextmanager
def failing(network: Network, method: str, *faults: grpc.StatusCode | str) -> Iterator[None]:
    """The next requests of that method fail so, one after the other."""
    remaining = list(faults)
    network.fault = lambda called, _: remaining.pop(0) if remaining and called == method else None
    yield
    network.fault = lambda *_: None
    assert not remaining, f"{remaining} of {method} was never met"


def moved(store: FirestoreStore, job: Job, *, op: str = "op", lease: Lease | None = None) -> Job:
    version = job.version
    return store.commit(job, an_event("moved"), expected_version=version, op_id=op, lease=lease)


# Replies that are lost -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("leased", [True, False])
def test_a_commit_that_was_applied_although_its_reply_was_lost_is_recognised(
    store: FirestoreStore, network: Network, time: Time, job: Job, leased: bool
) -> None:
    lease = store.lease(job.id, "a", ttl=60) if leased else None
    with failing(network, "Commit", LOSE):
        assert moved(store, job, lease=lease).version == 2
    assert store.get(job.id).version == 2
    assert [e.seq for e in store.events(job.id)] == [1, 2]
    assert len(time.pauses) == 1, "it was tried again after a pause"


def test_a_write_whose_reply_is_lost_happens_once(store: FirestoreStore, network: Network) -> None:
    with failing(network, "Commit", LOSE):
        job = store.create(a_job(), an_event())
    assert [j.id for j in store.list()] == [job.id] == ["000001"]
    with failing(network, "Commit", LOSE):
        first = store.lease(job.id, "a", ttl=60)
    assert first
    assert store.lease(job.id, "b", ttl=60) is None
    with failing(network, "Commit", LOSE):
        store.release(first)
    second = store.lease(job.id, "b", ttl=60)
    assert second
    assert second.token > first.token
    with failing(network, "Commit", LOSE):
        store.reputation.accuse(["h1"], accusation())
    assert [s.accusations for s in store.reputation.suspects()] == [(accusation(),)]
    with failing(network, "Commit", LOSE):
        store.remove(job.id, lease=second)
    with pytest.raises(NotFound):
        store.get(job.id)


# Requests that fail --------------------------------------------------------------------------------------------------

AGAIN = [code for code in grpc.StatusCode if code.name not in REFUSALS and code.value[0] != 0]


@pytest.mark.parametrize("code", AGAIN, ids=lambda code: code.name)
def test_transient_errors_are_retried_for_writes_and_reads(
    store: FirestoreStore, network: Network, time: Time, job: Job, code: grpc.StatusCode
) -> None:
    lease = store.lease(job.id, "a", ttl=60)
    with failing(network, "BatchGetDocuments", code, code):
        assert moved(store, job, lease=lease).version == 2
    with failing(network, "Commit", code):
        assert moved(store, store.get(job.id), op="next", lease=lease).version == 3
    with failing(network, "RunQuery", code):
        assert len(store.list()) == 1
    assert len(time.pauses) == 4


@pytest.mark.parametrize("code", list(REFUSALS))
def test_a_permanent_refusal_is_raised_at_once_with_a_hint(
    store: FirestoreStore, network: Network, time: Time, code: str
) -> None:
    network.fault = lambda *_: grpc.StatusCode[code]
    for call in (store.list, lambda: store.get("000001")):
        with pytest.raises(StoreError, match="Firestore refused") as caught:
            call()
        assert caught.value.hint == REFUSALS[code]
        assert not isinstance(caught.value, NotFound), "a refused read is no missing job"
    assert time.pauses == []


def test_an_outage_ends_in_an_error_for_a_person_after_bounded_tries(
    store: FirestoreStore, network: Network, time: Time, job: Job
) -> None:
    network.fault = lambda *_: grpc.StatusCode.UNAVAILABLE
    before = len(network.seen)
    with pytest.raises(Transient, match="read job 000001: Firestore does not answer"):
        store.get(job.id)
    assert len(network.seen) - before == Patience().tries
    assert time.now <= Patience().seconds
    assert time.pauses[-1] > 8 * time.pauses[0], "from try to try it waits longer"
    network.fault = lambda *_: None
    assert store.get(job.id) == job, "nothing is needed but the end of the outage"


def test_endless_contention_is_an_error(store: FirestoreStore, network: Network, job: Job) -> None:
    for code in (grpc.StatusCode.ABORTED, grpc.StatusCode.FAILED_PRECONDITION):
        network.fault = lambda method, _, code=code: code if method == "Commit" else None
        with pytest.raises(Transient, match="write job 000001"):
            moved(store, job)
    network.fault = lambda *_: None
    assert store.get(job.id) == job


def test_every_request_has_a_time_limit(store: FirestoreStore, network: Network, job: Job) -> None:
    lease = store.lease(job.id, "a", ttl=60)
    moved(store, job, lease=lease)
    with pytest.raises(Fenced):
        moved(store, job, op="z", lease=Lease(job.id, "z", 0, 0.0))
    for call in (store.list, store.damaged, store.zones, store.reputation.suspects):
        call()
    store.changes(0)
    store.due(0)
    store.reputation.put(Suspect("h", "z", 0.0, "bad"))
    store.reputation.remove("h")
    store.remove(job.id, lease=lease)
    limits = {(method, timeout) for method, _, timeout in network.seen}
    assert {m for m, _ in limits} == {"BatchGetDocuments", "Commit", "RunQuery", "Rollback"}
    assert all(timeout and timeout <= Patience().request for _, timeout in limits), limits


def test_transactions_only_read_and_commit(
    store: FirestoreStore, network: Network, job: Job
) -> None:
    lease = store.lease(job.id, "a", ttl=60)
    network.seen.clear()
    moved(store, job, lease=lease)
    assert network.methods() == ["BatchGetDocuments", "Commit"]
    locked, commit = (request for _, request, _ in network.seen)
    assert "read_write" in locked.new_transaction
    assert commit.transaction


def test_unused_locks_are_given_back(store: FirestoreStore, network: Network, job: Job) -> None:
    store.lease(job.id, "a", ttl=60)
    network.seen.clear()
    with pytest.raises(Fenced):
        moved(store, job, lease=Lease(job.id, "old", 0, 0.0))
    assert network.methods() == ["BatchGetDocuments", "Rollback"]


def test_without_credentials_the_message_says_what_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere/key.json")
    store = FirestoreStore(Firestore("project"))
    with pytest.raises(StoreError, match="no credentials") as caught:
        store.get("000001")
    assert "gcloud auth" in caught.value.hint


# Sizes and damage ----------------------------------------------------------------------------------------------------


def test_a_record_of_many_hosts_is_kept_and_one_too_large_is_refused(store: FirestoreStore) -> None:
    slices = tuple(a_slice(k) for k in range(1, 1500))
    stored = store.create(a_job(slices=slices), an_event())
    assert FirestoreStore(store._db).get(stored.id) == stored
    noise = random.Random(7).randbytes(1_200_000).hex()
    with pytest.raises(StoreError, match="at most 1 MiB; nothing was stored"):
        store.create(a_job(message=noise), an_event())
    with pytest.raises(StoreError, match="an event of job"):
        store.commit(stored, an_event(noise), expected_version=1, op_id="x", lease=None)
    assert [j.version for j in store.list()] == [1]


def test_many_documents_are_read_in_pages_that_a_request_has_time_for(
    store: FirestoreStore, firestore: Firestore, network: Network
) -> None:
    made = store.create_many([(a_job(wake=n % 2), an_event()) for n in range(5)], key="k")
    for call in (store.list, store.damaged, lambda: store.due(9), lambda: store.list(live=True)):
        network.seen.clear()
        call()
        assert [r.structured_query.limit for _, r, _ in network.seen] == [PAGE]
    for order in ("number", "wake"):
        for down in (True, False):
            options = {"where": [("live", "==", True)], "newest_first": down}
            pages = firestore.pages("list", "jobs", order=order, limit=2, **options)
            ids = [[doc.id for doc in page] for page in pages]
            assert [len(page) for page in ids] == [2, 2, 1]
            assert sorted(id for page in ids for id in page) == [job.id for job in made]


def test_tokens_grow_although_the_document_of_the_lease_is_lost(
    store: FirestoreStore, firestore: Firestore, job: Job
) -> None:
    for owner in "abc":
        old = store.lease(job.id, owner, ttl=0)
    assert old
    moved(store, job, lease=old)
    firestore.remove("lose", [f"leases/{job.id}"])
    new = store.lease(job.id, "d", ttl=60)
    assert new
    assert new.token > old.token
    with pytest.raises(Fenced, match="led by d"):
        moved(store, store.get(job.id), op="late", lease=old)


# A backend's memory ---------------------------------------------------------------------------------------------------


@pytest.fixture
def backend(firestore: Firestore) -> Iterator[FirestoreStore]:
    backend = FirestoreStore(firestore, mirrored=True)
    yield backend
    backend.close()


@pytest.fixture
def other(firestore_place: str) -> Iterator[FirestoreStore]:
    """Another process, on a network without faults."""
    other = FirestoreStore(stores.firestore(firestore_place))
    yield other
    other.close()


def silent(network: Network, backend: FirestoreStore, job_id: str) -> bool:
    """Whether a look at the job, and at what is due, asks nothing of the database."""
    before = len(network.seen)
    backend.peek(job_id)
    backend.due(0)
    return len(network.seen) == before


def test_changes_from_memory_have_the_numbers_that_the_database_gives(
    backend: FirestoreStore, other: FirestoreStore, network: Network, job: Job
) -> None:
    two = other.create(a_job(), an_event())
    until(lambda: silent(network, backend, job.id), "the mirror is up to date")
    marker = moved(other, other.create(a_job(), an_event()))
    start, _ = other.changes(0)
    until(lambda: backend.peek(marker.id) == marker, "it has the newest")
    before = len(network.seen)
    moved(other, job)
    until(lambda: backend.changes(start)[1] == [job.id], "a commit")
    other.remove(two.id, lease=None)
    until(lambda: backend.changes(start)[1] == [job.id, two.id], "a removal")
    assert len(network.seen) == before, "and nothing was asked"
    assert backend.changes(start) == other.changes(start)
    newest, _ = other.changes(0)
    assert backend.changes(newest) == (newest, [])
    assert backend.newest() == newest
    assert backend.changes(0) == other.changes(0), "what came before the stream is asked for"


def test_a_backend_that_was_just_started_asks_once_for_what_came_before_its_stream(
    backend: FirestoreStore, other: FirestoreStore, network: Network, job: Job
) -> None:
    before = other.newest()
    moved(other, job)
    until(lambda: silent(network, backend, job.id), "the mirror is up to date")
    newest, ids = backend.changes(before)
    assert ids == [job.id]
    calls = len(network.seen)
    assert backend.changes(newest) == (newest, [])
    assert len(network.seen) == calls, "also while no job changes"


def test_a_backend_looks_at_its_jobs_from_memory_and_hears_of_others(
    backend: FirestoreStore, other: FirestoreStore, network: Network
) -> None:
    first, second = (other.create(a_job(wake=wake), an_event()) for wake in (20.0, 10.0))
    assert backend.due(30) == [second.id, first.id]
    assert backend.peek(first.id) == first
    until(lambda: silent(network, backend, first.id), "the mirror is up to date")
    assert backend.due(30) == [second.id, first.id]
    assert backend.due(15) == [second.id]
    theirs = moved(other, first)
    until(lambda: backend.peek(first.id) == theirs, "what another process wrote")
    mine = moved(backend, theirs, op="mine")
    assert backend.peek(first.id) == mine, "its own commits it knows at once"
    third = other.create(a_job(wake=5.0), an_event())
    until(lambda: backend.due(30) == [third.id, second.id, first.id], "a new job")
    other.remove(second.id, lease=None)
    until(lambda: backend.due(30) == [third.id, first.id], "a removal")
    with pytest.raises(NotFound):
        backend.peek(second.id)
    assert silent(network, backend, first.id)


def test_while_its_stream_is_broken_a_backend_asks(
    backend: FirestoreStore, other: FirestoreStore, network: Network, job: Job
) -> None:
    until(lambda: silent(network, backend, job.id), "the mirror is up to date")
    network.fault = lambda method, _: grpc.StatusCode.UNAVAILABLE if method == "Listen" else None
    backend._follower._call.cancel()  # type: ignore[union-attr]
    until(lambda: not silent(network, backend, job.id), "it asks")
    theirs = moved(other, job)
    assert backend.peek(job.id) == theirs, "it hears the newest"
    theirs = moved(other, theirs, op="more")
    network.fault = lambda *_: None
    until(lambda: silent(network, backend, job.id), "the stream works again")
    assert backend.peek(job.id) == theirs, "and it heard first what it had missed"


def test_a_damaged_record_is_not_due_from_memory_either(
    backend: FirestoreStore, other: FirestoreStore, network: Network, firestore_place: str
) -> None:
    good, bad = (other.create(a_job(wake=1.0), an_event()) for _ in range(2))
    until(lambda: silent(network, backend, good.id), "the mirror is up to date")
    DAMAGE["firestore"](firestore_place, bad.id)
    until(lambda: backend.due(9) == [good.id], "it is left out")
    with pytest.raises(StoreError, match="damaged"):
        backend.peek(bad.id)
