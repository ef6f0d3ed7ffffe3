"""When notes are gathered and messages tried: one thread, beside that of the loop, and a few workers for the tries.

A backend that only runs while it is called has no such thread: it makes one pass for each call.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, wait
from typing import Any, TypeVar

from tpujob.domain.observations import Account
from tpujob.engine.notify.gatherer import Gatherer
from tpujob.engine.notify.outlets import Setup
from tpujob.engine.notify.sender import Sender
from tpujob.errors import TpujobError
from tpujob.ports import Clock, Outbox, Owned, Store

log = logging.getLogger(__name__)
T = TypeVar("T")

#: seconds between looks at the store for what other backends, or callers, have changed
LOOK_EVERY = 5.0
#: seconds between reads of the outbox for what other backends have left there
RESYNC = 60.0
#: seconds between two steps at least: many changes at once are read together
APART = 0.5
#: seconds between removals of what is old, and how much of it is removed at once
FORGET_EVERY, FORGOTTEN = 3600.0, 400
#: seconds that a pass may take
PASS = 20.0
#: seconds that tries get when the process is told to end; who is cut off is tried again by the next one
LAST_TRIES = 3.0


class Notifier:
    def __init__(
        self,
        store: Store,
        outbox: Outbox,
        setup: Setup,
        clock: Clock,
        *,
        owner: str,
        accounts: Callable[[], Sequence[Account]] = tuple,
        pool: Executor | None = None,
    ) -> None:
        """`owner`: unique among all backends. `pool`: where tries are made, in the place of threads."""
        self._outbox, self._setup, self._clock = outbox, setup, clock
        self.sender = Sender(outbox, setup, clock, owner=owner, pool=pool or _Daemons())
        self._gatherer = Gatherer(store, outbox, setup, clock, accounts)
        self._wakeup = threading.Condition()
        self._step = threading.Lock()
        self._stopping = self._poked = False
        self._look_at = self._resync_at = self._forget_at = 0.0
        self._pack_at: dict[str, float] = {}  #: when a channel may have more to tell
        self._fresh: set[str] = set()  #: channels that have got something
        self._begun: list[Future[None]] = []  #: tries that may not have ended
        self._deliver_at: float | None = None
        self._ended = False  #: a try has, since the last look at what is due
        self._thread = threading.Thread(target=self._run, name="notifier", daemon=True)

    def start(self) -> None:
        if self._setup.outlets:
            self._thread.start()

    def stop(self) -> None:
        """Return when the tries that were begun have ended, or soon; what is still to tell is left to the next
        backend."""
        with self._wakeup:
            self._stopping = True
            self._wakeup.notify_all()
        if self._thread.ident is not None:  # it was started
            self._thread.join(LAST_TRIES)
        wait(self._begun, timeout=LAST_TRIES)

    def poke(self) -> None:
        """Something was committed: look now. Returns at once."""
        with self._wakeup:
            self._poked = True
            self._wakeup.notify_all()

    def leaked(self, found: Sequence[Owned]) -> None:
        """Slices that no job claims are about to be deleted. Never raises: they are deleted in any case."""
        if not self._setup.outlets or not found:
            return
        self._fresh.update(self._guarded(lambda: self._gatherer.leaked(found)) or ())
        self.poke()

    def step(self) -> tuple[list[Future[None]], float]:
        """Gather, make messages and begin tries, as far as it goes now. Returns the tries, and when to step again. An
        error of the store leaves the rest to the next step."""
        with self._step:
            now = self._clock.now()
            poked, self._poked = self._poked, False
            if poked or now >= self._look_at:
                self._fresh.update(self._guarded(self._gatherer.look) or ())
                self._look_at = now + LOOK_EVERY
            fresh, self._fresh = self._fresh, set[str]()
            self._pack_at.update(dict.fromkeys(fresh, now))
            if now >= self._resync_at:
                self._pack_at.update(dict.fromkeys(self._setup.outlets, now))
                self._deliver_at, self._resync_at = now, now + RESYNC
            self._pack(now)
            begun = self._deliver(now)
            if now >= self._forget_at:
                self._guarded(lambda: self._outbox.forget(now, FORGOTTEN))
                self._forget_at = now + FORGET_EVERY
            waits = [self._look_at, self._resync_at, *self._pack_at.values()]
            waits += [now] if self._ended else []
            return begun, min([*waits, *([self._deliver_at] if self._deliver_at else [])])

    def make_pass(self) -> None:
        """Tell what is due, and wait for it, for a limited time. For a backend whose own thread does not run."""
        if not self._setup.outlets:
            return
        end = self._clock.now() + PASS
        self._look_at = self._resync_at = 0.0
        while (now := self._clock.now()) < end and not self._stopping:
            begun, again = self.step()
            wait(begun, timeout=max(0.0, end - now))
            if not begun and again > self._clock.now() + APART:
                return
            if not begun:
                self._clock.sleep(APART)

    def _pack(self, now: float) -> None:
        for name in [name for name, at in self._pack_at.items() if at <= now]:
            del self._pack_at[name]
            packed = self._guarded(lambda name=name: [self.sender.pack(name)])
            wake = packed[0] if packed else now + LOOK_EVERY
            if wake is not None:
                self._pack_at[name] = max(wake, now + APART)
            self._deliver_at = now

    def _deliver(self, now: float) -> list[Future[None]]:
        if not self._ended and (self._deliver_at is None or self._deliver_at > now):
            return []
        self._ended = False
        found = self._guarded(self.sender.deliver)
        begun, later = found or ([], now + LOOK_EVERY)
        self._deliver_at = max(later, now + APART) if later is not None else None
        self._begun = [each for each in self._begun if not each.done()] + begun
        for each in begun:
            each.add_done_callback(self._note_end)
        return begun

    def _note_end(self, _: object) -> None:
        """A try has ended: there may be another one to make."""
        with self._wakeup:
            self._ended = True
            self._wakeup.notify_all()

    def _run(self) -> None:
        while not self._stopping:
            _, again = self.step()
            with self._wakeup:
                if self._stopping:
                    return
                self._wakeup.wait(APART)
                if not (self._poked or self._ended):
                    self._wakeup.wait(max(0.0, min(again - self._clock.now(), LOOK_EVERY)))

    def _guarded(self, call: Callable[[], T]) -> T | None:
        try:
            return call()
        except TpujobError as error:
            log.warning("notifications go on: %s", error)
        except Exception:
            log.exception("notifications go on after an error")
        return None


class _Daemons(Executor):
    """A thread for each call, which ends with the process: of a sink that does not answer, nobody waits for the end."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future = Future[Any]()

        def run() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, name="notify", daemon=True).start()
        return future
