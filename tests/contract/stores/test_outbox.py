"""The contract of every outbox, on every adapter."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.contract.stores.conftest import Place
from tpujob.adapters.firestore.people import FirestoreOutbox
from tpujob.adapters.firestore.records import Put
from tpujob.adapters.sqlite import SqliteStore
from tpujob.adapters.sqlite.file import SqliteFile
from tpujob.adapters.sqlite.tables import SCRIPTS
from tpujob.domain.notifications.delivery import message_for
from tpujob.domain.notifications.model import KEPT, Message, Notification, NotificationKind
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
        outbox.forget(now + KEPT, 3)
        assert len(outbox.messages(limit=9)) == remaining
    assert outbox.messages(limit=9)[0].at == 2000.0


# Of earlier versions -------------------------------------------------------------------------------------------------

#: what was to be sent, as the version before stored it
NOTE = {
    "key": "000001/1/failed/CRASH", "kind": "failed", "at": 1000.0, "text": "it crashed", "job": "000001",
    "name": "mlp", "user": "ana", "attempt": 1, "cause": "CRASH", "zone": "us-central2-b", "lines": ["KeyError"],
    "owner": "1", "public": "CRASH",
}  # fmt: skip
#: and what it had sent, or was sending
MESSAGE = {
    "id": "msg_0000001000000_lab_3", "channel": "lab", "at": 1000.0, "notes": [NOTE, {**NOTE, "kind": "summary"}],
    "keys": ["a", "b", "c"], "tries": [{"at": 1001.0, "error": "HTTP 503"}], "state": "waiting", "due": 1060.0,
    "counted_from": 0, "claimed_by": "old", "version": 2,
}  # fmt: skip


def assert_old_records_are_sent(outbox: Outbox) -> None:
    note, message = outbox.due(2000.0, 9)
    assert (note.notification.text, note.channel, note.due) == ("it crashed", "lab", 1000.0)
    assert (message.id, message.more, message.notification.name) == (MESSAGE["id"], 2, "mlp")
    assert outbox.update([replace(message, state="sent", due=None)])
    assert {m.channel for m in outbox.messages(channel="lab", limit=9)} == {"lab"}


def test_a_sqlite_outbox_of_version_7_is_sent(tmp_path: Path) -> None:
    old = SqliteFile(tmp_path / "jobs.db", SCRIPTS[:7])
    with old.writing() as db:
        for key, opened in (("a", 1), ("b", 0)):
            row = ("lab", key, opened, 1000.0, 1000.0 + KEPT, json.dumps(NOTE))
            db.execute("INSERT INTO notes VALUES (?, ?, ?, ?, ?, ?)", row)
        row = (MESSAGE["id"], "lab", 2, 1060.0, 1000.0 + KEPT, json.dumps(MESSAGE))
        db.execute("INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?)", row)
    old.close()
    assert_old_records_are_sent(SqliteStore(tmp_path / "jobs.db").outbox)


def test_a_firestore_outbox_of_the_version_before_is_sent(store: Store) -> None:
    outbox = store.outbox
    if not isinstance(outbox, FirestoreOutbox):
        pytest.skip("of Firestore")
    times, path = {"until": 1000.0 + KEPT}, f"messages/{MESSAGE['id']}"
    puts = [
        Put("notes/a1", {**times, "open": "lab/1000/a", "document": json.dumps(NOTE)}),
        Put("notes/a2", {**times, "document": json.dumps(NOTE)}),
        Put("notes/a3", {**times, "open": "lab/1001/c", "document": "{"}),
        Put(
            path,
            {**times, "of": f"lab/{MESSAGE['id']}", "due": 1060.0, "document": json.dumps(MESSAGE)},
        ),
    ]
    outbox._db.change("write", [put.path for put in puts], lambda _: (None, puts))
    outbox.forget(0.0, 9)
    assert_old_records_are_sent(outbox)
    assert outbox._db.select("read", "notes") == []
