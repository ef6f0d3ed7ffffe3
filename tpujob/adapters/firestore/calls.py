"""How Firestore is called: connection, time limits, tries, optimistic and locking changes.

Knows documents, not jobs. It uses the generated client, not the hand-written one on top of it: that one sets no time
limit on the calls of a transaction, repeats a transaction without a pause, does not repeat it when one of its reads
fails, and ends in a ValueError.
"""
# The client library's generated classes carry no types that a checker can follow.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tpujob.adapters.calling import Backoff, Deadline, repeated
from tpujob.adapters.firestore.errors import Moved, moved, translated
from tpujob.adapters.firestore.records import (
    Found,
    Put,
    Remove,
    found,
    microseconds,
    query,
    write_of,
)

T = TypeVar("T")
Docs = Mapping[str, Found | None]  #: by path; None: there is no such document
Plan = Callable[[Docs], tuple[T, Sequence[Put | Remove]]]

BACKOFF = Backoff(first=0.05, longest=2.0, tries=8)
#: writes in one commit; the service's own limit is 500
BATCH = 400
#: documents in one answer to `pages`: a backend decodes some 4,000 a second, and has `Patience.request` for them
PAGE = 1000
#: seconds for releasing locks; they expire anyway
ROLLBACK = 2.0

_CHANNEL = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.keepalive_time_ms", 30000),
    # with gRPC's default of 120 s we would not notice for two minutes that the service is back
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long and how often one call of the port is tried."""

    seconds: float = 20.0  #: for all tries and the pauses between them
    request: float = 10.0  #: for one request
    backoff: Backoff = BACKOFF
    clock: Callable[[], float] = time.monotonic


class Firestore:
    """One database. Safe to use from several threads. Connects at the first use."""

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
        gRPC, to count or disturb the requests."""
        self.database = f"projects/{project}/databases/{database}"
        self.root = f"{self.database}/documents"
        self.patience = patience or Patience()
        self._endpoint, self._interceptors = endpoint, interceptors
        self._lock = threading.Lock()
        self._made: tuple[Any, Any] | None = None  #: the channel and the client on it

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        with self._lock:
            made, self._made = self._made, None
        if made:
            made[0].close()

    # Read ------------------------------------------------------------------------------------------------------------

    def read(self, doing: str, path: str) -> Found | None:
        """One document as it is now."""
        return self._repeated(doing, lambda left: self._get([path], left)[0][path])

    def now(self, doing: str) -> int:
        """The database's clock: microseconds since the epoch."""

        def once(left: float) -> int:
            request = {"database": self.database, "documents": [f"{self.root}/clock/none"]}
            answers = self.api().batch_get_documents(request, **self.options(left))
            return max(microseconds(type(each).pb(each).read_time) for each in answers)

        return self._repeated(doing, once)

    def select(self, doing: str, collection: str, **wanted: Any) -> list[Found]:
        """The documents of a collection that `records.query` describes, all as of one moment."""

        def once(left: float) -> list[Found]:
            parent, _, name = f"{self.root}/{collection}".rpartition("/")
            request = {"parent": parent, "structured_query": query(name, self.root, **wanted)}
            answers = self.api().run_query(request, **self.options(left))
            return [found(a.document, self.root) for a in answers if a._pb.HasField("document")]

        return self._repeated(doing, once)

    def pages(
        self, doing: str, collection: str, *, order: str, limit: int = PAGE, **wanted: Any
    ) -> Iterator[list[Found]]:
        """As `select`, however many there are, each page as of a moment of its own: a document whose field `order`
        changes meanwhile may be missing, or come twice."""
        wanted |= {"order": order, "limit": limit}
        after: tuple[Any, str] | None = None
        while page := self.select(doing, collection, after=after, **wanted):
            yield page
            if len(page) < limit:
                return
            after = page[-1].fields[order], page[-1].path

    # Change ----------------------------------------------------------------------------------------------------------

    def change(self, doing: str, paths: Sequence[str], plan: Plan[T], *, locked: bool = False) -> T:
        """Read these documents, ask `plan` what to write, write all of it or nothing, and return the plan's result.

        A document that was read is overwritten only if it has not changed since. `locked`: documents that are only
        read have not changed either. `plan` is pure: it is called again after each failed try, and after one whose
        reply was lost."""
        retried = b""

        def once(left: float) -> T:
            nonlocal retried
            docs, transaction = self._get(paths, left, locked=locked, retried=retried)
            retried = transaction or retried
            committed = False
            try:
                result, writes = plan(docs)
                if writes:
                    self._commit(writes, docs, transaction)
                    committed = True
                return result
            finally:  # release the locks, or the next caller would wait for them
                if transaction and not committed:
                    self._rollback(transaction)

        return self._repeated(doing, once)

    def remove(self, doing: str, paths: Sequence[str]) -> None:
        """Remove any number of documents, in several commits. Absent ones are no error."""
        for start in range(0, len(paths), BATCH):
            gone = [Remove(path) for path in paths[start : start + BATCH]]
            self._repeated(doing, lambda _, gone=gone: self._commit(gone, {}, b""))

    def _get(
        self, paths: Sequence[str], left: float, *, locked: bool = False, retried: bytes = b""
    ) -> tuple[dict[str, Found | None], bytes]:
        request: dict[str, Any] = {
            "database": self.database,
            "documents": [f"{self.root}/{path}" for path in paths],
        }
        if locked:
            request["new_transaction"] = {"read_write": {"retry_transaction": retried}}
        docs: dict[str, Found | None] = dict.fromkeys(paths)
        transaction = b""
        for answer in self.api().batch_get_documents(request, **self.options(left)):
            transaction = answer.transaction or transaction
            if answer._pb.HasField("found"):
                one = found(answer.found, self.root)
                docs[one.path] = one
        return docs, transaction

    def _commit(self, writes: Sequence[Put | Remove], docs: Docs, transaction: bytes) -> None:
        from google.api_core.exceptions import GoogleAPICallError

        request = {
            "database": self.database,
            "writes": [write_of(each, docs, self.root) for each in writes],
            "transaction": transaction,
        }
        try:
            self.api().commit(request, **self.options(self.patience.request))
        except GoogleAPICallError as error:
            if moved(error, transaction):
                raise Moved(error.message) from error
            raise

    def _rollback(self, transaction: bytes) -> None:
        from google.api_core.exceptions import GoogleAPICallError

        request = {"database": self.database, "transaction": transaction}
        with contextlib.suppress(GoogleAPICallError):
            self.api().rollback(request, **self.options(ROLLBACK))

    # One call of the port --------------------------------------------------------------------------------------------

    def _repeated(self, doing: str, call: Callable[[float], T]) -> T:
        """Return what `call` returns when it first succeeds; it gets the seconds of one request."""
        patience = self.patience

        def once(left: float, _: int) -> T:
            with translated(doing):
                return call(min(patience.request, left))

        return repeated(once, Deadline(patience.seconds, patience.clock), patience.backoff)

    def options(self, left: float) -> dict[str, Any]:
        """The arguments of one request: its time, no repeats by the library, and the database for the router."""
        routed = (("google-cloud-resource-prefix", self.database),)
        return {"retry": None, "timeout": max(left, 0.001), "metadata": routed}

    def api(self) -> Any:
        with self._lock:
            if self._made is None:
                self._made = self._connected()
            return self._made[1]

    def _connected(self) -> tuple[Any, Any]:
        import grpc
        from google.cloud.firestore_v1.services.firestore import FirestoreClient
        from google.cloud.firestore_v1.services.firestore.transports import FirestoreGrpcTransport

        if self._endpoint:
            local = ("grpc.enable_http_proxy", 0)
            channel: Any = grpc.insecure_channel(self._endpoint, options=(*_CHANNEL, local))
        else:
            channel = FirestoreGrpcTransport.create_channel(
                FirestoreClient.DEFAULT_ENDPOINT, options=_CHANNEL
            )
        heard = grpc.intercept_channel(channel, *self._interceptors)
        return channel, FirestoreClient(transport=FirestoreGrpcTransport(channel=heard))
