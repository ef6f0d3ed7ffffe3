"""A notifier over a real store, with a clock that tests advance, and sinks that record messages."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.stores import a_job
from tests.support.world import Clock, Inline
from tpujob.domain.events import Event, EventKind, Finished
from tpujob.domain.lifecycle import apply, event
from tpujob.domain.model import Cause, Job, State
from tpujob.domain.notifications.model import Message, Receipt
from tpujob.domain.notifications.rules import ChannelRule
from tpujob.engine.notification_collector import Channel, NotificationSetup
from tpujob.engine.notifier import Notifier
from tpujob.ports import Store

LAB = ChannelRule(channels=("lab",))


@dataclass
class Notes:
    """A sink that records messages, and answers as a test demands."""

    answer: Callable[[Message], Receipt] = lambda _: Receipt()
    tried: list[Message] = field(default_factory=list)
    got: list[Message] = field(default_factory=list)

    def send(self, message: Message, *, timeout: float) -> Receipt:
        self.tried.append(message)
        receipt = self.answer(message)
        if not receipt.error:
            self.got.append(message)
        return receipt

    @property
    def names(self) -> list[str]:
        """The names of the jobs in delivered messages."""
        return [message.notification.name for message in self.got]


class Rig:
    def __init__(
        self, store: Store, *, rules: Sequence[ChannelRule] = (LAB,), channels: Sequence[str] = ()
    ) -> None:
        self.store, self.clock = store, Clock()
        self.sinks: dict[str, Notes] = {}
        self._rules, self.channels = rules, ["lab", *channels]
        self.notifier = self.backend()

    def backend(self, owner: str = "backend-1") -> Notifier:
        """Return the notifier of another backend, or of the same one after a restart."""
        made = {
            name: Channel("webhook", name, self.sinks.setdefault(name, Notes()))
            for name in self.channels
        }
        setup = NotificationSetup(made, tuple(self._rules))
        return Notifier(
            self.store, self.store.outbox, setup, self.clock, owner=owner, pool=Inline()
        )

    @property
    def lab(self) -> Notes:
        return self.sinks["lab"]

    def run(self, seconds: float, *others: Notifier, poke: bool = True) -> None:
        """Let that time pass, and call each notifier whenever it is due."""
        end = self.clock.now() + seconds
        while True:
            again = end
            for notifier in (self.notifier, *others):
                if poke:
                    notifier.poke()
                for _ in range(200):
                    begun, due = notifier.step()
                    if not begun and due > self.clock.now():
                        break
                again = min(again, due)
            if self.clock.now() >= end:
                return
            self.clock.sleep(max(0.05, min(again, end) - self.clock.now()))

    # Jobs ------------------------------------------------------------------------------------------------------------

    def job(self, **fields: Any) -> Job:
        now = self.clock.now()
        made = a_job(**{"created_at": now, "state_since": now, "wake": now, **fields})
        created = Event(EventKind.CREATED, now, State.QUEUED, "created", by=made.user)
        return self.store.create(made, created)

    def happens(
        self, job: Job, kind: EventKind, text: str = "", payload: Any = None, by: str = ""
    ) -> Job:
        now = self.store.get(job.id)
        happened = event(now, kind, self.clock.now(), text or kind, payload, by=by)
        return self.store.commit(
            apply(now, happened),
            happened,
            expected_version=now.version,
            op_id=f"{kind}:{now.version}",
            lease=None,
        )

    def fails(self, job: Job, cause: Cause = Cause.CRASH, text: str = "it crashed") -> Job:
        return self.happens(job, EventKind.FAILED, text, Finished(cause))

    def resumes(self, job: Job, by: str = "ana") -> Job:
        return self.happens(job, EventKind.RESUME_REQUESTED, by=by)
