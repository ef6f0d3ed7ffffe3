"""What the hosts of one attempt tell: a stream from each that has to be asked itself, and the tails of all."""

import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from threading import Condition, Thread
from typing import NamedTuple

from tpujob.domain.model import Slice
from tpujob.errors import TpujobError
from tpujob.ports import Hosts, Listening
from tpujob.protocol import live
from tpujob.service.logs.following.tail import Ring, Tail

log = logging.getLogger(__name__)

IDLE = 30.0  #: seconds without a reader, after which a stream is closed
KEPT = 600.0  #: seconds for which what was heard is remembered after that, if there is room
CONNECT = 10.0  #: seconds for a connection
PAUSES = (1.0, 2.0, 5.0, 15.0)  #: seconds between two tries
VOICES = 256  #: hosts of one attempt that are asked themselves
ROOM, LEAST = 32 * 1024 * 1024, 256 * 1024  #: bytes of tails of an attempt; of one host at least
LOUD = "more is printed than the backend can keep"


class Tails(NamedTuple):
    """What was heard of an attempt."""

    of: Mapping[int, Tail]  #: by host
    whole: bool  #: every host is heard just now
    over: bool  #: the attempt has ended, and its agents are heard no more
    settled_at: float = 0.0  #: when something was last heard to be in the bucket; monotonic
    trouble: str = ""  #: why hosts cannot be heard


class Followed:
    """One attempt. Its methods are called with the lock of `change`."""

    def __init__(
        self,
        hosts: Hosts,
        slice: Slice,
        key: tuple[str, int],
        change: Condition,
        fit: Callable[[], None],
    ) -> None:
        """`fit`: is called when it has grown."""
        self.hosts, self.slice, self.change, self._fit = hosts, slice, change, fit
        self.job, self.attempt = key
        self.count = len(slice.endpoints)
        self.rings: dict[int, Ring] = {}
        self.size = 0  #: bytes of memory
        self.began = self.read_at = time.monotonic()
        self.settled_at = 0.0
        self.ended = False  #: the attempt: no stream is opened any more
        self.told = False  #: what its hosts store, they have stored, unless they are still heard
        self.voices: dict[int, _Voice] = {}

    def read(self, now: float) -> None:
        """Somebody reads: from now on each host is heard, itself or through another one."""
        self.read_at = now
        self.seek()

    def end(self, now: float, *, told: bool) -> None:
        """The attempt has ended: hosts that are heard are heard to their end. `told`: what it stores, it has stored by
        now."""
        if self.voices:
            self.read_at = now
        if told and not self.told:
            self.told, self.settled_at = True, now
        if not self.ended:
            self.ended = True
            self.change.notify_all()

    def seek(self) -> None:
        """Ask those hosts themselves that nobody speaks for, while the attempt lasts."""
        if self.ended:
            return
        for host in range(self.count):
            heard = {h for voice in self.voices.values() for h in voice.speaks_for}
            # host 0 of an agent of before may send the lines of all
            unsure = any(not voice.tried and not n for n, voice in self.voices.items())
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
        short = any(ring.short for ring in self.rings.values())
        trouble = "" if self.ended else trouble or LOUD * short
        whole = len(heard) == self.count and not short
        return Tails(tails, whole, self.told and not heard, self.settled_at, trouble)

    def idle(self, now: float) -> bool:
        """Whether nobody reads it any more."""
        return now - self.read_at > IDLE

    def forgotten(self, now: float) -> bool:
        """Whether it need not be remembered either."""
        unsettled = any(ring.end > ring.settled for ring in self.rings.values())
        return now - self.read_at > IDLE + (KEPT if unsettled else 0)

    def take(self, tail: live.Tail) -> None:
        if not 0 <= tail.host < self.count:
            return
        ring = self.rings.setdefault(tail.host, Ring(max(LEAST, ROOM // self.count)))
        settled, size = ring.settled, ring.size
        new = ring.take(tail)
        self.size += ring.size - size
        if ring.settled > settled or not self.settled_at:
            self.settled_at = time.monotonic()
        if ring.size > size:
            self._fit()
        if new:
            self.change.notify_all()

    def shorten(self) -> None:
        """The host that has printed most gives lines up."""
        ring = max(self.rings.values(), key=lambda ring: ring.size)
        size = ring.size
        ring.shorten()
        self.size += ring.size - size

    def close(self) -> None:
        for voice in self.voices.values():
            voice.close()
        self.voices.clear()


class _Voice:
    """A stream from one host, which may speak for others."""

    def __init__(self, followed: Followed, host: int) -> None:
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
        while not self._done():
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
                if self._followed.ended:  # it may have stored more since it was heard last
                    self._followed.settled_at = time.monotonic()
                self._followed.change.notify_all()
                pause = PAUSES[min(failures, len(PAUSES)) - 1] if failures else PAUSES[0]
                self._followed.change.wait_for(self._done, pause)
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

    def _done(self) -> bool:
        """Whether no stream is opened any more."""
        return self._followed.ended or self._over()

    def _over(self) -> bool:
        return self._closed or self._followed.idle(time.monotonic())
