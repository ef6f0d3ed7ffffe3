"""The port `Outbox` on Firestore, in the database of the store.

    notes/<digest>           a note of a channel; `open` (channel and time) is there until a message tells it
    messages/<id>            a message; `due` is there while it is to be tried
    channels/<name>          what a channel was told lately
    counters/notes           the change up to which jobs were read

Each query goes by one field, which has an index by itself. A note is written by a create that fails when it is there,
so no transaction spans more than the documents of one channel and one message.
"""

from collections.abc import Sequence
from dataclasses import replace

from tpujob.adapters.firestore import records
from tpujob.adapters.firestore.calls import BATCH, Docs, Firestore, Plan
from tpujob.adapters.firestore.records import Found, Put, Remove, Where
from tpujob.adapters.records import no_message
from tpujob.domain.codec import channel_from_text, message_from_text, note_from_text, to_text
from tpujob.domain.notify.model import KEPT, Channel, Message, Note, Progress

_PROGRESS = "counters/notes"
#: sorts after everything that follows a channel's name
_END = "\uf8ff"


class FirestoreOutbox:
    """Implements `ports.Outbox`. Raises as the store does."""

    def __init__(self, firestore: Firestore) -> None:
        self._db = firestore

    # Notes -----------------------------------------------------------------------------------------------------------

    def progress(self) -> Progress | None:
        return _progress(self._db.read("read how far events are told", _PROGRESS))

    def note(self, notes: Sequence[tuple[str, Note]], progress: Progress | None = None) -> None:
        wanted = {_note_path(name, note.key): (name, note) for name, note in reversed(notes)}
        paths = list(wanted)
        for start in range(0, len(paths), BATCH):
            some = paths[start : start + BATCH]

            def plan(docs: Docs, some: Sequence[str] = some) -> tuple[None, list[Put | Remove]]:
                fresh = [path for path in some if docs[path] is None]
                return None, [Put(path, _note_fields(*wanted[path])) for path in fresh]

            self._db.change("keep what is to be told", some, plan)
        if progress is not None:
            self._db.change("note how far events are told", [_PROGRESS], _moved_to(progress))

    def open(self, channel: str, limit: int) -> list[Note]:
        where: list[Where] = [("open", ">", f"{channel}/"), ("open", "<=", f"{channel}/{_END}")]
        doing = "read what is to be told"
        found = self._db.select(doing, "notes", where=where, order="open", limit=limit)
        return [note_from_text(records.document(doc)) for doc in found]

    def close(self, channel: str, keys: Sequence[str]) -> None:
        paths = [_note_path(channel, key) for key in dict.fromkeys(keys)]
        for start in range(0, len(paths), BATCH):

            def plan(docs: Docs) -> tuple[None, list[Put | Remove]]:
                opened = [doc for doc in docs.values() if doc and "open" in doc.fields]
                return None, [Put(doc.path, {**doc.fields, "open": None}) for doc in opened]

            self._db.change("note what was told", paths[start : start + BATCH], plan)

    # Channels --------------------------------------------------------------------------------------------------------

    def channel(self, name: str) -> Channel:
        found = self._db.read(f"read the channel {name}", f"channels/{name}")
        return _channel(name, found)

    def write(self, channel: Channel, message: Message | None = None) -> Channel | None:
        stored = replace(channel, version=channel.version + 1)
        place = f"channels/{channel.name}"

        def plan(docs: Docs) -> tuple[Channel | None, list[Put | Remove]]:
            now = _channel(channel.name, docs[place])
            if now == stored and message and docs[f"messages/{message.id}"]:
                return stored, []  # the reply of an earlier try was lost
            if now.version != channel.version:
                return None, []
            puts: list[Put | Remove] = [Put(place, {"document": to_text(stored)})]
            return stored, [*puts, _message_put(message)] if message else puts

        paths = [place, *([f"messages/{message.id}"] if message else [])]
        return self._db.change(f"write the channel {channel.name}", paths, plan)

    # Messages --------------------------------------------------------------------------------------------------------

    def message(self, id: str) -> Message:
        found = self._db.read(f"read the message {id}", _message_path(id))
        if found is None:
            raise no_message(id)
        return message_from_text(records.document(found))

    def update(self, message: Message) -> Message | None:
        stored = replace(message, version=message.version + 1)
        path = _message_path(message.id)

        def plan(docs: Docs) -> tuple[Message | None, list[Put | Remove]]:
            doc = docs[path]
            now = message_from_text(records.document(doc)) if doc else None
            if now == stored:  # the reply of an earlier try was lost
                return stored, []
            if now is None or now.version != message.version:
                return None, []
            return stored, [_message_put(stored)]

        return self._db.change(f"write the message {message.id}", [path], plan)

    def due(self, now: float, limit: int) -> list[Message]:
        where: list[Where] = [("due", "<=", float(now))]
        doing = "list what is to be sent"
        found = self._db.select(doing, "messages", where=where, order="due", limit=limit)
        return [message_from_text(records.document(doc)) for doc in found]

    def messages(self, *, channel: str = "", before: str = "", limit: int) -> list[Message]:
        field, head = ("of", f"{channel}/") if channel else ("id", "")
        where: list[Where] = [(field, "<=", f"{head}{before or _END}")]
        where += [(field, ">", head)] if channel else []
        found = self._db.select(
            "list messages",
            "messages",
            where=where,
            order=field,
            newest_first=True,
            limit=limit + 1,
        )
        older = [doc for doc in found if doc.fields.get("id") != before][:limit]
        return [message_from_text(records.document(doc)) for doc in older]

    def forget(self, now: float, limit: int) -> int:
        removed = 0
        where: list[Where] = [("until", "<=", float(now))]
        for collection in ("notes", "messages"):
            doing = f"remove old {collection}"
            found = self._db.select(doing, collection, where=where, order="until", limit=limit)
            self._db.remove(doing, [doc.path for doc in found])
            removed += len(found)
        return removed


def _moved_to(progress: Progress) -> Plan[None]:
    def plan(docs: Docs) -> tuple[None, list[Put | Remove]]:
        known = _progress(docs[_PROGRESS])
        if known and known.change >= progress.change:
            return None, []
        since = float(known.since if known else progress.since)
        return None, [Put(_PROGRESS, {"change": progress.change, "since": since})]

    return plan


def _progress(found: Found | None) -> Progress | None:
    if found is None:
        return None
    return Progress(records.field(found, "change", int), records.field(found, "since", float))


def _note_path(channel: str, key: str) -> str:
    return f"notes/{records.digest(f'{channel} {key}')}"


def _note_fields(channel: str, note: Note) -> dict[str, str | float | None]:
    return {
        "open": f"{channel}/{note.at:017.6f}/{note.key}",
        "until": note.at + KEPT,
        "document": to_text(note),
    }


def _message_path(id: str) -> str:
    return f"messages/{id}"


def _message_put(message: Message) -> Put:
    fields = {
        "id": message.id,
        "of": f"{message.channel}/{message.id}",
        "due": None if message.due is None else float(message.due),
        "until": float(message.until),
        "document": to_text(message),
    }
    return Put(_message_path(message.id), fields)


def _channel(name: str, found: Found | None) -> Channel:
    return channel_from_text(records.document(found)) if found else Channel(name)
