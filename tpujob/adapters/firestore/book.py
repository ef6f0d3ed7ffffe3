"""Texts by name in a collection of Firestore, such as the pinned host keys of slices."""

from collections.abc import Callable

from tpujob.adapters.firestore import records
from tpujob.adapters.firestore.calls import Docs, Firestore, Writes
from tpujob.adapters.firestore.records import Remove

_NAME = "name"  #: the field with the text's name, which is also the document's id


class FirestoreBook:
    """Implements `ssh.keys.Book`. Names are ids of documents, so they have no slash. Raises as the store does."""

    def __init__(self, firestore: Firestore, collection: str) -> None:
        self._db = firestore
        self._collection = collection

    def read(self, name: str) -> str | None:
        doc = self._db.read(f"read {self._path(name)}", self._path(name))
        return records.text_of(doc) if doc else None

    def change(self, name: str, plan: Callable[[str | None], str | None]) -> str | None:
        path = self._path(name)

        def write(docs: Docs) -> tuple[str | None, Writes]:
            doc = docs[path]
            old = records.text_of(doc) if doc else None
            new = plan(old)
            if new == old:
                return old, []
            return new, [Remove(path) if new is None else records.text_put(path, new, name=name)]

        return self._db.change(f"change {path}", [path], write)

    def names(self) -> list[str]:
        pages = self._db.pages("list names", self._collection, order=_NAME, only=_NAME)
        return [records.field(doc, _NAME, str) for page in pages for doc in page]

    def _path(self, name: str) -> str:
        return f"{self._collection}/{name}"
