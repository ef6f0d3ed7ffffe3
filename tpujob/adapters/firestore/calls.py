"""Calls to Firestore: connection, time limits, retries, optimistic and locking changes. Knows documents, not jobs.

This module uses the generated client, not the hand-written one on top. The latter sets no time limit on the calls of a
transaction, retries it without a pause, does not retry it when a read fails, and ends in a ValueError.
"""
# The client library's generated classes carry no types that a checker can follow.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tpujob.adapters.calling import repeated
from tpujob.adapters.firestore.errors import Moved, is_conflict, translated
from tpujob.adapters.firestore.records import (
    Doc,
    Put,
    Remove,
    build_query,
    build_write,
    microseconds,
    parse_document,
)
from tpujob.lib.tries import Backoff, Deadline

T = TypeVar("T")
Docs = Mapping[str, Doc | None]  #: by path; None: the document does not exist
Writes = list[Put | Remove]
#: returns a result and what to write, given the documents that were read
Plan = Callable[[Docs], tuple[T, Writes]]

BACKOFF = Backoff(first=0.05, longest=2.0)
#: writes in one commit; the service's own limit is 500
BATCH = 400
#: documents of a page: a backend decodes some 4,000 a second, and has `Patience.request` for a page
PAGE = 1000
#: seconds for the release of locks; they expire anyway
ROLLBACK = 2.0

_CHANNEL = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.keepalive_time_ms", 30000),
    # gRPC's default of 120 s would hide for two minutes that the service is up again
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
)


@dataclass(frozen=True, slots=True)
class Patience:
    """The time limits and retries of one call of the port."""

    seconds: float = 20.0  #: for all tries, pauses included
    request: float = 10.0  #: for one request
    tries: int = 8
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


class Firestore:
    """One Firestore database. Connects at the first call. Thread-safe."""

    def __init__(
        self,
        project: str,
        database: str = "(default)",
        *,
        endpoint: str = "",
        patience: Patience | None = None,
        interceptors: Sequence[Any] = (),
    ) -> None:
        """`endpoint`: host and port of an emulator, called without credentials; empty: Google's. `interceptors`: of
        gRPC, for tests that count or disturb requests."""
        self.database = f"projects/{project}/databases/{database}"
        self.root = f"{self.database}/documents"
        self.patience = patience or Patience()
        self._endpoint, self._interceptors = endpoint, interceptors
        self._lock = threading.Lock()
        self._connection: tuple[Any, Any] | None = None  #: a channel, and the client on it

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection:
            connection[0].close()

    # Read ------------------------------------------------------------------------------------------------------------

    def read(self, doing: str, path: str) -> Doc | None:
        """Return a document as it is now; None: it does not exist."""
        return self._retry(doing, lambda left: self._get([path], left)[0][path])

    def now(self, doing: str) -> int:
        """Return the time on the database's clock, in microseconds since the epoch."""

        def once(left: float) -> int:
            request = {"database": self.database, "documents": [f"{self.root}/clock/none"]}
            answers = self.api().batch_get_documents(request, **self.options(left))
            return max(microseconds(type(answer).pb(answer).read_time) for answer in answers)

        return self._retry(doing, once)

    def select(self, doing: str, collection: str, **conditions: Any) -> list[Doc]:
        """Return the documents of a collection that `records.build_query` selects, all as of one moment."""

        def once(left: float) -> list[Doc]:
            parent, _, name = f"{self.root}/{collection}".rpartition("/")
            query = build_query(name, self.root, **conditions)
            request = {"parent": parent, "structured_query": query}
            answers = self.api().run_query(request, **self.options(left))
            docs = [answer.document for answer in answers if answer._pb.HasField("document")]
            return [parse_document(doc, self.root) for doc in docs]

        return self._retry(doing, once)

    def pages(
        self, doing: str, collection: str, *, order: str, limit: int = PAGE, **conditions: Any
    ) -> Iterator[list[Doc]]:
        """Yield pages of the documents that `select` would return, each page as of the moment of its call. A document
        whose field `order` changes meanwhile may be missing or come twice."""
        conditions |= {"order": order, "limit": limit}
        after: tuple[Any, str] | None = None
        while page := self.select(doing, collection, after=after, **conditions):
            yield page
            if len(page) < limit:
                return
            after = page[-1].fields[order], page[-1].path

    # Change ----------------------------------------------------------------------------------------------------------

    def change(self, doing: str, paths: Sequence[str], plan: Plan[T], *, locked: bool = False) -> T:
        """Read these documents, call `plan` with them, write all that it returns or nothing, and return its result. A
        document that was read is overwritten only if it has not changed since. `locked`: nor may documents that are
        only read have changed. `plan` must be pure: it is called again after each failed try, also when only the reply
        was lost."""
        failed_transaction = b""

        def once(left: float) -> T:
            nonlocal failed_transaction
            docs, transaction = self._get(paths, left, locked=locked, retried=failed_transaction)
            failed_transaction = transaction or failed_transaction
            committed = False
            try:
                result, writes = plan(docs)
                if writes:
                    self._commit(writes, docs, transaction)
                    committed = True
                return result
            finally:  # release the locks: other callers wait for them
                if transaction and not committed:
                    self._rollback(transaction)

        return self._retry(doing, once)

    def remove(self, doing: str, paths: Sequence[str]) -> None:
        """Remove any number of documents, in several commits. Absent ones are no error."""
        for start in range(0, len(paths), BATCH):
            removals = [Remove(path) for path in paths[start : start + BATCH]]
            self._retry(doing, lambda _, removals=removals: self._commit(removals, {}, b""))

    def _get(
        self, paths: Sequence[str], left: float, *, locked: bool = False, retried: bytes = b""
    ) -> tuple[dict[str, Doc | None], bytes]:
        """Return the documents and, if `locked`, the transaction that locks them. `retried`: the failed transaction."""
        request: dict[str, Any] = {
            "database": self.database,
            "documents": [f"{self.root}/{path}" for path in paths],
        }
        if locked:
            request["new_transaction"] = {"read_write": {"retry_transaction": retried}}
        docs: dict[str, Doc | None] = dict.fromkeys(paths)
        transaction = b""
        for answer in self.api().batch_get_documents(request, **self.options(left)):
            transaction = answer.transaction or transaction
            if answer._pb.HasField("found"):
                doc = parse_document(answer.found, self.root, answer._pb.read_time)
                docs[doc.path] = doc
        return docs, transaction

    def _commit(self, writes: Sequence[Put | Remove], docs: Docs, transaction: bytes) -> None:
        from google.api_core.exceptions import GoogleAPICallError

        request = {
            "database": self.database,
            "writes": [build_write(write, docs, self.root) for write in writes],
            "transaction": transaction,
        }
        try:
            self.api().commit(request, **self.options(self.patience.request))
        except GoogleAPICallError as error:
            if is_conflict(error, transaction):
                raise Moved(error.message) from error
            raise

    def _rollback(self, transaction: bytes) -> None:
        from google.api_core.exceptions import GoogleAPICallError

        request = {"database": self.database, "transaction": transaction}
        with contextlib.suppress(GoogleAPICallError):
            self.api().rollback(request, **self.options(ROLLBACK))

    # One call of the port --------------------------------------------------------------------------------------------

    def _retry(self, doing: str, call: Callable[[float], T]) -> T:
        """Return the result of the first `call(seconds of one request)` that succeeds."""
        patience = self.patience

        def once(left: float, _: int) -> T:
            with translated(doing):
                return call(min(patience.request, left))

        deadline = Deadline(patience.seconds, patience.clock)
        return repeated(once, deadline, BACKOFF, tries=patience.tries, sleep=patience.sleep)

    def options(self, left: float) -> dict[str, Any]:
        """Return the options of a request: its time limit, no retries by the library, and the database as a header."""
        metadata = (("google-cloud-resource-prefix", self.database),)
        return {"retry": None, "timeout": max(left, 0.001), "metadata": metadata}

    def api(self) -> Any:
        """Return the client of the library; connects at the first call."""
        with self._lock:
            if self._connection is None:
                self._connection = self._connect()
            return self._connection[1]

    def _connect(self) -> tuple[Any, Any]:
        import grpc
        from google.cloud.firestore_v1.services.firestore import FirestoreClient
        from google.cloud.firestore_v1.services.firestore.transports import FirestoreGrpcTransport

        if self._endpoint:
            no_proxy = ("grpc.enable_http_proxy", 0)
            channel: Any = grpc.insecure_channel(self._endpoint, options=(*_CHANNEL, no_proxy))
        else:
            channel = FirestoreGrpcTransport.create_channel(
                FirestoreClient.DEFAULT_ENDPOINT, options=_CHANNEL
            )
        intercepted = grpc.intercept_channel(channel, *self._interceptors)
        return channel, FirestoreClient(transport=FirestoreGrpcTransport(channel=intercepted))
