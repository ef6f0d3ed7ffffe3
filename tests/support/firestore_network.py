"""A network between a store and Firestore: counts billed operations, records requests, and fails on demand."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import grpc

LOSE = "lose"  #: the request is carried out and its reply lost
Fault = Callable[[str, Any], "grpc.StatusCode | str | None"]


class Failure(grpc.RpcError):
    """The error of the client library for a failed request."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        self._code, self._details = code, details

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._details

    def trailing_metadata(self) -> tuple[()]:
        return ()

    def result(self) -> Any:
        raise self


class Network(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """`fault` returns the failure of a request, by the name of its method; None: no failure."""

    def __init__(self, fault: Fault = lambda method, request: None) -> None:
        self.fault = fault
        self.seen: list[tuple[str, Any, float | None]] = []  #: method, request, its time limit
        #: reads, writes and deletes, as they are charged, each with the collections that they went to
        self.billed: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()

    def methods(self) -> list[str]:
        return [method for method, _, _ in self.seen]

    def bill(self, operation: str, why: str, count: int) -> None:
        with self._lock:
            self.billed[operation, why] += count

    def total(self, operation: str) -> int:
        return sum(count for (billed, _), count in self.billed.items() if billed == operation)

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        lost = self._before(details, request)
        reply = continuation(details, request)
        if details.method.endswith("/Commit") and reply.code() is grpc.StatusCode.OK:
            names = [write.delete or write.update.name for write in request.writes]
            for write in request.writes:
                self.bill("deletes" if write.delete else "writes", collections(names), 1)
        if lost:
            reply.result()
            raise Failure(grpc.StatusCode.UNAVAILABLE, "the reply was lost")
        return reply

    def intercept_unary_stream(self, continuation: Any, details: Any, request: Any) -> Any:
        if self._before(details, request):
            raise Failure(grpc.StatusCode.UNAVAILABLE, "the reply was lost")
        answers = continuation(details, request)
        if details.method.endswith("/BatchGetDocuments"):  # also those that are not there
            self.bill("reads", collections(request.documents), len(request.documents))
            return answers
        query = request.structured_query
        why = f"query {query.from_[0].collection_id} by {query.order_by[0].field.field_path}"
        return _Counted(answers, self, why, "document", least=1)

    def intercept_stream_stream(self, continuation: Any, details: Any, requests: Any) -> Any:
        self._before(details, None)
        return _Counted(continuation(details, requests), self, "stream", "document_change", least=0)

    def _before(self, details: Any, request: Any) -> bool:
        method = details.method.rpartition("/")[2]
        with self._lock:
            self.seen.append((method, request, details.timeout))
            fault = self.fault(method, request)
        if isinstance(fault, grpc.StatusCode):
            raise Failure(fault, f"as the test asked: {fault.name}")
        return fault == LOSE


def collections(names: Sequence[str]) -> str:
    """Return the innermost collections of these documents."""
    return "+".join(sorted({name.split("/")[-2] for name in names}))


class _Counted:
    """A stream of answers; each that has `part` is a document that was read, and a query costs at least `least`."""

    def __init__(self, answers: Any, network: Network, why: str, part: str, *, least: int) -> None:
        self._answers, self._network, self._why = answers, network, why
        self._part, self._least = part, least
        self._sent: set[tuple[str, str]] = set()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            answer = next(self._answers)
        except StopIteration:
            self._network.bill("reads", self._why, self._least)
            raise
        if type(answer).pb(answer).HasField(self._part):
            self._network.bill("reads", self._why, self._new(getattr(answer, self._part)))
            self._least = 0
        return answer

    def _new(self, part: Any) -> int:
        """Return 1 for a new document, else 0: after a change the emulator sends all of a stream, Firestore one."""
        if self._part == "document":
            return 1
        seen = (part.document.name, str(part.document.update_time))
        repeated = seen in self._sent
        self._sent.add(seen)
        return int(not repeated)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._answers, name)
