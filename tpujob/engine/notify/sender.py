"""From notes to deliveries: messages are made, claimed, tried and settled. One try at a time for each channel."""

import logging
import random
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import replace

from tpujob.domain.notify import plan, tries
from tpujob.domain.notify.digest import MOST, message_id
from tpujob.domain.notify.model import Channel, Kind, Message, Note, Receipt
from tpujob.engine.notify.outlets import Outlet, Setup
from tpujob.errors import Conflict, NotFound, TpujobError, Transient
from tpujob.ports import Clock, Outbox

log = logging.getLogger(__name__)

#: seconds that one try may take; a claim is longer
SEND = 20.0
#: seconds for which a channel that has failed is left alone, at most, unless it asks for more
LET_BE = 60.0
#: messages looked at in one round
ROUND = 100
#: how often a channel is written again when somebody else wrote first
WRITES = 8


class Sender:
    """Thread-safe, but for `pack`."""

    def __init__(
        self,
        outbox: Outbox,
        setup: Setup,
        clock: Clock,
        *,
        owner: str,
        pool: Executor,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`owner`: of claims, unique among all backends. `pool`: where tries are made."""
        self._outbox, self._setup, self._clock = outbox, setup, clock
        self._owner, self._pool, self._chance = owner, pool, chance
        self._lock = threading.Lock()
        self._busy: set[str] = set()  #: channels that are being tried
        self._not_before: dict[str, float] = {}  #: of channels: when they are tried again
        self._failing: set[str] = set()
        self._retries: list[float] = []  #: when messages that were tried here are due again
        self._closed: dict[str, str] = {}  #: of each channel, the message whose notes are closed

    # Messages --------------------------------------------------------------------------------------------------------

    def pack(self, name: str) -> float | None:
        """Make messages of what can be told on that channel now. Returns when there may be more to tell; None: not
        before something happens. A disabled channel keeps its notes. Raises as the outbox does."""
        outlet = self._setup.outlets[name]
        for _ in range(ROUND):
            channel = self._settled(name)
            if channel.disabled_at is not None:
                return None
            found = plan(channel, self._outbox.open(name, MOST), outlet.quiet, self._clock.now())
            if found.message is None:
                return found.wake
            if self._outbox.write(found.channel, found.message):
                self._close(name, found.message)
        return self._clock.now()

    def _settled(self, name: str) -> Channel:
        """The channel; what its newest message tells is closed."""
        channel = self._outbox.channel(name)
        if channel.closing and self._closed.get(name) != channel.closing:
            try:
                self._close(name, self._outbox.message(channel.closing))
            except NotFound:  # forgotten since, with its notes
                self._closed[name] = channel.closing
        return channel

    def _close(self, name: str, message: Message) -> None:
        self._outbox.close(name, message.keys)
        self._closed[name] = message.id

    # Tries -----------------------------------------------------------------------------------------------------------

    def deliver(self) -> tuple[list[Future[None]], float | None]:
        """Begin a try of each channel that has something due. Returns the tries, and when to look again; None: nothing
        is waited for in this process."""
        now = self._clock.now()
        begun: list[Future[None]] = []
        later: list[float] = []
        taken: set[str] = set()
        for message in self._outbox.due(now, ROUND):
            name = message.channel
            with self._lock:
                wait = self._not_before.get(name, 0.0)
                if name in taken or name in self._busy:
                    continue  # the end of that try is a reason to look again
                if wait > now:
                    later.append(wait)
                    continue
                self._busy.add(name)
                taken.add(name)
            begun.append(self._pool.submit(self._guarded, message))
        with self._lock:
            self._retries = [due for due in self._retries if due > now]
            later += self._retries
        return begun, min(later, default=None)

    def _guarded(self, message: Message) -> None:
        try:
            self._try(message)
        except (
            TpujobError
        ) as error:  # of the store: the claim runs out, and the message is tried again
            log.warning("message %s: %s", message.id, error)
        except Exception:
            log.exception("message %s: the try failed", message.id)
        finally:
            with self._lock:
                self._busy.discard(message.channel)

    def _try(self, message: Message) -> Message | None:
        """None: somebody else tries it."""
        claimed = self._outbox.update(tries.claimed(message, self._owner, self._clock.now()))
        if claimed is None:
            return None
        outlet = self._setup.outlets.get(message.channel)
        receipt = self._sent(claimed, outlet)
        now = self._clock.now()
        done = tries.after(claimed, receipt, now, self._chance())
        stored = self._outbox.update(done)
        self._note(done, receipt, outlet)
        return stored or done

    def _sent(self, message: Message, outlet: Outlet | None) -> Receipt:
        if outlet is None:
            return Receipt("no channel of that name is set up any more", permanent=True)
        if self._outbox.channel(message.channel).disabled_at is not None:
            return Receipt("the channel is disabled", permanent=True)
        return outlet.sink.send(message, timeout=SEND)

    def _note(self, message: Message, receipt: Receipt, outlet: Outlet | None) -> None:
        """What a try says about its channel."""
        name, now = message.channel, self._clock.now()
        if receipt.gone:
            self._disable(name, receipt.error)
        if receipt.error:
            log.warning("message %s to %s: %s", message.id, name, receipt.error)
        pause = outlet.pace if outlet else 0.0
        if receipt.error and not receipt.permanent:
            pause = max(min(LET_BE, (message.due or now) - now), receipt.retry_after)
        with self._lock:
            self._not_before[name] = now + min(pause, tries.LONGEST)
            self._retries += [] if message.due is None else [message.due]
            failing = name in self._failing
            if not receipt.error:
                self._failing.discard(name)
            elif not receipt.permanent:
                self._failing.add(name)
        if failing and not receipt.error:
            self._hasten(name)

    def _hasten(self, name: str) -> None:
        """The channel works again: what waits for its next try is tried now."""
        now = self._clock.now()
        for message in self._outbox.due(now + tries.LONGEST * 2, MOST):
            if message.channel == name and message.tries and (message.due or 0.0) > now:
                self._outbox.update(replace(message, due=now))

    def _disable(self, name: str, why: str) -> None:
        now = self._clock.now()
        self.change(name, lambda c: replace(c, disabled_at=now, disabled_why=why[:300]))

    # By hand ---------------------------------------------------------------------------------------------------------

    def change(self, name: str, how: Callable[[Channel], Channel]) -> Channel:
        """Write what `how` makes of a channel, again when somebody else wrote first. Raises Conflict."""
        for _ in range(WRITES):
            if stored := self._outbox.write(how(self._outbox.channel(name))):
                return stored
        raise Conflict(f"the channel {name} is being changed by others", hint="try again")

    def test(self, name: str, by: str) -> Message:
        """Make a message that says it is a test, and try it at once. A disabled channel is enabled by that."""
        now = self._clock.now()
        for _ in range(WRITES):
            channel = _enabled(self._outbox.channel(name))
            number = channel.made + 1
            note = Note(f"test/{number}", Kind.TEST, now, f"{by} asks whether this channel works")
            id = message_id(name, number, now)
            message = Message(id, name, now, (note,), (note.key,), due=now + tries.CLAIM)
            if self._outbox.write(replace(channel, made=number), message):
                return self._try(message) or message
        raise Conflict(f"the channel {name} is being changed by others", hint="try again")

    def replay(self, id: str) -> Message:
        """Have a message sent again, with its id, and try it at once. A disabled channel is enabled by that. Raises
        NotFound; Transient while it is being tried."""
        message = self._outbox.message(id)
        if self._outbox.channel(message.channel).disabled_at is not None:
            self.change(message.channel, _enabled)
        again = self._outbox.update(tries.again(message, self._clock.now()))
        if again is None:
            raise Transient(f"message {id} is being tried just now", hint="try again in a moment")
        return self._try(again) or self._outbox.message(id)


def _enabled(channel: Channel) -> Channel:
    return replace(channel, disabled_at=None, disabled_why="")
