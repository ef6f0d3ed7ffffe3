"""Live output of running attempts, before the bucket has it: one stream from each host, shared by all followers of the
attempt, closed soon after the last one left.

Received lines are kept for a while after the end: an agent that dies loses what it has not stored.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from threading import Condition, Event, Thread
from typing import NamedTuple

from tpujob.domain.failures.retry import due_at
from tpujob.domain.model import Job, Slice, State
from tpujob.errors import TpujobError
from tpujob.lib.threads import start_loop
from tpujob.lib.tries import Backoff, Deadline
from tpujob.ports import Hosts, Listening
from tpujob.protocol import live
from tpujob.service.logs.live_tail import LiveTail, Ring

log = logging.getLogger(__name__)

#: seconds after the last reader left for which lines not stored yet are kept, if there is room
UNSTORED_TTL = 600.0
CONNECT = 10.0  #: seconds for a connection
TRIES = 2  #: failed tries after a stream's end that are no trouble: the program may have ended, too
STARTING = 60.0  #: seconds after an attempt's start in which an agent need not listen yet
STREAMS = 64  #: hosts of one attempt that are followed; the others are read from the bucket
#: bytes of the tails of one attempt, and of one host at least
ROOM, LEAST = 32 * 1024 * 1024, 256 * 1024


class LiveLimits(NamedTuple):
    """The times, attempts and memory of live output."""

    idle: float = 30.0  #: seconds without a reader, after which a stream is closed
    pauses: Backoff = Backoff(first=1.0, longest=15.0)  #: between two tries
    tidied: float = 10.0  #: seconds between two searches for attempts without a reader
    first: float = 4.0  #: seconds that the first reader waits for the first lines
    attempts: int = 32  #: that are followed at once, or remembered
    held: int = 64 * 1024 * 1024  #: bytes of the tails of all attempts


LIMITS = LiveLimits()


class Tails(NamedTuple):
    """The lines received from the hosts of an attempt."""

    of: Mapping[int, LiveTail]  #: by host
    whole: bool  #: every host is connected just now
    over: bool  #: the attempt has ended, and its agents are disconnected
    settled_at: float = 0.0  #: when a host last reported that it had stored lines; monotonic
    trouble: str = ""  #: why hosts cannot be followed


NOTHING = Tails({}, whole=False, over=False)


class LiveLogs:
    """Threads may share it."""

    def __init__(self, hosts: Hosts, limits: LiveLimits = LIMITS) -> None:
        self._hosts, self._limits = hosts, limits
        self._change = Condition()
        self._followed: dict[tuple[str, int], _Attempt] = {}
        self._closed = Event()
        self._tidies = False

    def tails(self, job: Job, attempt: int, until: Deadline) -> Tails:
        """Return what was received of that attempt; its hosts are followed from now on, if it runs. The first reader
        waits a moment for the first lines."""
        key, now, limits = (job.id, attempt), time.monotonic(), self._limits
        slice = job.slice if _runs(job, attempt) else None
        with self._change:
            self._forget(now)
            followed = self._followed.get(key)
            if slice is None or not slice.endpoints:
                if followed is None:
                    return NOTHING
                followed.end(now, stored=job.stopped or job.state is not State.HOLDING)
                return followed.tails()
            if followed is None:
                if len(self._followed) >= limits.attempts and not self._give_way(now):
                    return NOTHING._replace(trouble="too many logs are followed at once")
                followed = _Attempt(self._hosts, slice, key, self._change, self._fit, limits)
                self._followed[key] = followed
                self._tidy()
            followed.read_at = now
            followed.connect()
            patience = min(limits.first - (now - followed.began), until.left())
            if patience > 0:
                self._change.wait_for(followed.has_begun, patience)
            starts = max(job.attempts[-1].started_at, job.wake)
            return followed.tails(starting=time.time() < starts + STARTING)

    def close(self) -> None:
        """End all streams. Safe to repeat."""
        self._closed.set()
        with self._change:
            for followed in self._followed.values():
                followed.close()

    @property
    def held(self) -> int:
        """Bytes of all tails."""
        with self._change:
            return sum(followed.size for followed in self._followed.values())

    def _tidy(self) -> None:
        """Start the thread that forgets abandoned attempts."""
        if not self._tidies:
            self._tidies = True
            start_loop("live tidy", self._forget_in_time)

    def _forget_in_time(self) -> None:
        while not self._closed.wait(self._limits.tidied):
            with self._change:
                self._forget(time.monotonic())
                if not self._followed:
                    self._tidies = False
                    return

    def _forget(self, now: float) -> None:
        for key, followed in list(self._followed.items()):
            if followed.forgotten(now):
                self._followed.pop(key).close()

    def _give_way(self, now: float) -> bool:
        """Forget the attempt that was read longest ago, unless it is still read."""
        key = min(self._followed, key=lambda key: self._followed[key].read_at, default=None)
        if key is None or not self._followed[key].idle(now):
            return False
        self._followed.pop(key).close()
        return True

    def _fit(self) -> None:
        """Free memory above the limit: forget idle attempts first, then the oldest lines of the largest."""
        now = time.monotonic()
        while self.held > self._limits.held:
            if not self._give_way(now):
                max(self._followed.values(), key=lambda followed: followed.size).shorten()


class _Attempt:
    """The streams and tails of one attempt. Its methods are called with the lock of `change`."""

    def __init__(
        self,
        hosts: Hosts,
        slice: Slice,
        key: tuple[str, int],
        change: Condition,
        fit: Callable[[], None],
        limits: LiveLimits,
    ) -> None:
        """`fit` is called when a host's tail has grown."""
        self.hosts, self.slice, self.change, self._fit = hosts, slice, change, fit
        self.limits = limits
        self.job, self.attempt = key
        self.count = len(slice.endpoints)
        self.rings: dict[int, Ring] = {}
        self.size = 0  #: bytes of memory
        self.began = self.read_at = time.monotonic()
        self.settled_at = 0.0
        self.ended = False  #: the attempt: no stream is opened any more
        #: the hosts have stored all that they will, except those still connected
        self.stored = False
        self.streams: dict[int, _HostStream] = {}

    def end(self, now: float, *, stored: bool) -> None:
        """Note that the attempt has ended: open streams are read to their end."""
        if self.streams:
            self.read_at = now
        if stored and not self.stored:
            self.stored, self.settled_at = True, now
        if not self.ended:
            self.ended = True
            self.change.notify_all()

    def connect(self) -> None:
        """Open streams to the hosts that have none, while the attempt lasts."""
        if not self.ended:
            for host in range(min(self.count, STREAMS)):
                if host not in self.streams:
                    self.streams[host] = _HostStream(self, host)

    def has_begun(self) -> bool:
        self.connect()
        return all(h in self.rings or (s.tried and not s.heard) for h, s in self.streams.items())

    def tails(self, *, starting: bool = False) -> Tails:
        heard = [h for h, stream in self.streams.items() if stream.heard and h in self.rings]
        trouble = next((s.trouble for s in self.streams.values() if s.trouble and not starting), "")
        tails = {host: ring.now() for host, ring in self.rings.items()}
        short = any(ring.short for ring in self.rings.values())
        if short and not trouble:
            trouble = "more is printed than the backend can keep"
        elif len(heard) == STREAMS < self.count and not trouble:
            trouble = f"the backend follows {STREAMS} hosts of a job"
        whole = len(heard) == self.count and not short
        over = self.stored and not heard
        return Tails(tails, whole, over, self.settled_at, "" if self.ended else trouble)

    def idle(self, now: float) -> bool:
        """Return whether no reader follows it now."""
        return now - self.read_at > self.limits.idle

    def forgotten(self, now: float) -> bool:
        """Return whether it may be forgotten."""
        unsettled = any(ring.end > ring.settled for ring in self.rings.values())
        return now - self.read_at > self.limits.idle + (UNSTORED_TTL if unsettled else 0)

    def take(self, tail: live.TailMessage) -> None:
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
        """Drop the oldest lines of the host that has printed most."""
        ring = max(self.rings.values(), key=lambda ring: ring.size)
        size = ring.size
        ring.shorten()
        self.size += ring.size - size

    def close(self) -> None:
        for stream in self.streams.values():
            stream.close()
        self.streams.clear()


class _HostStream:
    def __init__(self, of: _Attempt, host: int) -> None:
        self._of, self.host = of, host
        self.heard = False  #: it is open
        self.worked = False  #: it was open once
        self.tried = False
        self.trouble = ""
        self._closed = False
        self._stream: Listening | None = None
        Thread(target=self._run, name="live", daemon=True).start()

    def close(self) -> None:
        """Close the stream. The caller holds the lock of `change`."""
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
                log.exception("following host %d of job %s", self.host, self._of.job)
                trouble = type(error).__name__
            with self._of.change:
                failures = 0 if self.heard else failures + 1
                self.worked |= self.heard
                self.trouble = "" if self.worked and failures <= TRIES else trouble
                self.tried, self.heard = True, False
                if self._of.ended:  # it may have stored more since its last message
                    self._of.settled_at = time.monotonic()
                self._of.change.notify_all()
                self._of.change.wait_for(self._done, self._of.limits.pauses.pause(max(failures, 1)))
        with self._of.change:
            if self._of.streams.get(self.host) is self:
                del self._of.streams[self.host]

    def _listen(self) -> None:
        of = self._of
        stream = of.hosts.listen(
            of.slice, self.host, job=of.job, attempt=of.attempt, timeout=CONNECT
        )
        with contextlib.closing(stream):
            with of.change:
                self._stream = stream
            for message in stream:
                hosts, tail = live.read_hosts(message), live.read_tail(message)
                with of.change:
                    if hosts is not None:
                        self.tried, self.trouble, self.heard = True, "", self.host in hosts
                        of.change.notify_all()
                    if self.heard and tail is not None and tail.host == self.host:
                        of.take(tail)
                    if self._over():
                        return

    def _done(self) -> bool:
        """Return whether no further stream is opened."""
        return self._of.ended or self._over()

    def _over(self) -> bool:
        return self._closed or self._of.idle(time.monotonic())


def _runs(job: Job, attempt: int) -> bool:
    """Return whether its hosts may be called: not after its end, nor before its start is due."""
    newest = attempt == len(job.attempts) and job.attempts[-1].ended_at is None
    return newest and due_at(job.wake, now := time.time()) <= now
