"""Tells the speaker what this host has to say; and writes for all, while this host is the speaker."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Tuple, cast

from tpujob.agent.routes import Address
from tpujob.agent.storage import Storage, StorageError
from tpujob.agent.voice.link import Ear, Links
from tpujob.agent.voice.numbering import Numbers
from tpujob.agent.voice.roll import Roll
from tpujob.protocol import Phase, Plan, ReportDocument, paths
from tpujob.protocol.slice_report import Word, pack

REPORT, EVIDENCE, WRITTEN = "report", "evidence", "written"
LOOK = 0.5  #: seconds between two looks at what is due
LAST_WORD = 10.0  #: seconds in which the last word should be written; then it is tried anew
LINGER = (
    20.0  #: seconds that a speaker whose program is over writes for those whose programs are not
)


class Voice(Ear):
    """What `ReportWriter` puts reports into."""

    def __init__(
        self, plan: Plan, storage: Storage, key: str, numbers: Optional[str] = None
    ) -> None:
        """`numbers`: a file that outlives this process, for an agent that is started anew."""
        self._storage, self._key, self._host = storage, key, plan["host"]
        self._path = paths.report_path(plan["workdir"], plan["attempt"], self._host)
        peers = addresses(plan)
        every = max(1.0, plan["report_every"])
        now = time.monotonic()
        self._roll = Roll(self._host, every, plan.get("stall"), now, alone=not peers)
        self._change = threading.Condition()
        self._numbers, self._series, self._closed = Numbers(numbers), b"", False
        self._own: Tuple[ReportDocument, bytes] = ({}, b"")
        self._evidence: Dict[int, bytes] = {}  #: of other hosts
        #: further kinds of words, by what is to be called with the host and the content, on the thread of the links
        self.on: Dict[str, Callable[[int, Any], None]] = {}
        self.links: Optional[Links] = None
        if peers:
            self.links = Links(self._host, peers, key, self)
            self.links.start()
        threading.Thread(target=self._write, name="speaker", daemon=True).start()

    def put(self, said: ReportDocument, evidence: bytes, series: bytes, last: bool) -> None:
        """What this host says from now on. The `last` one: returns when it is in the bucket. Raises StorageError when
        that took too long; it may be put again."""
        with self._change:
            if (said, evidence) != self._own or said.get("phase") != Phase.EXITED:
                self._numbers.next()
            self._own, self._series = (said, evidence), series
            numbered = cast(ReportDocument, {**said, "seq": self._numbers.last})
            self._roll.hear(self._host, numbered, evidence, time.monotonic())
            self._tell()
            self._change.notify_all()
            if last and not self._change.wait_for(self._roll.is_kept, timeout=LAST_WORD):
                raise StorageError("the last report is not written as yet")

    def speaker(self) -> Optional[int]:
        """Who writes for this host; None: nobody as yet."""
        with self._change:
            return self._roll.speaker(time.monotonic())

    def accept_no_more(self) -> None:
        """Leave the port to the next attempt on this host, and keep the connections."""
        if self.links is not None:
            self.links.accept_no_more()

    def close(self) -> None:
        """End all connections; while this host speaks, not before the others have ended or had their time to."""
        if self.links is not None:
            with self._change:
                self._change.wait_for(self._is_alone, timeout=LINGER)
            self.links.close()
        self._closed = True

    def _is_alone(self) -> bool:
        now = time.monotonic()
        if self.links is None or self._roll.speaker(now) != self._host:
            return True
        linked = self.links.linked()
        waits = (w for w in self._roll.words(now) if w.host in linked)
        return all(w.said.get("phase") == Phase.EXITED for w in waits) and not self._roll.due(now)

    # What other hosts say, on the thread of the links ----------------------------------------------------------------

    def linked(self, host: int) -> None:
        with self._change:
            self._roll.link(host, time.monotonic())
            if self._own[0]:
                self._tell()
            self._change.notify_all()

    def lost(self, host: int) -> None:
        with self._change:
            self._roll.lost(host, time.monotonic())
            self._change.notify_all()

    def hear(self, host: int, kind: str, said: Any) -> None:
        with self._change:
            now = time.monotonic()
            report = _report(host, said) if kind == REPORT else None
            if report is not None:
                self._roll.hear(host, report, self._evidence.get(host, b""), now)
            elif kind == EVIDENCE and isinstance(said, str):
                self._evidence[host] = said.encode("utf-8", "replace")
            elif kind == WRITTEN and type(said) is int:
                self._roll.kept(said, now)
            self._change.notify_all()
        if kind in self.on:
            self.on[kind](host, said)

    def _tell(self) -> None:
        """Also a host that does not write: it may come to."""
        upward = self._roll.upward()
        if upward is None or self.links is None:
            return
        said, evidence = self._own
        self.links.send(upward, EVIDENCE, evidence.decode("utf-8", "replace"))
        self.links.send(upward, REPORT, {**said, "seq": self._numbers.last})

    # What it writes --------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        while not self._closed:
            with self._change:
                due = self._roll.due(time.monotonic())
                if not due:
                    self._change.wait(LOOK)
                    continue
                now = time.monotonic()
                words, series = self._roll.words(now), self._series
            written = self._put(words, series)
            with self._change:
                if written:
                    self._roll.written(words, now)
                else:
                    self._roll.failed(time.monotonic())
                self._change.notify_all()
            if written and self.links is not None:
                for word in words:
                    if word.host > self._host:
                        self.links.send(word.host, WRITTEN, word.said.get("seq", 0))

    def _put(self, words: List[Word], series: bytes) -> bool:
        at = self._storage.time()
        metadata, body = pack(words, by=self._host, at=at, key=self._key, series=series)
        with contextlib.suppress(StorageError):
            self._storage.put(self._path, body, metadata)
            return True
        return False


def _report(host: int, said: Any) -> Optional[ReportDocument]:
    """What another host has said, if that is a report of it; None: it would fail later, where it is put together with
    the reports of all, again and again."""
    if not isinstance(said, dict):
        return None
    document = cast(Dict[str, Any], said)
    seq, looks, idle = (document.get(name, 0) for name in ("seq", "looks", "idle"))
    known = (
        document.get("host") == host
        and isinstance(document.get("phase"), str)
        and type(seq) is int
        and 0 <= seq < 2**63
        and type(looks) is int
        and (idle is None or isinstance(idle, (int, float)))
    )
    return cast(ReportDocument, document) if known else None


def addresses(plan: Plan) -> List[Address]:
    """Where the hosts of a plan listen, by host; empty: there is one alone, or the backend does not know of this."""
    peers = (plan.get("voice") or {"peers": []})["peers"]
    pairs = [peer.rpartition(":") for peer in peers]
    return [(name.strip("[]"), int(port)) for name, _, port in pairs] if len(peers) > 1 else []
