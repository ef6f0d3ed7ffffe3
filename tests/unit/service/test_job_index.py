"""Lists of jobs: every job, in the store's order, each once, in few bytes, and without asking the store for nothing."""

import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.callers import ADA, caller
from tests.support.job_index import Desk, running
from tpujob.api import JobOrder, JobRow, ListQuery
from tpujob.domain.model import Attempt, Cause, Job, Outcome, Progress, State
from tpujob.errors import BadRequest, StoreError, Transient
from tpujob.service.job_index import query as listing
from tpujob.service.job_index import rows
from tpujob.service.job_index.index import FIELDS

COLUMNS: tuple[JobOrder, ...] = get_args(JobOrder)
BOB = caller("bob")


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_the_row_of_a_failed_job_begins_with_the_error(desk: Desk) -> None:
    """Show the text of the error to its owner and admins, and its class to others."""
    error, plain = (f"{e} (host 0: exit code 1)" for e in ("ValueError: bad shape", "ValueError"))
    attempt = Attempt(1, "tj-1", 0.0, cause=Cause.CRASH, message=plain, detail=error)
    ended = {"attempts": (attempt,), "cause": Cause.CRASH, "message": f"attempt 1 ended, {plain}"}
    desk.add(state=State.FAILED, **ended)
    desk.add(state=State.RELEASING, next_state=State.FAILED, **ended)
    desk.add(state=State.FAILED, **{**ended, "cause": Cause.STOCKOUT, "message": "no capacity"})
    for user, why in ((ADA, error), (BOB, plain)):
        rows = desk.page({}, user=user)["rows"]
        assert [row["why"] for row in rows] == ["no capacity", why, why]


# Which jobs ----------------------------------------------------------------------------------------------------------


def test_filters_act_over_all_jobs_and_counts_are_of_what_they_leave(desk: Desk) -> None:
    ids = [
        desk.add(user="ada").id,
        desk.add(user="bob", name="llama", owner=BOB.id, **running(5.0)).id,
        desk.add(user="bob", name="Llama-2", state=State.FAILED, cause=Cause.OOM_HBM).id,
        desk.add(user="eve", state=State.FAILED, cause=Cause.CRASH).id,
    ]
    first, second, third, fourth = ids
    cases: list[tuple[ListQuery, list[str]]] = [
        ({}, [fourth, third, second, first]),
        ({"user": "bob"}, [third, second]),
        ({"active": True}, [second, first]),
        ({"active": False}, [fourth, third]),
        ({"states": ["failed", "running"]}, [fourth, third, second]),
        ({"states": ["failed"], "active": True}, []),
        ({"causes": ["OOM_HBM"]}, [third]),
        ({"zones": ["us-central2-b"]}, [second]),
        ({"zones": ["europe-west4-a"]}, []),
        ({"types": ["v4-8"]}, ids[::-1]),
        ({"types": ["v5e-8"]}, []),
        ({"text": "LLAMA"}, [third, second]),
        ({"text": "00004"}, [fourth]),
        ({"text": "%"}, []),
        ({"limit": 2}, [fourth, third]),
    ]
    for query, expected in cases:
        assert desk.ids(query) == expected, query
    assert desk.ids({"mine": True}, user=BOB) == [second]
    page = desk.page({"user": "bob", "active": True, "limit": 1})
    assert (page["matching"], page["total"], page["states"]) == (1, 4, {"running": 1, "failed": 1})
    assert desk.index.states() == {"queued": 1, "running": 1, "failed": 2}
    mine = desk.page({"mine": True, "active": True}, user=BOB)
    assert mine["states"] == {"running": 1}, "counts are of what a list by that state would show"


def test_a_recent_list_keeps_what_ended_within_a_day_below_what_goes_on(desk: Desk) -> None:
    hour = 3600.0

    def ended(state: State, ago: float) -> str:
        return desk.add(state=state, finished_at=desk.clock.now() - ago).id

    live = desk.add().id
    failed, old = ended(State.FAILED, 23 * hour), ended(State.FAILED, 25 * hour)
    done = ended(State.SUCCEEDED, hour)
    newest = desk.add().id
    assert desk.ids({"recent": True}) == [newest, live, failed, done]
    assert desk.ids({"recent": True, "order": "id"}) == [newest, done, failed, live]
    assert desk.ids({"recent": False}) == [newest, done, old, failed, live]
    assert desk.ids({"recent": True, "states": ["failed"]}) == [old, failed], "in the usual order"
    first = desk.page({"recent": True, "limit": 3})
    after: ListQuery = {"recent": True, "limit": 3, "after": first["next"]}
    assert (first["matching"], desk.ids(after)) == (4, [done])
    desk.clock.sleep(2 * hour)
    assert desk.ids({"recent": True}) == [newest, live, done]


def test_mine_are_those_that_i_own_and_not_those_of_my_name(desk: Desk) -> None:
    """Two accounts may have one login at different times."""
    mine, namesake = desk.add(user="bob", owner=BOB.id).id, desk.add(user="bob", owner="uid:7").id
    ancient = desk.add(user="bob", owner="").id
    assert desk.ids({"mine": True}, user=BOB) == [mine]
    assert desk.ids({"mine": True}, user=ADA) == [ancient], "of before there were owners"
    shown = {row["id"]: row["mine"] for row in desk.page(user=BOB)["rows"]}
    assert shown == {mine: True, namesake: False, ancient: False}


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ({"states": ["runing"]}, r"states: there is no 'runing' one of: queued, .*cancelled"),
        ({"causes": ["OOM"]}, r"causes: there is no 'OOM'.*OOM_HBM"),
        ({"order": "rate"}, r"order: a list has no column 'rate' one of: id, name, .*spent, age"),
        ({"stat": "x"}, r"'stat' is not a filter of a list.*states"),
        ({"types": ["v4-x7"]}, r"types: 'v4-x7': no such type; nearest: v4-768, v4-8"),
        ({"fields": ["owner"]}, r"fields: there is no 'owner' one of: id, name,.*usd_spent"),
        ({"limit": -1}, r"limit: 0 or more"),
        ({"text": "x" * 201}, r"text: 200 characters"),
        ({"after": "garbled"}, r"'garbled' is not a key of a page"),
        ({"after": "W10"}, r"is not a key"),
        ({"after": "WyJpZCIsZmFsc2UsIiIsMCxOYU4sMV0"}, r"is not a key"),
        ({"after": "é"}, r"is not a key"),
    ],
)
def test_nonsense_is_refused_with_what_would_do(desk: Desk, query: ListQuery, says: str) -> None:
    with pytest.raises(BadRequest) as refused:
        desk.page(query)
    text = f"{refused.value.message} {refused.value.hint}"
    assert re.search(says, text), text


def test_a_key_belongs_to_its_order(desk: Desk) -> None:
    for _ in range(3):
        desk.add()
    after = desk.page({"limit": 1})["next"]
    for other in ({"order": "name"}, {"reverse": True}):
        with pytest.raises(BadRequest, match="it is of a list by id, this one is by"):
            desk.page(cast(ListQuery, {"after": after, **other}))


@settings(max_examples=30)
@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda raw: raw.hex()))
def test_no_text_but_a_key_is_taken_for_one(text: str) -> None:
    if not text:
        return
    with pytest.raises(BadRequest):
        listing.parse_query({"after": text}, ADA, FIELDS)


def test_a_page_says_which_number_its_first_row_has(desk: Desk) -> None:
    for n in range(7):
        desk.add(name=f"n{n}", user=("ada", "bob")[n % 2])
    for order in ("id", "name", "step"):
        query = cast(ListQuery, {"order": order, "limit": 3})
        firsts: list[int] = []
        after = ""
        while True:
            page = desk.page({**query, "after": after} if after else query)
            firsts.append(page["first"])
            if not (after := page["next"]):
                break
        assert firsts == [1, 4, 7], order
    assert desk.page({"user": "nobody"})["first"] == 1


# In which order ------------------------------------------------------------------------------------------------------


def test_jobs_without_a_value_come_last_whichever_way_round(desk: Desk) -> None:
    slow = desk.add(**running(0.0)).id
    waits = desk.add().id
    quick = desk.add(**running(0.0)).id
    desk.clock.sleep(100.0)
    desk.report(slow, step=10, steps=1000, loss=0.5)
    desk.report(quick, step=500, steps=1000, loss=0.25)
    orders: dict[str, list[str]] = {
        "step": [quick, slow, waits],
        "left": [quick, slow, waits],
        "loss": [quick, slow, waits],
    }
    for order, expected in orders.items():
        first, second, last = expected
        query: ListQuery = {"order": cast(JobOrder, order)}
        assert desk.ids(query) == expected, order
        assert desk.ids({**query, "reverse": True}) == [second, first, last], order


def test_each_column_orders_all_jobs_by_its_values(desk: Desk) -> None:
    now = desk.clock.now()
    a = desk.add(name="b", user="eve", state=State.FAILED, created_at=3.0).id
    b = desk.add(name="a", user="ada", **running(now - 3600.0, rate=9.0), created_at=1.0).id
    c = desk.add(name="c", user="bob", **running(now - 7200.0, rate=1.0), created_at=2.0).id
    expected: dict[JobOrder, list[str]] = {
        "id": [c, b, a],
        "name": [b, a, c],
        "user": [b, c, a],
        "state": [c, b, a],
        "attempts": [c, b, a],
        "spent": [b, c, a],
        "age": [a, c, b],
    }
    for order, ids in expected.items():
        assert desk.ids({"order": order}) == ids, order
    assert desk.ids({"order": "attempts", "reverse": True}) == [a, c, b], "of equals the newest"
    assert [row["usd_spent"] for row in desk.page({"order": "spent"})["rows"]] == [9.0, 2.0, 0.0]


# Pages ---------------------------------------------------------------------------------------------------------------

CHANGES = ("step", "live", "state", "money", "attempt", "add", "remove", "time", "nothing")
CHANGE = st.tuples(st.sampled_from(CHANGES), st.integers(0, 30), st.integers(0, 9))


def stir(desk: Desk, action: str, which: int, how: int) -> str:
    """Change one of the jobs, or another thing; returns the id of the job that may have moved."""
    ids = [job.id for job in desk.store.list()]
    job = desk.store.get(ids[which % len(ids)]) if ids else None
    if action == "add" or job is None:
        return desk.add(name=f"n{how}", user=f"u{how}").id
    attempt = job.attempt or Attempt(1, "tj-1", 0.0)
    if action == "step":
        moved = replace(attempt, progress=Progress(step=how, steps=9, loss=how / 3))
        desk.change(job.id, attempts=(moved,))
    elif action == "live" and job.attempt:
        desk.report(job.id, step=how, steps=10, loss=float("nan") if how == 5 else how / 7)
    elif action == "state":
        desk.change(job.id, state=list(State)[how % len(State)])
    elif action == "money":
        desk.change(job.id, **running(float(how), rate=how * 1.5))
    elif action == "attempt":
        attempts = (*job.attempts, replace(attempt, number=len(job.attempts) + 1))
        desk.change(job.id, attempts=attempts)
    elif action == "remove":
        desk.store.remove(job.id, lease=None)
        desk.live.pop(job.id, None)
    else:
        desk.clock.sleep(float(how * 60))
    return job.id


PAGING = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def walked(
    desk: Desk, query: ListQuery, between: Callable[[], None]
) -> tuple[list[str], list[str]]:
    """The order when the list began, and what somebody sees who takes it page by page."""
    whole = desk.ids({**query, "limit": 0})
    seen: list[str] = []
    after = ""
    while True:
        page = desk.page({**query, "after": after})
        assert len(page["rows"]) <= query.get("limit", 0)
        seen += [row["id"] for row in page["rows"]]
        assert len(seen) < 200, "it never ends"
        after = page["next"]
        if not after:
            return whole, seen
        between()


def stirred(folder: Path, changes: Iterable[Any]) -> Desk:
    """A few jobs of which each may have changed."""
    desk = Desk(folder)
    for n in range(8):
        desk.add(name=f"n{n % 3}", user=f"u{n % 2}")
    for change in changes:
        stir(desk, *change)
    return desk


@PAGING
@given(
    order=st.sampled_from(COLUMNS),
    reverse=st.booleans(),
    restarts=st.booleans(),
    limit=st.integers(1, 5),
    before=st.lists(CHANGE, max_size=20),
    meanwhile=st.lists(st.lists(CHANGE, max_size=3), max_size=6),
)
def test_by_any_column_jobs_that_do_not_move_are_visited_once_also_after_a_restart(
    tmp_path_factory: pytest.TempPathFactory,
    order: JobOrder,
    reverse: bool,
    restarts: bool,
    limit: int,
    before: list[Any],
    meanwhile: list[list[Any]],
) -> None:
    desk = stirred(tmp_path_factory.mktemp("index"), before)
    story = iter(meanwhile)
    moved: set[str] = set()

    def between() -> None:
        if restarts:
            desk.index = desk.new_index()
        for action, which, how in next(story, []):
            if action != "time":  # which moves what is spent
                moved.add(stir(desk, action, which, how))

    whole, seen = walked(desk, {"order": order, "reverse": reverse, "limit": limit}, between)
    still = [i for i in whole if i not in moved]
    assert [i for i in seen if i in set(still)] == still


def test_what_is_spent_meanwhile_makes_no_job_come_twice(desk: Desk) -> None:
    for n in range(6):
        desk.add(**running(0.0, rate=1.0 + n))
    first = desk.page({"order": "spent", "limit": 3})
    desk.clock.sleep(36_000.0)
    second = desk.page({"order": "spent", "limit": 3, "after": first["next"]})
    seen = [row["id"] for page in (first, second) for row in page["rows"]]
    assert seen == [f"00000{n}" for n in (6, 5, 4, 3, 2, 1)]


# Rows ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ['"', "\\", "🦙", "\x1b[31m", "x", "é\u202e"])
@pytest.mark.parametrize("state", [State.QUEUED, State.RUNNING, State.RELEASING, State.FAILED])
def test_a_row_is_small_whatever_strangers_write(desk: Desk, state: State, text: str) -> None:
    text = text * 10_000
    fields = running(0.0, step=2**53, steps=2**53, loss=-1.2345678901234567e-300, phase=text)
    held = replace(fields["slices"][0], zone=text, name=text)
    job = desk.add(
        name=text,
        user=text,
        message=text,
        slices=(held,) * 9,
        attempts=fields["attempts"],
        state=state,
    )
    desk.report(job.id, step=2**53, steps=2**53, phase=text)
    desk.live[job.id].trouble = text
    (row,) = desk.page()["rows"]
    assert rows.size(row) <= rows.MAX_ROW == 1500
    assert "\x1b" not in json.dumps(row)
    assert row["name"]


def test_a_usual_row_is_not_cut(desk: Desk) -> None:
    desk.add(
        name="llama-3-8b-with-a-name-of-40-characters!", **running(0.0, step=5), message="it runs"
    )
    (row,) = desk.page()["rows"]
    assert set(row) == set(FIELDS)
    assert "…" not in json.dumps(row, ensure_ascii=False)
    assert rows.size(row) < 1100


def test_a_row_has_the_fields_that_were_asked_for(desk: Desk) -> None:
    job = desk.add()
    assert desk.page({"fields": ["name", "state"]})["rows"] == [
        cast(JobRow, {"id": job.id, "name": "mlp", "state": "queued"})
    ]


def test_a_row_says_what_the_view_says_also_of_what_moves(desk: Desk) -> None:
    job = desk.add(**running(desk.clock.now()))
    desk.clock.sleep(100.0)
    desk.report(job.id, step=200, steps=1000, loss=0.5)
    desk.live[job.id].trouble = "503"
    (row,) = desk.page()["rows"]
    assert (row["step"], row["steps_per_s"], row["left_s"]) == (200, 2.0, 400.0)
    assert (row["trouble"], row["attempt"], row["preemptions"]) == ("503", 1, 0)
    desk.report(job.id, step=200, steps=1000, metrics={"steps_per_second": 4.0})
    (row,) = desk.page()["rows"]
    assert (row["steps_per_s"], row["left_s"]) == (4.0, 200.0), "as the program says"
    ended: dict[str, Any] = {"cause": Cause.PREEMPTED, "outcome": Outcome.INTERRUPTED}
    lost = replace(desk.store.get(job.id).attempts[0], ended_at=100.0, **ended)
    desk.change(job.id, state=State.FAILED, cause=Cause.PREEMPTED, attempts=(lost,))
    (row,) = desk.page()["rows"]
    assert (row["preemptions"], row["cause"]) == (1, "PREEMPTED")
    assert (row["left_s"], row["trouble"]) == (None, "")


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_lists_are_as_a_new_index_has_them(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    desk = Desk(tmp_path_factory.mktemp("desk"))
    ids: list[str] = []
    for _ in range(data.draw(st.integers(1, 8))):
        deed = data.draw(st.sampled_from(["add", "end", "remove"]))
        if deed == "add" or not ids:
            user = data.draw(st.sampled_from([ADA.id, BOB.id, ""]))
            ids.append(desk.add(owner=user, **running(0.0)).id)
        else:
            job = data.draw(st.sampled_from(ids))
            if deed == "remove":
                desk.store.remove(job, lease=None)
                ids.remove(job)
            else:
                desk.change(job, state=State.FAILED, message="it failed")
        for user, query in LISTS:
            assert desk.page(query, user=user) == desk.new_index().page(user, query)


LISTS = [
    (who, asked)
    for who in (ADA, BOB)
    for asked in (
        ListQuery(mine=True, order="step", limit=3),
        ListQuery(order="name", limit=2),
        ListQuery(states=["failed"]),
    )
]


# What the store is asked ---------------------------------------------------------------------------------------------


def test_a_list_of_an_unchanged_store_reads_no_record(desk: Desk) -> None:
    for _ in range(5):
        desk.add()
    desk.page()
    assert desk.store.asked.count("walk") == 1
    desk.store.asked.clear()
    for _ in range(3):
        desk.page({"order": "spent", "limit": 2})
    assert desk.store.asked == ["changes"] * 3
    desk.change("000003", message="moved")
    desk.store.asked.clear()
    desk.page()
    assert desk.store.asked.count("peek") == 1, "and of a changed one only what has changed"
    assert "walk" not in desk.store.asked


def test_a_removed_job_does_not_come_back_by_an_older_note(desk: Desk) -> None:
    job = desk.add()
    assert desk.ids() == [job.id]
    desk.store.remove(job.id, lease=None)
    assert desk.ids() == []
    desk.index.note(job)
    assert desk.ids() == []
    assert desk.index.states() == {}


def test_a_note_is_seen_before_the_store_tells_of_it(desk: Desk) -> None:
    job = desk.add()
    assert desk.page()["rows"][0]["why"] == ""
    desk.index.note(replace(job, version=job.version + 1, message="noted"))
    assert desk.page()["rows"][0]["why"] == "noted"
    desk.index.note(replace(job, message="older"))
    assert desk.page()["rows"][0]["why"] == "noted"


def test_a_damaged_record_is_in_no_list_until_it_is_mended(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sqlite3

    from tests.support.stores import DAMAGE

    bad, good = desk.add(), desk.add()
    assert desk.ids() == [good.id, bad.id]
    path = desk.folder / "jobs.db"
    DAMAGE["sqlite"](str(path.parent), bad.id)
    desk.change(good.id, message="so that somebody looks")
    assert desk.ids() == [good.id, bad.id], "nobody told of the damage"
    assert desk.new_index().page(ADA, {})["total"] == 1
    with sqlite3.connect(path) as db:
        db.execute("UPDATE changes SET number = number + 10 WHERE job_id = ?", (bad.id,))
    assert desk.ids() == [good.id]
    with sqlite3.connect(path) as db:
        from tpujob.domain.codec import to_text

        db.execute("UPDATE jobs SET document = ?, version = 3 WHERE id = ?", (to_text(bad), bad.id))

    def locked(_: str) -> Job:
        raise Transient("locked")

    with monkeypatch.context() as patch:
        patch.setattr(desk.store, "peek", locked)
        with pytest.raises(Transient):
            desk.ids()
    assert desk.ids() == [good.id, bad.id]


def test_a_row_stays_while_the_store_is_away(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = desk.add(), desk.add()
    assert desk.ids() == [second.id, first.id]

    def gone(_: str) -> Job:
        raise StoreError("the disk is gone")

    desk.change(first.id, message="meanwhile")
    with monkeypatch.context() as broken:
        broken.setattr(desk.store, "peek", gone)
        assert desk.ids() == [second.id, first.id]
    desk.change(second.id, message="it answers again")
    assert [row["why"] for row in desk.page()["rows"]] == ["it answers again", "meanwhile"]


def test_a_removed_job_is_in_no_list(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    removed, remaining = desk.add(), desk.add()

    def failing() -> Iterator[Job]:
        yield removed
        raise StoreError("the disk is gone")

    with monkeypatch.context() as broken:
        broken.setattr(desk.store, "walk", failing)
        with pytest.raises(StoreError):
            desk.page()
    desk.store.remove(removed.id, lease=None)
    assert desk.ids() == [remaining.id]


def test_many_threads_see_whole_pages(desk: Desk) -> None:
    for n in range(40):
        desk.add(name=f"n{n}")
    wrong: list[object] = []

    def look() -> None:
        for _ in range(15):
            page = desk.page({"order": "name", "limit": 10})
            if len(page["rows"]) != 10 or page["matching"] != page["total"]:
                wrong.append(page)

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for n in range(20):
        desk.change(f"{n + 1:06d}", message=f"m{n}")
    for thread in threads:
        thread.join()
    assert wrong == []
