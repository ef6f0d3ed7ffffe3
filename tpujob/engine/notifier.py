"""Collects notifications and sends them, in one thread beside that of the loop: a sink that does not answer delays
messages, never jobs. A backend that runs only during requests makes one pass each time.

No message is lost, and none is sent twice, with one exception. Messages are made from stored events, and the read
position moves only after they are stored; ids are functions of job, attempt and cause, so that a message made twice is
recognised. Delivery and its record are two steps: after a kill, or an error of the store, between them the same
message is delivered again, with the same id.
"""

import logging
import random
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, wait
from dataclasses import replace
from typing import Any

from tpujob.domain.notifications import delivery
from tpujob.domain.notifications.model import Message, Notification, NotificationKind, Receipt
from tpujob.domain.observations import Account
from tpujob.engine.loop import guarded, is_due
from tpujob.engine.notification_collector import Collector, NotificationSetup
from tpujob.errors import TpujobError
from tpujob.lib.threads import start_loop
from tpujob.ports import Clock, Outbox, Owned, Store

log = logging.getLogger(__name__)

#: seconds that one try may take; a claim is longer
SEND = 20.0
#: seconds after a failed try in which its channel is left alone, at most, unless it asks for more
PAUSE = 60.0
#: messages read in one round; one transaction of Firestore can change them
ROUND = 400
#: due messages of a channel that fails above which one stands for all: they would fill each round
MANY = ROUND // 4
#: seconds between polls of the store and the outbox for what other backends have changed, and for what is due again
POLL_EVERY = 5.0
#: seconds between two steps at least: many changes at once are read together
APART = 0.5
#: seconds between removals of what is old
FORGET_EVERY = 3600.0
#: seconds that a pass may take
MAX_PASS = 20.0
#: seconds that running tries get when the process ends; the next backend repeats one that was cut off
LAST_TRIES = 3.0


class Sender:
    """Sends messages of the outbox, one at a time for each channel, tests aside. Thread-safe."""

    def __init__(
        self, outbox: Outbox, setup: NotificationSetup, clock: Clock, *, owner: str, pool: Executor
    ) -> None:
        """`owner`: of claims, unique among all backends. `pool`: where tries are made."""
        self._outbox, self._setup, self._clock = outbox, setup, clock
        self._owner, self._pool = owner, pool
        self._lock = threading.Lock()
        self._busy: set[str] = set()  #: channels that are being tried
        #: of channels that fail, when they are tried again; and the last tries of each: by the steady clock
        self._not_before: dict[str, float] = {}
        self._recent: dict[str, deque[float]] = defaultdict(deque)

    def deliver(self) -> list[Future[None]]:
        """Begin a try of each channel that has something due. Returns the tries."""
        now = self._clock.steady()
        due: dict[str, list[Message]] = defaultdict(list)
        for message in self._outbox.due(self._clock.now(), ROUND):
            due[message.channel].append(message)
        begun: list[Future[None]] = []
        for name, messages in due.items():
            with self._lock:
                if name in self._busy or self._ready_at(name, now) > now:
                    continue
                self._busy.add(name)
            begun.append(self._pool.submit(self._send_next, name, messages))
        return begun

    def test(self, channel: str, by: str) -> Message:
        """Send a message that says it is a test, at once. Returns it as it is afterwards."""
        now = self._clock.now()
        text = f"{by} tests whether this channel works"
        fact = Notification(f"test/{by}/{now:.6f}", NotificationKind.TEST, now, text)
        message = replace(delivery.message_for(channel, fact), due=now + delivery.CLAIM)
        self._outbox.add([message])
        return self._try([message], delivery.BURST) or message

    def _ready_at(self, name: str, now: float) -> float:
        recent = self._recent[name]
        while len(recent) > 1 and recent[0] <= now - delivery.BURST_SECONDS:
            recent.popleft()
        share = recent[0] + delivery.BURST_SECONDS if len(recent) >= delivery.BURST else 0.0
        return max(share, self._not_before.get(name, 0.0))

    def _send_next(self, name: str, due: Sequence[Message]) -> None:
        try:
            merged = name in self._not_before and len(due) > MANY
            self._try(due, 1 if merged else delivery.BURST - len(self._recent[name]))
        except Exception as error:  # when the claim ends, the message is tried again
            of_store = isinstance(error, TpujobError)
            log.warning("notification channel %s: %s", name, error, exc_info=not of_store)
            self._not_before[name] = self._clock.steady() + POLL_EVERY
        finally:
            with self._lock:
                self._busy.discard(name)

    def _try(self, due: Sequence[Message], left: int) -> Message | None:
        """Returns the message after the try; None: another backend tries it."""
        now = self._clock.now()
        claimed = self._outbox.update(delivery.claim_next(due, left, self._owner, now))
        if claimed is None:
            return None
        message, name = claimed[0], claimed[0].channel
        channel = self._setup.channels.get(name)
        receipt = (
            channel.sink.send(message, timeout=SEND)
            if channel
            else Receipt("no channel of that name is configured", permanent=True)
        )
        now = self._clock.now()
        tried = delivery.record_try(message, receipt, now, random.random())  # noqa: S311, spreads pauses
        stored = self._outbox.update([tried])
        if receipt.error:
            log.warning("message %s to %s: %s", message.id, name, receipt.error)
        with self._lock:
            ended = self._clock.steady()
            self._recent[name].append(ended)
            self._not_before.pop(name, None)
            if tried.due is not None:
                pause = max(min(PAUSE, tried.due - now), receipt.retry_after)
                self._not_before[name] = ended + min(pause, delivery.MAX_PAUSE)
        return stored[0] if stored else tried


class Notifier:
    """The schedule of collecting and sending messages."""

    def __init__(
        self,
        store: Store,
        outbox: Outbox,
        setup: NotificationSetup,
        clock: Clock,
        *,
        owner: str,
        accounts: Callable[[], Sequence[Account]] = tuple,
        pool: Executor | None = None,
    ) -> None:
        """`owner`: unique among all backends. `pool`: where tries are made, in place of threads."""
        self._outbox, self._setup, self._clock = outbox, setup, clock
        self.sender = Sender(outbox, setup, clock, owner=owner, pool=pool or _Daemons())
        self._collector = Collector(store, outbox, setup, clock, accounts)
        self._wakeup = threading.Condition()
        self._step = threading.Lock()
        self._stopping = False
        self._poked = False  #: something was committed since the last poll
        self._added = False  #: a message was added, or a try has ended, since the outbox was read
        self._poll_at = self._forget_at = 0.0
        self._begun: list[Future[None]] = []  #: tries that may not have ended
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if self._setup.channels:
            self._thread = start_loop("notifier", self._run)

    def stop(self) -> None:
        """Return when the tries that were begun have ended, or soon; the next backend sends the rest."""
        with self._wakeup:
            self._stopping = True
            self._wakeup.notify_all()
        if self._thread is not None:
            self._thread.join(LAST_TRIES)
        wait(self._begun, timeout=LAST_TRIES)

    def poke(self) -> None:
        """Something was committed: poll now. Returns at once."""
        with self._wakeup:
            self._poked = True
            self._wakeup.notify_all()

    def leaked(self, leaked: Sequence[Owned], unclear: Sequence[Owned] = ()) -> None:
        """Report slices that no job claims, and those of jobs with unreadable records. Never raises: the first are
        deleted in any case."""
        guarded(lambda: self._collector.report_leaks(leaked, unclear))
        self._wake()

    def step(self) -> tuple[list[Future[None]], float]:
        """Collect messages and begin tries, as far as possible now. Returns the tries, and when to step again. An error
        of the store leaves the rest to the next step."""
        with self._step:
            now = self._clock.now()
            timed = is_due(self._poll_at, POLL_EVERY, now)
            if timed or self._poked:
                self._poked = False
                if guarded(self._collector.poll) or timed:
                    self._added = True
            if timed:
                self._poll_at = now + POLL_EVERY
            begun: list[Future[None]] = []
            if self._added:
                self._added = False
                begun = guarded(self.sender.deliver) or []
                self._begun = [future for future in self._begun if not future.done()] + begun
                for future in begun:
                    future.add_done_callback(lambda _: self._wake())
            if now >= self._forget_at:
                guarded(lambda: self._outbox.forget(now, ROUND))
                self._forget_at = now + FORGET_EVERY
            return begun, now if self._added else self._poll_at

    def make_pass(self) -> None:
        """Send what is due, and wait for it, for a limited time. For a backend whose own thread does not run."""
        if not self._setup.channels:
            return
        end = self._clock.now() + MAX_PASS
        self._poll_at = 0.0
        while (now := self._clock.now()) < end and not self._stopping:
            begun, again = self.step()
            wait(begun, timeout=max(0.0, end - now))
            if not begun and again > self._clock.now() + APART:
                return
            if not begun:
                self._clock.sleep(APART)

    def _wake(self) -> None:
        with self._wakeup:
            self._added = True
            self._wakeup.notify_all()

    def _run(self) -> None:
        while not self._stopping:
            _, again = self.step()
            with self._wakeup:
                self._wakeup.wait_for(lambda: self._stopping, APART)
                if not (self._stopping or self._poked or self._added):
                    self._wakeup.wait(max(0.0, min(again - self._clock.now(), POLL_EVERY)))


class _Daemons(Executor):
    """A thread for each call, which ends with the process: the process does not wait for a sink that hangs."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future = Future[Any]()

        def run() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, name="notify", daemon=True).start()
        return future
