"""The stream of a live page: what a viewer is told, what it costs, and how a stream ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.page.live_rig import QUICK, Door, Lab
from tests.support.callers import caller
from tests.support.scripted import LIMITLESS
from tpujob.domain.access import Role
from tpujob.errors import NotFound


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    yield lab
    lab.store.close()


@pytest.fixture
def door(lab: Lab) -> Iterator[Door]:
    with lab.served() as door:
        yield door


# What a viewer is told -----------------------------------------------------------------------------------------------


def test_a_new_viewer_gets_everything_and_then_only_what_changed(lab: Lab, door: Door) -> None:
    first, second = lab.create("one"), lab.create("two")
    page = door.open()
    assert page.change()["all"]
    assert page.rows == lab.rows()
    assert page.order == [f"j{second}", f"j{first}"]
    lab.say(first, "attempt 1 runs")
    said = page.change()
    assert [*said["rows"]] == [f"j{first}"], "the other row is as it was"
    assert "order" not in said
    assert not said["parts"]
    assert page.rows == lab.rows()


def test_rows_come_in_their_order(lab: Lab, door: Door) -> None:
    page = door.open()
    page.change()
    for name in ("one", "two", "three"):
        lab.create(name)
    page.wait(lambda p: len(p.rows) == 3)
    assert page.order == [*lab.rows()]
    assert "3 jobs" in page.parts["count"]


def test_what_is_known_beyond_the_records_reaches_the_page(lab: Lab, door: Door) -> None:
    page = door.open()
    page.change()
    lab.beyond = 7
    page.wait(lambda p: "7 steps" in p.parts["count"])
    assert not lab.store.changes(0)[0], "nothing was committed"


def test_who_comes_back_with_the_newest_id_gets_nothing(lab: Lab, door: Door) -> None:
    job = lab.create("one")
    page = door.open()
    page.change()
    page.close()
    again = door.open(last=page.id)
    lab.say(job, "attempt 1 runs")
    said = again.change()
    assert "all" not in said, "what it had was not sent again"
    assert [*said["rows"]] == [f"j{job}"]


def test_who_comes_back_later_gets_everything_once(lab: Lab, door: Door) -> None:
    job = lab.create("one")
    page = door.open()
    page.change()
    page.close()
    lab.say(job, "attempt 1 runs")
    again = door.open(last=page.id)
    assert again.change()["all"]
    assert again.rows == lab.rows()


def test_who_has_just_loaded_the_page_gets_what_differs_from_it(lab: Lab, door: Door) -> None:
    first, second = lab.create("one"), lab.create("two")
    loaded = lab.views.loaded(lab.shown())
    lab.say(first, "attempt 1 runs")
    page = door.open(last=loaded)
    said = page.until("change")
    assert "all" not in said
    assert [*said["rows"]] == [f"j{first}"]
    third = lab.create("three")
    said = page.until("change")
    assert said["order"] == [f"j{third}", f"j{second}", f"j{first}"]


def test_an_id_of_another_process_counts_when_it_stands_for_the_same(lab: Lab) -> None:
    job = lab.create("one")
    with lab.served() as before:
        page = before.open()
        page.change()
    lab.stopping = False
    with lab.served() as after:
        again = after.open(last=page.id)
        assert after.hub.epoch not in page.id
        lab.say(job, "attempt 1 runs")
        assert "all" not in again.change()


def test_the_same_address_is_asked_by_a_condition(lab: Lab, door: Door) -> None:
    job = lab.create("one")
    status, etag, body = door.ask()
    assert (status, body["rows"]) == (200, lab.rows())
    assert door.ask(known=etag)[0] == 304
    page = door.open(last=etag)
    lab.say(job, "attempt 1 runs")
    assert "all" not in page.change(), "both ways in speak of the same ids"
    status, newer, _ = door.ask(known=etag)
    assert status == 200
    assert newer != etag


def test_the_words_of_a_clock_are_no_change(lab: Lab, door: Door) -> None:
    job = lab.create("one")
    lab.say(job, '<time datetime="2026-11-22T18:00:00Z">1 min ago</time>')
    _, etag, _ = door.ask()
    lab.say(job, '<time datetime="2026-11-22T18:00:00Z">2 min ago</time>')
    assert door.ask(known=etag)[0] == 304
    lab.say(job, '<time datetime="2026-11-22T18:05:00Z">2 min ago</time>')
    assert door.ask(known=etag)[0] == 200


# What it costs -------------------------------------------------------------------------------------------------------


def test_viewers_who_see_the_same_share_one_view(lab: Lab, door: Door) -> None:
    job = lab.create("one")
    pages = [door.open(name=name) for name in ("ada", "bob", "ada", "bob")]
    for page in pages:
        page.change()
    assert (door.hub.views, door.hub.viewers) == (1, 4)
    lab.say(job, "attempt 1 runs")
    for page in pages:
        page.change()
        assert page.rows == lab.rows()


def test_a_view_of_one_job_is_not_made_again_for_another(lab: Lab) -> None:
    first, second = lab.create("one"), lab.create("two")
    with lab.served(replace(QUICK, beyond=30.0)) as door:
        mine, other = door.open(f"/one/{first}"), door.open(f"/one/{second}")
        mine.change(), other.change()
        lab.say(second, "settled")  # the follower is awake once this is here
        other.wait(lambda p: "settled" in p.parts["job"])
        lab.rendered.clear()
        lab.say(second, "attempt 1 runs")
        other.wait(lambda p: "attempt 1" in p.parts["job"])
        assert {at.path for at in lab.rendered} == {f"/one/{second}"}


def test_a_page_that_is_closed_costs_nothing_more(lab: Lab, door: Door) -> None:
    page = door.open()
    page.change()
    assert (door.hub.views, door.hub.viewers) == (1, 1)
    page.close()
    while door.hub.views:  # pytest's own limit of time ends this
        pass
    assert door.hub.viewers == 0
    again = door.open()
    again.change()
    assert door.hub.views == 1, "the same page can be opened again"


# How a stream ends ---------------------------------------------------------------------------------------------------


def test_the_first_byte_comes_at_once_though_the_page_takes_long(lab: Lab) -> None:
    with lab.served(replace(QUICK, patience=0.0)) as door:
        page = door.open()
        assert page.status == 200
        assert page.next()[0] == "beat"
        page.change()


def test_a_silent_stream_has_a_pulse(lab: Lab) -> None:
    with lab.served(replace(QUICK, beat=0.02)) as door:
        page = door.open()
        page.change()
        assert page.next()[0] == "beat"
        assert page.next()[0] == "beat"


def test_a_stream_ends_by_itself_and_says_when_to_come_back(lab: Lab) -> None:
    with lab.served(replace(QUICK, life=0.1)) as door:
        page = door.open()
        page.change()
        assert page.until("end") == {"why": "renew"}
        assert page.retry >= 200
        assert page.next()[0] == "closed"
        assert door.open(last=page.id).status == 200


def test_a_process_that_ends_tells_every_viewer(lab: Lab, door: Door) -> None:
    job = lab.create("one")
    pages = [door.open() for _ in range(5)]
    for page in pages:
        page.change()
    lab.say(job, "the last word")
    lab.stopping = True
    for page in pages:
        assert page.until("end") == {"why": "stops"}
        assert page.id.startswith(door.hub.epoch)
        assert page.next()[0] == "closed"


def test_a_job_that_is_removed_is_the_end_of_its_page(lab: Lab, door: Door) -> None:
    job = lab.create("one")
    page = door.open(f"/one/{job}")
    page.change()
    lab.store.remove(job, lease=None)
    lab.changes.poke()
    said = page.until("end")
    assert said["why"] == "gone"
    assert said["error"]["type"] == "NotFound"
    assert job in said["error"]["message"]
    assert door.open(f"/one/{job}").status == 404


def test_a_member_who_is_removed_sees_nothing_more(lab: Lab, door: Door) -> None:
    page, other = door.open(name="bob"), door.open(name="ada")
    page.change(), other.change()
    del lab.known["bob"]
    assert page.until("end") == {"why": "access"}
    assert door.open(name="bob").status == 403
    lab.create("one")
    other.wait(lambda p: len(p.rows) == 1)


def test_another_role_is_another_view(lab: Lab, door: Door) -> None:
    page = door.open(name="bob")
    page.change()
    lab.known["bob"] = caller("bob", Role.VIEWER)
    assert page.until("end") == {"why": "access"}
    assert door.open(name="bob").status == 200


def test_a_page_that_cannot_be_made_ends_and_comes_back(lab: Lab, door: Door) -> None:
    page = door.open()
    page.change()
    lab.fails = NotFound("the store is gone")
    lab.create("one")
    assert page.until("end")["error"]["message"] == "the store is gone"
    lab.fails = None
    again = door.open(last=page.id)
    again.change()
    assert again.rows == lab.rows()


def test_a_page_that_is_not_live_is_said_to_be_none(door: Door) -> None:
    assert door.open("/nowhere").status == 404
    assert door.ask("/nowhere")[0] == 404


# Limits --------------------------------------------------------------------------------------------------------------


def test_one_caller_has_only_so_many_live_pages(lab: Lab) -> None:
    with lab.served(limits=replace(LIMITLESS, lives_each=2, lives=3)) as door:
        first, second = door.open(), door.open()
        first.change(), second.change()
        third = door.open()
        assert third.status == 429
        assert int(third.answer.getheader("retry-after") or 0) >= 1
        door.open(name="bob").change()
        assert door.open(name="bob").status == 429, "that would be one more than all may have"
        first.close()
        lab.create("one")  # a stream learns by writing that its reader has left
        while door.open(name="bob").status == 429:
            pass


@pytest.mark.parametrize("view", ["//[", "http://[/all", "//[x]/all"])
def test_an_address_that_is_none_is_refused(door: Door, view: str) -> None:
    status, _, body = door.ask(view)
    assert (status, body["error"]["type"]) == (400, "BadRequest")
