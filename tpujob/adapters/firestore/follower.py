"""The stream of changes from Firestore that keeps the mirror up to date, in a thread of its own.

A broken stream resumes where it ended.
"""
# The client library's generated classes carry no types that a checker can follow.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import contextlib
import logging
import queue
import threading
from collections.abc import Iterator
from typing import Any

from tpujob.adapters.calling import Backoff
from tpujob.adapters.firestore.calls import Firestore
from tpujob.adapters.firestore.errors import translated
from tpujob.adapters.firestore.mirror import Mirror
from tpujob.adapters.firestore.records import CHANGED, WAKE, Time, found, query
from tpujob.errors import TpujobError, Transient

log = logging.getLogger(__name__)

#: seconds that one stream lives; the next one resumes from its token, which costs nothing
LIFE = 600.0
#: the most seconds between the server's stamp on a change and its commit: it stamps a request on arrival, and no
#: request of ours lives longer
STAMPED_BEFORE = 30
#: the pauses until a broken stream is begun again
BACKOFF = Backoff(first=0.5, longest=30.0)


class Follower:
    """Feeds the mirror until it is closed. Each change of a job costs one read."""

    def __init__(self, firestore: Firestore, mirror: Mirror) -> None:
        self._db, self._mirror = firestore, mirror
        self._since = Time(0)
        self._token = b""  #: where the stream ended; empty: start afresh
        self._works = False  #: this stream has delivered something
        self._closing = threading.Event()
        self._call: Any = None
        self._thread = threading.Thread(target=self._run, name="firestore-follow", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        with contextlib.suppress(AttributeError):  # not begun, or already over
            self._call.cancel()
        self._thread.join(5)

    def _run(self) -> None:
        failures = 0
        while not self._closing.is_set():
            self._works = False
            try:
                with translated("follow the jobs"):
                    self._listen()
            except TpujobError as error:
                log.debug("%s; following again", error)
            except Exception:
                log.exception("following again after an error")
            finally:
                self._mirror.broken()
            failures = 1 if self._works else failures + 1
            self._closing.wait(BACKOFF.pause(failures))

    def _listen(self) -> None:
        """Run until the stream ends, which it does by an error."""
        if not self._token:
            now = self._db.now("follow the jobs")  # the server's: ours may be wrong
            self._since = Time(now - STAMPED_BEFORE * 1_000_000)
            self._mirror.begun(now)
        asked: queue.SimpleQueue[Any] = queue.SimpleQueue()
        asked.put(self._request())
        self._call = self._db.api().listen(requests=iter(asked.get, None), **self._db.options(LIFE))
        try:
            if self._closing.is_set():  # closed before there was anything to cancel
                self._call.cancel()
            for _ in self._batches(self._call):
                self._works = True
                if self._mirror.caught_up():
                    for page in self._db.pages("follow the jobs", "jobs", order=WAKE):
                        self._mirror.reader.readable(page)
                    self._mirror.completed()
        finally:
            asked.put(None)

    def _batches(self, answers: Iterator[Any]) -> Iterator[None]:
        """Tell the mirror what changed; yield at each moment up to which the stream is complete."""
        from google.cloud.firestore_v1.types import TargetChange

        kinds = TargetChange.TargetChangeType
        for answer in answers:
            pb = type(answer).pb(answer)
            kind = pb.WhichOneof("response_type")
            if kind == "document_change":
                self._mirror.changed(found(answer.document_change.document, self._db.root))
            elif kind in ("document_delete", "document_remove"):
                self._mirror.deleted(getattr(answer, kind).document)
            if kind != "target_change":
                continue
            target = pb.target_change
            self._token = target.resume_token or self._token
            if target.target_change_type == kinds.REMOVE:
                self._token = b""
                raise Transient(f"follow the jobs: {target.cause.message}")
            if target.HasField("read_time") and not target.target_ids:
                yield

    def _request(self) -> dict[str, Any]:
        wanted = query("jobs", self._db.root, where=[(CHANGED, ">", self._since)], order=CHANGED)
        target: dict[str, Any] = {
            "target_id": 1,
            "query": {"parent": self._db.root, "structured_query": wanted},
        }
        if self._token:
            target["resume_token"] = self._token
        return {"database": self._db.database, "add_target": target}
