"""What every outbox promises, on every adapter."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from tests.contracts.stores.place import Place
from tpujob.domain.notify.model import KEPT, Channel, Kind, Message, Note, Progress, Told, Try
from tpujob.errors import NotFound
from tpujob.ports import Outbox, Store


@pytest.fixture
def outbox(store: Store) -> Outbox:
    return store.outbox


def a_note(key: str = "000001/1/failed/CRASH", at: float = 1000.0) -> Note:
    return Note(key, Kind.FAILED, at, "it crashed: ä <b>", job="000001", name="mlp", user="ana")


def a_message(number: int = 1, channel: str = "lab", at: float = 1000.0) -> Message:
    id = f"msg_{at * 1000:013.0f}_{channel}_{number}"
    return Message(id, channel, at, (a_note(),), ("k",), due=at)


def sent(outbox: Outbox, message: Message) -> Message:
    """It is there."""
    assert outbox.write(outbox.channel(message.channel), message)
    return outbox.message(message.id)


def test_a_note_is_kept_once_for_each_channel_also_by_another_process(
    place: Place, outbox: Outbox
) -> None:
    late, early = a_note("b", 2000.0), a_note("a", 1000.0)
    outbox.note([("lab", late), ("lab", early), ("ops", late)])
    outbox.note([("lab", replace(early, text="said again")), ("lab", early)])
    for each in (outbox, place.open().outbox):
        assert each.open("lab", 10) == [early, late], "oldest first, as it was first said"
        assert each.open("lab", 1) == [early]
        assert each.open("ops", 10) == [late]
        assert each.open("la", 10) == [], "a name that begins another one is another one"


def test_a_note_that_is_closed_is_not_open_again_when_it_is_found_again(outbox: Outbox) -> None:
    outbox.note([("lab", a_note("a")), ("ops", a_note("a"))])
    outbox.close("lab", ["a", "no such note", "a"])
    outbox.note([("lab", a_note("a"))])
    outbox.close("lab", ["a"])
    assert outbox.open("lab", 10) == []
    assert outbox.open("ops", 10) == [a_note("a")]


def test_more_notes_than_one_commit_takes_are_kept_and_closed(outbox: Outbox) -> None:
    notes = [a_note(f"{n:04d}", 1000.0 + n) for n in range(1000)]
    outbox.note([("lab", note) for note in notes], Progress(7, 0.0))
    assert outbox.open("lab", 2000) == notes
    outbox.close("lab", [note.key for note in notes[:999]])
    assert outbox.open("lab", 2000) == notes[999:]


def test_the_progress_never_goes_back_and_keeps_its_beginning(place: Place, outbox: Outbox) -> None:
    assert outbox.progress() is None
    outbox.note([], Progress(5, 1000.0))
    place.open().outbox.note([], Progress(3, 500.0))
    assert outbox.progress() == Progress(5, 1000.0)
    outbox.note([], Progress(1_700_000_000_000_000, 2000.0))
    assert place.open().outbox.progress() == Progress(1_700_000_000_000_000, 1000.0)


def test_a_channel_comes_back_as_it_was_written(place: Place, outbox: Outbox) -> None:
    new = outbox.channel("lab")
    assert new == Channel("lab")
    full = replace(
        new,
        made=3,
        topics={"failed/CRASH/": Told(5.0, 60.0)},
        jobs={"000001": 5.0},
        muted_until=9.5,
        disabled_at=4.0,
        disabled_why="410",
        closing="msg_1",
    )
    stored = outbox.write(full)
    assert stored == replace(full, version=1)
    assert place.open().outbox.channel("lab") == stored


def test_whoever_has_read_an_older_channel_writes_nothing_no_message_either(
    place: Place, outbox: Outbox
) -> None:
    old = outbox.channel("lab")
    assert outbox.write(replace(old, made=1), a_message(1))
    other = place.open().outbox
    assert other.write(replace(old, made=1), a_message(2, at=2000.0)) is None
    assert [m.id for m in outbox.messages(limit=9)] == [a_message(1).id]
    assert outbox.channel("lab").version == 1


def test_of_backends_that_make_a_message_at_once_one_does(place: Place, outbox: Outbox) -> None:
    others = [place.open().outbox for _ in range(4)]
    read = outbox.channel("lab")
    with ThreadPoolExecutor(4) as pool:
        wrote = list(
            pool.map(
                lambda n: others[n].write(replace(read, made=n), a_message(n)), range(len(others))
            )
        )
    won = [n for n, stored in enumerate(wrote) if stored]
    assert len(won) == 1
    assert [m.id for m in outbox.messages(limit=9)] == [a_message(won[0]).id]


def test_of_backends_that_claim_a_message_one_gets_it(place: Place, outbox: Outbox) -> None:
    read = sent(outbox, a_message())
    others = [place.open().outbox for _ in range(4)]

    def claim(n: int) -> bool:
        return others[n].update(replace(read, claimed_by=f"backend-{n}")) is not None

    with ThreadPoolExecutor(4) as pool:
        got = list(pool.map(claim, range(4)))
    assert sum(got) == 1
    assert outbox.message(read.id).claimed_by == f"backend-{got.index(True)}"


def test_a_message_keeps_its_tries_and_is_due_when_it_says(outbox: Outbox) -> None:
    read = sent(outbox, a_message(at=1000.0))
    assert outbox.due(999.0, 9) == []
    assert [m.id for m in outbox.due(1000.0, 9)] == [read.id]
    later = outbox.update(replace(read, tries=(Try(1001.0, "503"),), due=1060.0))
    assert later is not None
    assert later.version == read.version + 1
    assert outbox.due(1059.0, 9) == []
    done = replace(later, tries=(*later.tries, Try(1060.0)), state="sent", due=None)
    assert outbox.update(done)
    assert outbox.due(1e12, 9) == []
    assert outbox.message(read.id).tries == (Try(1001.0, "503"), Try(1060.0))
    old = replace(done, state="failed")
    assert outbox.update(old) is None, "it is at a newer version"


def test_messages_are_paged_newest_first_of_one_channel_or_of_all(outbox: Outbox) -> None:
    for n in range(5):
        for channel in ("lab", "lab-2"):
            sent(outbox, a_message(n, channel, at=1000.0 + n))
    every = [m.id for m in outbox.messages(limit=99)]
    assert every == sorted(every, reverse=True)
    assert len(every) == 10
    first = outbox.messages(channel="lab", limit=2)
    then = outbox.messages(channel="lab", before=first[-1].id, limit=9)
    assert [m.at for m in (*first, *then)] == [1004.0, 1003.0, 1002.0, 1001.0, 1000.0]
    assert {m.channel for m in (*first, *then)} == {"lab"}


def test_an_unknown_message_is_said_to_be_none(outbox: Outbox) -> None:
    with pytest.raises(NotFound, match="no message 'msg_1'"):
        outbox.message("msg_1")
    assert outbox.update(a_message()) is None


def test_what_is_old_is_forgotten_a_part_at_a_time_and_nothing_else(outbox: Outbox) -> None:
    outbox.note([("lab", a_note(f"{n}", 1000.0)) for n in range(5)])
    outbox.note([("lab", a_note("young", 2000.0))])
    sent(outbox, a_message(1, at=1000.0))
    sent(outbox, a_message(2, at=2000.0))
    assert outbox.forget(999.0 + KEPT, 3) == 0
    assert outbox.forget(1000.0 + KEPT, 3) == 3 + 1
    assert outbox.forget(1000.0 + KEPT, 3) == 2
    assert outbox.open("lab", 9) == [a_note("young", 2000.0)]
    assert [m.at for m in outbox.messages(limit=9)] == [2000.0]
