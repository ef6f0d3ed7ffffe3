"""The contract of every Store, on every adapter. A new adapter is one line in `stores.py`."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from tests.contract.stores.place import Place, go
from tests.support.records import a_slice
from tests.support.stores import a_job, an_event, count_up
from tests.support.waiting import LONG
from tpujob.domain.model import DesiredState, Job, State
from tpujob.errors import Conflict, Fenced, NotFound, StoreError
from tpujob.ports import EventKey, Lease, Store, Write


def moved(store: Store, job: Job, op: str = "", **fields: object) -> Job:
    """The job after one more commit."""
    return store.commit(
        replace(job, **fields),
        an_event("moved"),
        expected_version=job.version,
        op_id=op or f"op-{job.version}",
        lease=None,
    )


def test_each_opener_reads_the_identity(store: Store, place: Place, tmp_path: Path) -> None:
    store.create(a_job(), an_event())
    with ThreadPoolExecutor(4) as pool:
        read = set(
            pool.map(lambda opened: opened.identity(), [store, *(place.open() for _ in range(3))])
        )
    (identity,) = read
    elsewhere = place.where + "-b" if place.adapter == "firestore" else str(tmp_path / "b")
    other = Place(place.adapter, elsewhere).open()
    assert other.identity() not in ("", identity)
    other.close()


def test_a_store_that_was_emptied_takes_no_job(store: Store, place: Place) -> None:
    """Ids would begin again at 000001, where an unrelated job has its checkpoints."""
    identity = store.identity()
    store.create(a_job(), an_event())
    place.empty()
    for _ in range(2):
        with pytest.raises(StoreError, match=f"was emptied or replaced: its id was {identity}"):
            store.create(a_job(), an_event())
        with pytest.raises(StoreError, match="was emptied or replaced"):
            store.identity()
    assert store.list() == []
    assert place.open().identity() != identity, "each opener compares it with the context's"


# Create and read -----------------------------------------------------------------------------------------------------


def test_a_new_job_gets_the_next_id_and_version_1(store: Store) -> None:
    first, second = (store.create(a_job(id="ignored"), an_event()) for _ in range(2))
    assert (first.id, second.id) == ("000001", "000002")
    assert first.version == 1
    assert store.get("000001") == first
    assert store.events(first.id) == [replace(an_event(), seq=1)]


def test_many_jobs_are_stored_at_once_with_ids_in_their_order(store: Store) -> None:
    store.create(a_job(), an_event())
    new = [(a_job(f"sweep-{n}"), an_event(f"made {n}")) for n in range(200)]
    made = store.create_many(new, key="sweep:0")
    assert [job.id for job in made] == [f"{n:06d}" for n in range(2, 202)]
    assert [job.name for job in made] == [f"sweep-{n}" for n in range(200)]
    assert store.get("000201") == made[-1]
    assert store.events("000201") == [replace(an_event("made 199"), seq=1)]
    assert store.create(a_job(), an_event()).id == "000202"
    assert {job.id for job in made} <= {*store.changes(0)[1]}


def test_the_key_of_many_jobs_gives_back_those_that_are_still_there(store: Store) -> None:
    new = [(a_job(f"sweep-{n}"), an_event()) for n in range(5)]
    first = store.create_many(new, key="sweep:0")
    assert store.create_many(new[:2], key="sweep:0") == first
    store.remove(first[1].id, lease=None)
    store.remove(first[4].id, lease=None)
    again = store.create_many(new, key="sweep:0")
    assert [job.id for job in again] == [first[0].id, first[2].id, first[3].id]
    assert len(store.create_many(new, key="sweep:5")) == 5
    assert len(store.list()) == 8


def test_of_many_jobs_none_is_stored_when_one_cannot_be(store: Store) -> None:
    unwritable = replace(a_job(), retries_used={"x": object()})  # pyright: ignore[reportArgumentType]
    with pytest.raises(Exception, match=r"."):
        store.create_many([(a_job(), an_event()), (unwritable, an_event())], key="sweep:0")
    assert store.list() == []
    assert len(store.create_many([(a_job(), an_event())], key="sweep:0")) == 1


def test_two_writers_of_the_same_jobs_make_them_once(place: Place) -> None:
    new = [(a_job(f"sweep-{n}"), an_event()) for n in range(20)]
    stores = [place.open() for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda opened: opened.create_many(new, key="sweep:0"), stores))
    assert [[job.id for job in jobs] for jobs in made] == [[job.id for job in made[0]]] * 4
    assert len(stores[0].list()) == 20


def test_events_of_all_jobs_come_newest_first_in_pages(store: Store) -> None:
    """Also those of one moment: the id of the job and the number of the event tell them apart."""
    jobs = [store.create(a_job(), replace(an_event(), at=5.0)) for _ in range(3)]
    for at, job in ((7.0, jobs[1]), (6.0, jobs[0]), (7.0, jobs[2])):
        happened = replace(an_event(f"at {at:g}"), at=at)
        store.commit(job, happened, expected_version=1, op_id="x", lease=None)
    expected = [(7.0, "000003"), (7.0, "000002"), (6.0, "000001")]
    expected += [(5.0, "000003"), (5.0, "000002"), (5.0, "000001")]
    assert [(event.at, job_id) for job_id, event in store.recent(limit=99)] == expected
    pages, before = [], None
    while page := store.recent(before=before, limit=2):
        job_id, last = page[-1]
        pages += page
        before = EventKey(last.at, job_id, last.seq)
    assert [(event.at, job_id) for job_id, event in pages] == expected
    store.remove("000002", lease=None)
    assert {job_id for job_id, _ in store.recent(limit=99)} == {"000001", "000003"}


def test_an_unknown_job_is_not_found(store: Store) -> None:
    with pytest.raises(NotFound, match="no job 000009"):
        store.get("000009")
    with pytest.raises(NotFound):
        store.events("000009")
    with pytest.raises(NotFound):
        store.commit(a_job(id="000009"), None, expected_version=1, op_id="x", lease=None)
    store.remove("000009", lease=None)
    assert store.lease("000009", "a", ttl=60) is None


def test_a_walk_comes_to_every_job_once_a_few_at_a_time_and_newest_first(
    place: Place, store: Store
) -> None:
    setattr(store, "walk_page", 2)  # noqa: B010, an attribute of each adapter
    assert [*store.walk()] == []
    jobs = [store.create(a_job(f"job-{n}"), an_event()) for n in range(5)]
    ended = moved(store, jobs[2], state=State.FAILED)
    store.remove(jobs[0].id, lease=None)
    expected = [jobs[4], jobs[3], ended, jobs[1]]
    assert [*store.walk()] == expected == [*place.open().walk()]
    walking = store.walk()
    assert next(walking) == jobs[4]
    new = store.create(a_job("new"), an_event())
    store.remove(jobs[1].id, lease=None)
    assert [*walking] == [jobs[3], ended], "what is new is a change"
    assert new.id in [job.id for job in store.walk()]


def test_list_is_newest_first_and_takes_filters(store: Store) -> None:
    for name, state in [("a", State.QUEUED), ("b", State.FAILED), ("a", State.SUCCEEDED)]:
        store.create(a_job(name, state=state), an_event())
    ids = [j.id for j in store.list()]
    assert ids == ["000003", "000002", "000001"]
    assert [j.id for j in store.list(name="a")] == ["000003", "000001"]
    assert [j.id for j in store.list(live=True)] == ["000001"]
    assert [j.id for j in store.list(live=False)] == ["000003", "000002"]
    assert [j.id for j in store.list(name="a", live=True)] == ["000001"]
    assert store.list(name="none") == []


@pytest.mark.parametrize(
    "text", ["'); DROP TABLE jobs; --", "$(reboot)", "<script>", "bidi \u202e, nul \0", "ä"]
)
def test_hostile_text_is_only_text(store: Store, text: str) -> None:
    stored = store.create(
        a_job(text, user=text, message=text), an_event(text), idempotency_key=text
    )
    assert store.list(name=text) == [stored]
    assert store.get(stored.id).message == text
    assert store.events(stored.id)[0].text == text


# The same key, the same job ------------------------------------------------------------------------------------------


def test_the_same_key_gives_back_the_first_job_as_it_is_now(store: Store) -> None:
    first = store.create(a_job("first"), an_event(), idempotency_key="k")
    newer = moved(store, first, message="on its way")
    assert store.create(a_job("second"), an_event(), idempotency_key="k") == newer
    assert store.find_created("k") == newer
    assert store.find_created("other") is None
    assert len(store.list()) == 1
    assert len(store.events(first.id)) == 2
    assert store.create(a_job(), an_event(), idempotency_key="other").id == "000002"


# Versions and operation ids ------------------------------------------------------------------------------------------


def test_a_commit_makes_the_next_version_and_its_event(store: Store, job: Job) -> None:
    newer = moved(store, job, state=State.PROVISIONING)
    assert newer == replace(job, state=State.PROVISIONING, version=2)
    assert store.get(job.id) == newer
    assert [e.seq for e in store.events(job.id)] == [1, 2]
    assert [e.seq for e in store.events(job.id, after=1)] == [2]
    assert store.events(job.id, after=2) == []


def get_lease(store: Store, job: Job, owner: str, *, ttl: float = 60) -> Lease:
    lease = store.lease(job.id, owner, ttl=ttl)
    assert lease
    return lease


def both(store: Store, first: Job, second: Job, op: str = "both") -> tuple[Job, Job]:
    """Commit two jobs at once, under new leases."""

    def write(job: Job) -> Write:
        lease = get_lease(store, job, "b1")
        return Write(replace(job, message=op), an_event(), job.version, op, lease)

    return store.commit_both(write(first), write(second))


def test_two_jobs_are_committed_both_or_neither(store: Store, job: Job) -> None:
    other = store.create(a_job("other"), an_event())
    first, second = both(store, job, other)
    assert [(j.id, j.version, j.message) for j in (first, second)] == [
        (job.id, 2, "both"),
        (other.id, 2, "both"),
    ]
    assert [store.get(j.id) for j in (first, second)] == [first, second]
    newer = moved(store, second, message="meanwhile")
    with pytest.raises(Conflict):
        both(store, first, second, "again")
    assert [store.get(first.id), store.get(second.id)] == [first, newer]
    assert both(store, job, other) == (first, second), "a repeat returns what was stored"
    assert [len(store.events(j.id)) for j in (first, second)] == [2, 3]


def test_a_lost_lease_of_either_job_stops_both(place: Place, store: Store, job: Job) -> None:
    other = store.create(a_job("other"), an_event())
    first, second = (Write(j, an_event(), 1, "op", get_lease(store, j, "b1")) for j in (job, other))
    place.age_lease(other.id, 61)
    get_lease(store, other, "b2")
    with pytest.raises(Fenced):
        store.commit_both(first, second)
    assert [store.get(j.id).version for j in (job, other)] == [1, 1]


def test_a_commit_on_an_old_version_conflicts_and_stores_nothing(store: Store, job: Job) -> None:
    newer = moved(store, job, message="first")
    with pytest.raises(Conflict, match="version 2 now, not 1"):
        moved(store, job, "another", message="second")
    assert store.get(job.id) == newer
    assert len(store.events(job.id)) == 2


def test_a_repeat_of_an_operation_returns_what_the_first_stored(store: Store, job: Job) -> None:
    first = moved(store, job, "op", message="first")
    assert moved(store, job, "op", message="first") == first
    later = moved(store, first, message="later")
    assert moved(store, job, "op", message="first") == first, "also after others have moved on"
    assert store.get(job.id) == later
    assert [e.seq for e in store.events(job.id)] == [1, 2, 3]


def test_a_repeat_is_recognised_by_another_opener(place: Place, store: Store, job: Job) -> None:
    first = moved(store, job, "op")
    assert moved(place.open(), job, "op") == first


def test_a_repeat_from_long_ago_is_never_applied_twice(store: Store, job: Job) -> None:
    newest = moved(store, job, "old")
    for _ in range(40):
        newest = moved(store, newest)
    with suppress(Conflict):  # when it is forgotten by now, the version says no
        assert moved(store, job, "old").version == 2
    assert store.get(job.id) == newest


# Leases and fencing --------------------------------------------------------------------------------------------------


def test_a_lease_keeps_others_out_until_it_is_over(place: Place, store: Store, job: Job) -> None:
    lease = get_lease(store, job, "a")
    assert (lease.owner, lease.ttl) == ("a", 60)
    place.age_lease(job.id, 59)
    again = get_lease(store, job, "a", ttl=120)
    assert (again.ttl, again.token > lease.token) == (120, True), "the same owner gets another"
    place.age_lease(job.id, 61)
    other = place.open()
    assert other.lease(job.id, "b", ttl=60) is None, "it lasts for as long as its holder asked"
    place.age_lease(job.id, 60)
    assert other.lease(job.id, "b", ttl=60) == Lease(job.id, "b", again.token + 1, 60)
    assert store.lease(job.id, "a", ttl=60) is None


def test_a_released_lease_is_free_at_once_and_tokens_go_on_growing(store: Store, job: Job) -> None:
    first = get_lease(store, job, "a")
    store.release(first)
    store.release(first)
    assert get_lease(store, job, "b").token > first.token
    store.release(first)
    assert store.lease(job.id, "c", ttl=60) is None, "it has ended the lease of another"


def test_a_writer_that_lost_the_lease_is_refused(place: Place, store: Store, job: Job) -> None:
    old = get_lease(store, job, "a")
    place.age_lease(job.id, 61)
    new = get_lease(store, job, "b")
    with pytest.raises(Fenced, match="led by b"):
        store.commit(job, an_event(), expected_version=1, op_id="x", lease=old)
    with pytest.raises(Fenced):
        store.remove(job.id, lease=old)
    assert store.get(job.id) == job
    assert store.commit(job, None, expected_version=1, op_id="y", lease=new).version == 2


def test_an_expired_lease_that_nobody_took_still_writes(
    place: Place, store: Store, job: Job
) -> None:
    lease = store.lease(job.id, "a", ttl=60)
    place.age_lease(job.id, 61)
    assert store.commit(job, None, expected_version=1, op_id="x", lease=lease).version == 2


def test_an_applied_commit_is_known_even_after_the_lease_is_lost(
    place: Place, store: Store, job: Job
) -> None:
    lease = get_lease(store, job, "a")
    first = store.commit(job, an_event(), expected_version=1, op_id="x", lease=lease)
    place.age_lease(job.id, 61)
    get_lease(store, job, "b")
    assert store.commit(job, an_event(), expected_version=1, op_id="x", lease=lease) == first


def test_one_of_many_gets_the_lease(store: Store, job: Job) -> None:
    with ThreadPoolExecutor(8) as pool:
        leases = list(pool.map(lambda n: store.lease(job.id, f"o{n}", ttl=60), range(16)))
    assert len([lease for lease in leases if lease]) == 1


# Remove --------------------------------------------------------------------------------------------------------------


def test_a_removed_job_is_gone_and_its_id_never_comes_back(store: Store) -> None:
    job = store.create(a_job(), an_event(), idempotency_key="k")
    lease = store.lease(job.id, "a", ttl=60)
    assert store.removed() == []
    store.remove(job.id, lease=lease, keep=replace(job, name="kept"))
    store.remove(job.id, lease=lease)
    assert [kept.name for kept in store.removed()] == ["kept"]
    assert store.damaged() == store.list() == []
    with pytest.raises(NotFound):
        store.get(job.id)
    with pytest.raises(NotFound):
        store.events(job.id)
    assert store.list() == []
    assert store.find_created("k") is None
    assert store.create(a_job(), an_event(), idempotency_key="k").id == "000002"


# When to look --------------------------------------------------------------------------------------------------------


def test_due_are_the_jobs_whose_time_has_come_longest_overdue_first(store: Store) -> None:
    for wake in (30.0, 10.0, 20.0):
        store.create(a_job(wake=wake), an_event())
    assert store.due(5) == []
    assert store.due(20) == ["000002", "000003"]
    assert store.due(99) == ["000002", "000003", "000001"]


def test_finished_jobs_are_due_only_while_a_clean_is_asked_for(store: Store) -> None:
    done = store.create(a_job(state=State.SUCCEEDED, wake=1.0), an_event())
    assert store.due(99) == []
    cleaned = moved(store, done, desired=DesiredState.CLEAN)
    assert store.due(99) == [done.id]
    store.remove(cleaned.id, lease=None)
    assert store.due(99) == []


def test_a_follower_hears_of_every_change_once(place: Place, store: Store) -> None:
    start, none = store.changes(0)
    assert none == []
    first, second = (store.create(a_job(), an_event()) for _ in range(2))
    cursor, ids = store.changes(start)
    assert sorted(ids) == [first.id, second.id]
    assert store.changes(cursor) == (cursor, [])
    moved(place.open(), first)
    store.lease(second.id, "a", ttl=60)
    cursor, ids = store.changes(cursor)
    assert ids == [first.id]
    store.remove(second.id, lease=None)
    cursor, ids = store.changes(cursor)
    assert ids == [second.id], "a removal is a change"
    assert store.changes(cursor) == (cursor, [])


def test_nothing_has_changed_after_the_newest_until_the_next(place: Place, store: Store) -> None:
    job = store.create(a_job(), an_event())
    newest = store.newest()
    assert store.changes(newest)[1] == []
    assert place.open().newest() >= store.changes(0)[0]
    moved(place.open(), job)
    assert store.changes(newest)[1] == [job.id]


# Damage --------------------------------------------------------------------------------------------------------------


def test_a_damaged_record_is_named_and_keeps_nobody_from_the_others(
    place: Place, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    for wake in (1.0, 2.0):
        store.create(a_job(wake=wake), an_event())
    assert store.damaged() == []
    place.damage("000001")
    for opened in (store, place.open()):
        caplog.clear()
        assert [job.id for job in opened.list()] == ["000002"]
        assert [job.id for job in opened.list(live=True, name="mlp")] == ["000002"]
        assert [job.id for job in opened.walk()] == ["000002"]
        assert opened.due(9) == ["000002"]
        lines = [r.getMessage() for r in caplog.records if "000001" in r.getMessage()]
        assert len(lines) == 1, f"the log names it once: {lines}"
        ((job_id, reason),) = opened.damaged()
        assert job_id == "000001"
        assert "damaged" in reason
        with pytest.raises(StoreError, match="job 000001 is damaged"):
            opened.get("000001")
    assert len(store.events("000001")) == 1, "what can be read of it is still there"


# Zones ---------------------------------------------------------------------------------------------------------------


def test_every_zone_that_was_ever_asked_is_remembered(place: Place, store: Store, job: Job) -> None:
    assert store.zones() == []
    requested = moved(store, job, slices=(a_slice(zone="us-east5-b"),))
    both = (*requested.slices, a_slice(2))
    newest = moved(store, requested, slices=both)
    moved(store, newest, slices=both[1:])
    store.remove(job.id, lease=None)
    for opened in (store, place.open()):
        assert opened.zones() == ["us-central2-b", "us-east5-b"], "also when the job is gone"


# Many at once --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_threads_and_processes_lose_no_update(place: Place, store: Store, job: Job) -> None:
    times = 25
    processes = [place.process("count_up", job.id, f"p{n}", str(times)) for n in range(2)]
    go(*processes)
    threads = [
        threading.Thread(target=count_up, args=(store, job.id, f"t{n}", times)) for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for process in processes:
        process.communicate(timeout=LONG)
        assert process.returncode == 0
    final = store.get(job.id)
    assert final.retries_used == {"count": 6 * times}
    assert final.version == 1 + 6 * times
    assert [e.seq for e in store.events(job.id)] == list(range(1, final.version + 1))


@pytest.mark.slow
@pytest.mark.parametrize("after", [1, 7, 40])
def test_a_kill_in_mid_commit_loses_none(place: Place, store: Store, job: Job, after: int) -> None:
    process = place.process("commit_for_ever", job.id)
    go(process)
    assert process.stdout
    versions = [int(process.stdout.readline()) for _ in range(after)]
    process.kill()
    versions += [int(line) for line in process.stdout]
    for opened in (store, place.open()):
        stored = opened.get(job.id)
        assert versions[-1] <= stored.version <= versions[-1] + 1, "the kill may hide one reply"
        assert [e.seq for e in opened.events(job.id)] == list(range(1, stored.version + 1))
    assert moved(store, store.get(job.id)).version == stored.version + 1


def test_a_reader_is_not_held_up_by_what_is_being_written(store: Store) -> None:
    """Lists while others write: each is one consistent picture."""
    jobs = [store.create(a_job(), an_event()) for _ in range(5)]
    stop = threading.Event()

    def write(job: Job) -> None:
        while not stop.is_set():
            job = moved(store, job)

    threads = [threading.Thread(target=write, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    try:
        seen = [[j.version for j in store.list()] for _ in range(50)]
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert all(len(row) == 5 for row in seen)
    assert all(a <= b for old, new in pairwise(seen) for a, b in zip(old, new, strict=True)), "back"
