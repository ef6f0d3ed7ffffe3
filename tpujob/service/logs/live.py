"""What the hosts of a running attempt tell somebody who follows it: one stream for each attempt and host that has to be
asked itself, shared by all who follow, closed soon after the last of them.

What was heard is kept for a while after the end: an agent that dies takes along what it has not stored.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Mapping
from threading import Condition, Thread
from typing import NamedTuple

from tpujob.domain.model import Job, Slice, State
from tpujob.errors import TpujobError
from tpujob.ports import Hosts, Listening
from tpujob.protocol import live
from tpujob.service.logs.pieces import Until
from tpujob.service.logs.tail import Ring, Tail

log = logging.getLogger(__name__)

IDLE = 30.0  #: seconds without a reader, after which a stream is closed
KEPT = 600.0  #: seconds for which what was heard is remembered after that
FIRST = 4.0  #: seconds that the first reader waits for the first words
CONNECT = 10.0  #: seconds for a connection
PAUSES = (1.0, 2.0, 5.0, 15.0)  #: seconds between two tries
ATTEMPTS = 32  #: that are followed at once, or remembered
VOICES = 8  #: hosts of one attempt that are asked themselves
ROOM, LEAST = 32 * 1024 * 1024, 256 * 1024  #: bytes of tails of an attempt; of one host at least

#: states in which the hosts of the newest attempt may be asked
_TELLING = frozenset({State.PREPARING, State.RUNNING, State.HOLDING})


class Tails(NamedTuple):
    """What was heard of an attempt."""

    of: Mapping[int, Tail]  #: by host
    whole: bool  #: every host is heard just now
    over: bool  #: the attempt has ended, and its agents are heard no more
    settled_at: float = 0.0  #: when something was last heard to be in the bucket; monotonic
    trouble: str = ""  #: why hosts cannot be heard


NOTHING = Tails({}, whole=False, over=False)


class Live:
    """Threads may share it."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self._change = Condition()
        self._followed: dict[tuple[str, int], _Followed] = {}

    def tails(self, job: Job, attempt: int, until: Until) -> Tails:
        """What is known now of that attempt; its hosts are asked from now on, if it runs. Waits a moment for the first
        words."""
        key, now = (job.id, attempt), time.monotonic()
        newest = attempt == len(job.attempts) and job.state in _TELLING
        slice = job.slice if newest else None
        with self._change:
            self._forget(now)
            found = self._followed.get(key)
            if slice is None or not slice.endpoints:
                if found is None:
                    return NOTHING
                found.end(now)
                return found.tails()
            if found is None:
                if len(self._followed) >= ATTEMPTS:
                    return NOTHING
                found = self._followed[key] = _Followed(self._hosts, slice, key, self._change)
            found.read(now)
            patience = min(FIRST - (now - found.began), until.left)
            if patience > 0:
                self._change.wait_for(found.has_begun, patience)
            return found.tails()

    def close(self) -> None:
        """End all streams. Safe to repeat."""
        with self._change:
            for each in self._followed.values():
                each.close()

    def _forget(self, now: float) -> None:
        for key, each in list(self._followed.items()):
            if now - each.read_at > IDLE + (KEPT if each.unsettled else 0):
                each.close()
                del self._followed[key]


class _Followed:
    """One attempt. Its methods are called with the lock of `change`."""

    def __init__(self, hosts: Hosts, slice: Slice, key: tuple[str, int], change: Condition) -> None:
        self.hosts, self.slice, self.change = hosts, slice, change
        self.job, self.attempt = key
        self.count = len(slice.endpoints)
        self.rings: dict[int, Ring] = {}
        self.began = self.read_at = time.monotonic()
        self.settled_at = 0.0
        self.ended = False  #: the attempt: a stream that ends is not opened again
        self.voices: dict[int, _Voice] = {}

    def read(self, now: float) -> None:
        """Somebody reads: from now on each host is heard, itself or through another one."""
        self.read_at = now
        self.seek()

    def end(self, now: float) -> None:
        """The attempt has ended: what it stores, it has stored by now."""
        if not self.ended:
            self.ended, self.settled_at = True, now

    def seek(self) -> None:
        """Ask those hosts themselves that nobody speaks for."""
        for host in range(self.count):
            heard = {h for voice in self.voices.values() for h in voice.speaks_for}
            unsure = any(not voice.tried for voice in self.voices.values())
            if host in heard or host in self.voices or unsure or len(self.voices) >= VOICES:
                continue
            self.voices[host] = _Voice(self, host)

    def has_begun(self) -> bool:
        self.seek()
        return all(host in self.rings for host in range(self.count)) or (
            all(voice.tried and not voice.awaited for voice in self.voices.values())
        )

    def tails(self) -> Tails:
        heard = {h for voice in self.voices.values() for h in voice.speaks_for if h in self.rings}
        trouble = next((v.trouble for v in self.voices.values() if v.trouble), "")
        tails = {host: ring.now() for host, ring in self.rings.items()}
        whole = len(heard) == self.count
        return Tails(tails, whole, self.ended and not heard, self.settled_at, trouble)

    @property
    def unsettled(self) -> bool:
        return any(ring.end > ring.settled for ring in self.rings.values())

    def take(self, tail: live.Tail) -> None:
        if not 0 <= tail.host < self.count:
            return
        ring = self.rings.setdefault(tail.host, Ring(max(LEAST, ROOM // self.count)))
        settled = ring.settled
        new = ring.take(tail)
        if ring.settled > settled or not self.settled_at:
            self.settled_at = time.monotonic()
        if new:
            self.change.notify_all()

    def close(self) -> None:
        for voice in self.voices.values():
            voice.close()
        self.voices.clear()


class _Voice:
    """A stream from one host, which may speak for others."""

    def __init__(self, followed: _Followed, host: int) -> None:
        self._followed, self.host = followed, host
        self.speaks_for: list[int] = []
        self.tried = False
        self.trouble = ""
        self._closed = False
        self._stream: Listening | None = None
        Thread(target=self._run, name="live", daemon=True).start()

    @property
    def awaited(self) -> bool:
        """Whether a host that it speaks for has not said a word yet."""
        return any(host not in self._followed.rings for host in self.speaks_for)

    def close(self) -> None:
        """With the lock of `change`."""
        self._closed = True
        if self._stream is not None:
            Thread(target=self._stream.close, daemon=True).start()  # it may wait for the network

    def _run(self) -> None:
        failures = 0
        while not self._over():
            try:
                self._listen()
                trouble = "the agent has ended"
            except TpujobError as error:
                trouble = error.message
            except Exception as error:  # whatever failed, the log is read from the bucket
                log.exception("following host %d of job %s", self.host, self._followed.job)
                trouble = type(error).__name__
            with self._followed.change:
                failures = 0 if self.speaks_for else failures + 1
                self.tried, self.trouble, self.speaks_for = True, trouble, []
                self._followed.change.notify_all()
                pause = PAUSES[min(failures, len(PAUSES)) - 1] if failures else PAUSES[0]
                if self._followed.ended:
                    break
                self._followed.change.wait_for(self._over, pause)
        with self._followed.change:
            if self._followed.voices.get(self.host) is self:
                del self._followed.voices[self.host]

    def _listen(self) -> None:
        at, followed = self.host, self._followed
        stream = followed.hosts.listen(
            followed.slice, at, job=followed.job, attempt=followed.attempt, timeout=CONNECT
        )
        with contextlib.closing(stream):
            with followed.change:
                self._stream = stream
            for said in stream:
                hosts, tail = live.speaks_for(said), live.read_tail(said)
                with followed.change:
                    if hosts is not None:
                        self.speaks_for = [h for h in hosts if 0 <= h < followed.count]
                        self.tried, self.trouble = True, ""
                        followed.change.notify_all()
                    if tail is not None and tail.host in self.speaks_for:
                        followed.take(tail)
                    if self._over():
                        return

    def _over(self) -> bool:
        return self._closed or time.monotonic() - self._followed.read_at > IDLE
