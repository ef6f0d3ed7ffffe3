"""Follows the changes of jobs in Firestore, in a thread, and keeps the mirror up to date.

A broken stream resumes where it ended.
"""
# The client library's generated classes carry no types that a checker can follow.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import contextlib
import logging
import queue
import random
import threading
from collections.abc import Iterator
from typing import Any

from tpujob.adapters.firestore.calls import Firestore
from tpujob.adapters.firestore.errors import translated
from tpujob.adapters.firestore.mirror import Mirror
from tpujob.adapters.firestore.records import CHANGED, WAKE, Time, build_query, parse_document
from tpujob.errors import TpujobError, Transient
from tpujob.lib.threads import start_loop
from tpujob.lib.tries import Backoff

log = logging.getLogger(__name__)

#: seconds after which a stream is replaced by one that resumes from its token, at no cost
LIFE = 600.0
#: upper bound, in seconds, from the server's stamp on a change to its commit: the server stamps a request on arrival,
#: and no request of ours takes longer
STAMPED_BEFORE = 30
#: pauses before a broken stream is resumed
BACKOFF = Backoff(first=0.5, longest=30.0)


class Follower:
    """Feeds the mirror until it is closed. Each change of a job costs one read."""

    def __init__(self, firestore: Firestore, mirror: Mirror) -> None:
        self._db, self._mirror = firestore, mirror
        self._since = Time(0)
        self._token = b""  #: where the stream ended; empty: it starts from now
        self._works = False  #: the stream has delivered something
        self._closing = threading.Event()
        self._call: Any = None
        self._thread = start_loop("firestore-follow", self._run)

    def close(self) -> None:
        self._closing.set()
        with contextlib.suppress(AttributeError):  # no stream is open
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
            finally:
                self._mirror.note_broken()
            failures = 1 if self._works else failures + 1
            self._closing.wait(BACKOFF.pause(failures, random.random()))  # noqa: S311

    def _listen(self) -> None:
        """Follow the stream until it ends, always by an error."""
        if not self._token:
            now = self._db.now("follow the jobs")  # the server's clock: ours may be wrong
            self._since = Time(now - STAMPED_BEFORE * 1_000_000)
            self._mirror.restart(now)
        outgoing: queue.SimpleQueue[Any] = queue.SimpleQueue()
        outgoing.put(self._request())
        options = self._db.options(LIFE)
        self._call = self._db.api().listen(requests=iter(outgoing.get, None), **options)
        try:
            if self._closing.is_set():  # `close` found no call to cancel
                self._call.cancel()
            for _ in self._batches(self._call):
                self._works = True
                if self._mirror.note_caught_up():
                    for page in self._db.pages("follow the jobs", "jobs", order=WAKE):
                        self._mirror.reader.readable(page)
                    self._mirror.note_complete()
        finally:
            outgoing.put(None)

    def _batches(self, answers: Iterator[Any]) -> Iterator[None]:
        """Pass each change to the mirror; yield when the server confirms that it has sent all changes until now."""
        from google.cloud.firestore_v1.types import TargetChange

        kinds = TargetChange.TargetChangeType
        for answer in answers:
            pb = type(answer).pb(answer)
            kind = pb.WhichOneof("response_type")
            if kind == "document_change":
                doc = parse_document(answer.document_change.document, self._db.root)
                self._mirror.note_change(doc)
            elif kind in ("document_delete", "document_remove"):
                self._mirror.note_deletion(getattr(answer, kind).document)
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
        where = [(CHANGED, ">", self._since)]
        query = build_query("jobs", self._db.root, where=where, order=CHANGED)
        target: dict[str, Any] = {
            "target_id": 1,
            "query": {"parent": self._db.root, "structured_query": query},
        }
        if self._token:
            target["resume_token"] = self._token
        return {"database": self._db.database, "add_target": target}
