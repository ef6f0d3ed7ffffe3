"""What the hosts of a running attempt tell somebody who follows it: one stream for each attempt and host that has to be
asked itself, shared by all who follow, closed soon after the last of them.

What was heard is kept for a while after the end: an agent that dies takes along what it has not stored.
"""

import time
from threading import Condition, Event, Thread

from tpujob.domain.model import Job, State
from tpujob.ports import Hosts
from tpujob.service.logs.bucket.pieces import Until
from tpujob.service.logs.following.followed import Followed, Tails

TIDIED = 10.0  #: seconds between two looks for what nobody reads any more
FIRST = 4.0  #: seconds that the first reader waits for the first words
ATTEMPTS = 32  #: that are followed at once, or remembered
HELD = 64 * 1024 * 1024  #: bytes of the tails of all attempts

NOTHING = Tails({}, whole=False, over=False)
CROWDED = "too many logs are followed at once"


class Live:
    """Threads may share it."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self._change = Condition()
        self._followed: dict[tuple[str, int], Followed] = {}
        self._closed = Event()
        self._tidies = False  #: a thread looks for what nobody reads any more

    def tails(self, job: Job, attempt: int, until: Until) -> Tails:
        """What is known now of that attempt; its hosts are asked from now on, if it runs. Waits a moment for the first
        words."""
        key, now = (job.id, attempt), time.monotonic()
        slice = job.slice if _runs(job, attempt) else None
        with self._change:
            self._forget(now)
            found = self._followed.get(key)
            if slice is None or not slice.endpoints:
                if found is None:
                    return NOTHING
                found.end(now, told=job.stopped or job.state is not State.HOLDING)
                return found.tails()
            if found is None:
                if len(self._followed) >= ATTEMPTS and not self._give_way(now):
                    return NOTHING._replace(trouble=CROWDED)
                found = Followed(self._hosts, slice, key, self._change, self._fit)
                self._followed[key] = found
                self._tidy()
            found.read(now)
            patience = min(FIRST - (now - found.began), until.left)
            if patience > 0:
                self._change.wait_for(found.has_begun, patience)
            return found.tails()

    def close(self) -> None:
        """End all streams. Safe to repeat."""
        self._closed.set()
        with self._change:
            for each in self._followed.values():
                each.close()

    @property
    def held(self) -> int:
        """Bytes of all tails."""
        with self._change:
            return sum(each.size for each in self._followed.values())

    def _tidy(self) -> None:
        """From now on nothing that is abandoned waits for the next reader."""
        if not self._tidies:
            self._tidies = True
            Thread(target=self._forget_in_time, name="live tidy", daemon=True).start()

    def _forget_in_time(self) -> None:
        while not self._closed.wait(TIDIED):
            with self._change:
                self._forget(time.monotonic())
                if not self._followed:
                    self._tidies = False
                    return

    def _forget(self, now: float) -> None:
        for key, each in list(self._followed.items()):
            if each.forgotten(now):
                self._drop(key)

    def _give_way(self, now: float) -> bool:
        """Forget what was read longest ago, unless somebody still reads it."""
        key = min(self._followed, key=lambda key: self._followed[key].read_at, default=None)
        if key is None or not self._followed[key].idle(now):
            return False
        self._drop(key)
        return True

    def _drop(self, key: tuple[str, int]) -> None:
        self._followed.pop(key).close()

    def _fit(self) -> None:
        """Stay within the memory for all attempts: what nobody reads goes first, then lines of the one with most."""
        now = time.monotonic()
        while self.held > HELD:
            if not self._give_way(now):
                max(self._followed.values(), key=lambda each: each.size).shorten()


def _runs(job: Job, attempt: int) -> bool:
    """Whether its hosts may be asked: not after its end, nor before its start is due."""
    newest = attempt == len(job.attempts) and job.attempts[-1].ended_at is None
    return newest and job.wake <= time.time()
