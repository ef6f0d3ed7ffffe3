"""The contract of every outbox, on every adapter."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from tests.contract.stores.conftest import Place
from tpujob.domain.notifications.delivery import message_for
from tpujob.domain.notifications.model import MESSAGE_TTL, Message, Notification, NotificationKind
from tpujob.domain.notifications.model import ReadPosition as Position
from tpujob.ports import Outbox, Store


@pytest.fixture
def outbox(store: Store) -> Outbox:
    return store.outbox


def a_message(key: str = "k", channel: str = "lab", at: float = 1000.0) -> Message:
    fact = Notification(key, NotificationKind.FAILED, at, "it crashed: ä <b>", "000001", "mlp")
    return message_for(channel, fact)


def test_a_message_is_stored_once_also_by_another_process(place: Place, outbox: Outbox) -> None:
    late, early = a_message("b", at=2000.0), a_message("a")
    outbox.add([late, early, a_message("b", "ops")])
    again = replace(early, notification=replace(early.notification, text="found again"))
    place.open().outbox.add([again, early])
    assert outbox.due(3000.0, 9)[-1] == late
    assert outbox.messages(channel="lab", limit=9) == [late, early]
    assert len(outbox.messages(limit=9)) == 3
    assert len(outbox.due(3000.0, 2)) == 2
    assert outbox.messages(channel="la", limit=9) == [], "part of a name is another name"


def test_more_messages_than_one_commit_takes_are_stored(outbox: Outbox) -> None:
    made = [a_message(f"{n:04d}", at=1000.0 + n) for n in range(1000)]
    outbox.add(made, Position(7, 0.0))
    assert outbox.due(1e12, 2000) == made


def test_the_position_never_goes_back_and_keeps_its_beginning(place: Place, outbox: Outbox) -> None:
    assert outbox.position() is None
    outbox.add([], Position(5, 1000.0))
    place.open().outbox.add([], Position(3, 500.0))
    assert outbox.position() == Position(5, 1000.0)
    outbox.add([], Position(1_700_000_000_000_000, 2000.0))
    assert place.open().outbox.position() == Position(1_700_000_000_000_000, 1000.0)


def test_of_backends_that_claim_a_message_one_gets_it(place: Place, outbox: Outbox) -> None:
    read = a_message()
    outbox.add([read])
    others = [place.open().outbox for _ in range(4)]

    def claim(n: int) -> bool:
        return others[n].update([replace(read, claimed_by=f"backend-{n}")]) is not None

    with ThreadPoolExecutor(4) as pool:
        claims = list(pool.map(claim, range(4)))
    assert sum(claims) == 1
    (stored,) = outbox.messages(limit=9)
    assert (stored.claimed_by, stored.version) == (f"backend-{claims.index(True)}", 2)


def test_several_messages_change_together_or_not_at_all(outbox: Outbox) -> None:
    first, second, absent = map(a_message, "abc")
    outbox.add([first, second])
    assert outbox.update([replace(first, more=1), replace(absent, due=None)]) is None
    stored = outbox.update([replace(first, more=1), replace(second, state="collapsed", due=None)])
    assert stored is not None
    assert outbox.update([replace(second, state="sent"), stored[0]]) is None, "an older version"
    assert sorted(m.more for m in outbox.messages(limit=9)) == [0, 1]
    assert outbox.due(1e12, 9) == [stored[0]]


def test_a_message_is_due_when_it_says(outbox: Outbox) -> None:
    read = a_message()
    outbox.add([read])
    assert outbox.due(999.0, 9) == []
    assert outbox.due(1000.0, 9) == [read]
    later = outbox.update([replace(read, tried=1, tried_at=1001.0, error="503", due=1060.0)])
    assert later
    assert outbox.due(1059.0, 9) == []
    assert outbox.due(1060.0, 9) == later
    assert outbox.update([replace(later[0], state="sent", due=None)])
    assert outbox.due(1e12, 9) == []


def test_what_is_old_is_removed_a_part_at_a_time_and_nothing_else(outbox: Outbox) -> None:
    outbox.add([a_message(f"{n}") for n in range(5)])
    outbox.add([a_message("young", at=2000.0)])
    for now, remaining in ((999.0, 6), (1000.0, 3), (1000.0, 1)):
        outbox.forget(now + MESSAGE_TTL, 3)
        assert len(outbox.messages(limit=9)) == remaining
    assert outbox.messages(limit=9)[0].at == 2000.0
