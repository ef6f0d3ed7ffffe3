"""Members, suspects and the outbox on Firestore, in the database of the store.

    members/<digest>  suspects/<digest>  accusations/<digest>
    messages/<id>            a message; has the field `due` until it is sent or given up
    counters/notes           the position up to which the events of jobs were read

Each query uses one field, which Firestore indexes by itself. A message is created by a write that fails if it exists,
so no transaction spans more than the messages of one burst.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from tpujob.adapters.firestore import records
from tpujob.adapters.firestore.calls import BATCH, Docs, Firestore, Writes
from tpujob.adapters.firestore.records import Doc, Put, Remove, Where
from tpujob.domain.access import Role
from tpujob.domain.codec import message_from_text, to_text
from tpujob.domain.failures import host_reputation
from tpujob.domain.members import Member
from tpujob.domain.model import Accusation, Suspect
from tpujob.domain.notifications.model import Message, ReadPosition


class FirestoreMembers:
    """Implements `ports.Members`. Raises as the store does."""

    def __init__(self, firestore: Firestore) -> None:
        self._db = firestore

    def find(self, name: str) -> Member | None:
        return _parse_member(self._db.read(f"find {name}", _member_path(name)))

    def with_id(self, id: str) -> Member | None:
        docs = self._db.select("find a member", "members", where=[("id", "==", id)]) if id else []
        return _parse_member(docs[0]) if docs else None

    def all(self) -> list[Member]:
        members = map(_parse_member, self._db.select("list the members", "members"))
        return sorted(filter(None, members), key=lambda member: member.name)

    def change(self, name: str, plan: Callable[[Member | None], Member | None]) -> Member | None:
        path = _member_path(name)

        def write(docs: Docs) -> tuple[Member | None, Writes]:
            new = plan(_parse_member(docs[path]))
            if new is None:
                return None, [Remove(path)]
            return new, [Put(path, {"name": name, "role": new.role or "", "id": new.id})]

        return self._db.change(f"change member {name}", [path], write)


def _member_path(name: str) -> str:
    return f"members/{records.digest(name)}"


def _parse_member(doc: Doc | None) -> Member | None:
    if doc is None:
        return None
    name, role, id = (records.field(doc, field, str) for field in ("name", "role", "id"))
    return Member(name, Role(role) if role else None, id)


# Reputation -----------------------------------------------------------------------------------------------------------


class FirestoreReputation:
    """Implements `ports.Reputation`. Raises as the store does."""

    def __init__(self, firestore: Firestore) -> None:
        self._db = firestore

    def accuse(self, physicals: Sequence[str], accusation: Accusation) -> None:
        known = f"accusations/{records.digest(accusation.op_id)}"
        paths = {_suspect_path(physical): physical for physical in physicals}

        def plan(docs: Docs) -> tuple[None, Writes]:
            if docs[known]:
                return None, []
            puts: Writes = [Put(known, {"op": accusation.op_id})]
            for path, physical in paths.items():
                doc = docs[path]
                empty = Suspect(physical, accusation.zone, accusation.at)
                suspect = records.parse_suspect(doc) if doc else empty
                after = host_reputation.accused(suspect, accusation)
                puts.append(Put(path, records.suspect_fields(after)))
            return None, puts

        self._db.change(f"accuse {', '.join(physicals)}", [known, *paths], plan)

    def suspects(self) -> list[Suspect]:
        docs = self._db.select("list the suspects", "suspects")
        return host_reputation.worst_first(map(records.parse_suspect, docs))

    def put(self, suspect: Suspect) -> None:
        puts: Writes = [Put(_suspect_path(suspect.physical), records.suspect_fields(suspect))]
        self._db.change(f"pin {suspect.physical}", [], lambda _: (None, puts))

    def remove(self, physical: str) -> None:
        self._db.remove(f"forget {physical}", [_suspect_path(physical)])


def _suspect_path(physical: str) -> str:
    return f"suspects/{records.digest(physical)}"


# Outbox --------------------------------------------------------------------------------------------------------------


_POSITION = "counters/notes"
#: sorts after every character that follows a channel's name
_END = "\uf8ff"


class FirestoreOutbox:
    """Implements `ports.Outbox`. Raises as the store does."""

    def __init__(self, firestore: Firestore) -> None:
        self._db = firestore

    def position(self) -> ReadPosition | None:
        return _parse_position(self._db.read("read how far events were read", _POSITION))

    def add(self, messages: Sequence[Message], position: ReadPosition | None = None) -> None:
        for start in range(0, len(messages), BATCH):
            puts = {put.path: put for put in map(_message_put, messages[start : start + BATCH])}

            def plan(docs: Docs, puts: dict[str, Put] = puts) -> tuple[None, Writes]:
                return None, [put for path, put in puts.items() if docs[path] is None]

            self._db.change("store messages", list(puts), plan)
        if position is not None:
            self._advance(position)

    def _advance(self, position: ReadPosition) -> None:
        def plan(docs: Docs) -> tuple[None, Writes]:
            stored = _parse_position(docs[_POSITION])
            if stored and stored.change >= position.change:
                return None, []
            since = float(stored.since if stored else position.since)
            return None, [Put(_POSITION, {"change": position.change, "since": since})]

        self._db.change("note how far events were read", [_POSITION], plan)

    def due(self, now: float, limit: int) -> list[Message]:
        return self._select([("due", "<=", float(now))], "due", limit)

    def update(self, messages: Sequence[Message]) -> list[Message] | None:
        stored = [replace(message, version=message.version + 1) for message in messages]

        def plan(docs: Docs) -> tuple[list[Message] | None, Writes]:
            current = [_parse_message(docs[_message_path(message)]) for message in messages]
            if current == stored:  # the reply of an earlier try was lost
                return stored, []
            versions = [message.version for message in current if message]
            if versions != [message.version for message in messages]:
                return None, []
            return stored, [_message_put(message) for message in stored]

        return self._db.change("write messages", [*map(_message_path, messages)], plan)

    def messages(self, *, channel: str = "", limit: int) -> list[Message]:
        if not channel:
            return self._select([], "until", limit, newest_first=True)
        where: list[Where] = [("of", ">", f"{channel}/"), ("of", "<=", f"{channel}/{_END}")]
        return self._select(where, "of", limit, newest_first=True)

    def forget(self, now: float, limit: int) -> None:
        where: list[Where] = [("until", "<=", float(now))]
        docs = self._db.select("list messages", "messages", where=where, order="until", limit=limit)
        self._db.remove("remove old messages", [doc.path for doc in docs])

    def _select(
        self, where: list[Where], order: str, limit: int, *, newest_first: bool = False
    ) -> list[Message]:
        docs = self._db.select(
            "list messages",
            "messages",
            where=where,
            order=order,
            newest_first=newest_first,
            limit=limit,
        )
        return [message_from_text(records.text_of(doc)) for doc in docs]


def _parse_position(doc: Doc | None) -> ReadPosition | None:
    if doc is None:
        return None
    return ReadPosition(records.field(doc, "change", int), records.field(doc, "since", float))


def _parse_message(doc: Doc | None) -> Message | None:
    return message_from_text(records.text_of(doc)) if doc else None


def _message_path(message: Message) -> str:
    return f"messages/{message.id}"


def _message_put(message: Message) -> Put:
    fields = {
        "of": f"{message.channel}/msg_{message.at * 1000:013.0f}",
        "due": None if message.due is None else float(message.due),
        "until": float(message.until),
        "document": to_text(message),
    }
    return Put(_message_path(message), fields)
