"""Notifications as users meet them: channels, their messages, a test, and secrets.

The backend sends in `engine/notifier.py`; `domain/notifications/` decides what, and on which channels.
"""

from dataclasses import replace

from tpujob.api import ChannelView, DeliveryView, RuleView
from tpujob.domain import access
from tpujob.domain import secrets as secret_rules
from tpujob.domain.access import BACKEND, Principal, Role
from tpujob.domain.notifications import messages
from tpujob.domain.notifications.model import Message
from tpujob.domain.spec import JobSpec
from tpujob.domain.text import rfc3339
from tpujob.engine.notification_collector import Channel, NotificationSetup
from tpujob.engine.notifier import Sender
from tpujob.errors import BadSpec, NotFound
from tpujob.ports import Clock, Outbox, Secrets

#: messages of one page
PAGE, MAX_PAGE = 50, 1000
#: what users read who may not see the receiver's answer
HIDDEN = "not delivered; admins see why"
#: seconds by which everything is due
_EVER = 1e9


class Notifications:
    """The part of `api.JobsApi` that is about notifications."""

    def __init__(
        self,
        outbox: Outbox,
        setup: NotificationSetup,
        sender: Sender,
        secrets: Secrets,
        clock: Clock,
    ) -> None:
        self._outbox, self._setup, self._sender = outbox, setup, sender
        self._secrets, self._clock = secrets, clock

    def channels(self, caller: Principal) -> list[ChannelView]:
        waiting = self._waiting()
        return [
            self._view_channel(name, caller, [m for m in waiting if m.channel == name])
            for name in self._setup.channels
        ]

    def waiting(self, late: float) -> tuple[int, int]:
        """Return how many messages of configured channels are still to be sent, at most 1,000, and how many of them are
        older than so many seconds."""
        waiting = [m for m in self._waiting() if m.channel in self._setup.channels]
        begin = self._clock.now() - late
        return len(waiting), sum(message.at < begin for message in waiting)

    def deliveries(
        self, caller: Principal, *, channel: str = "", limit: int = PAGE
    ) -> list[DeliveryView]:
        if channel:
            self._channel(channel)
        messages = self._outbox.messages(channel=channel, limit=max(1, min(limit, MAX_PAGE)))
        return [self._view(message, caller) for message in messages]

    def test_channel(self, caller: Principal, channel: str) -> DeliveryView:
        self._channel(channel)
        return self._view(self._sender.test(channel, caller.name), caller)

    def set_channel_secret(self, name: str, value: str) -> None:
        """Store a secret of the backend itself, which no job can name."""
        secret_rules.checked_value(secret_rules.checked_name(name), value)
        self._secrets.put(BACKEND.id, name, value)

    def check(self, spec: JobSpec) -> None:
        """Raises BadSpec when a job names an unknown channel."""
        for name in spec.notify:
            if name not in self._setup.channels:
                names = ", ".join(self._setup.channels) or "no channel is configured"
                raise BadSpec(
                    f"notify: unknown channel {name}; known channels: {names}",
                    hint="`tpujob notifications` lists them; the context has them (docs/notifications.md).",
                )

    def _waiting(self) -> list[Message]:
        return self._outbox.due(self._clock.now() + _EVER, MAX_PAGE)

    def _view_channel(self, name: str, caller: Principal, waiting: list[Message]) -> ChannelView:
        channel = self._channel(name)
        newest = self._outbox.messages(channel=name, limit=10)
        tried = [message for message in (*newest, *waiting) if message.tried]
        last = max(tried, key=lambda m: m.tried_at or 0.0, default=None)
        return ChannelView(
            name=name,
            kind=channel.kind,
            to=channel.to if self._sees(caller, name) else "",
            rules=[
                RuleView(users=list(rule.users), on=sorted(rule.on))
                for rule in self._setup.rules
                if name in rule.channels
            ],
            state="untried" if last is None else "failing" if last.error else "works",
            waiting=len(waiting),
            last=self._view(last, caller) if last else None,
        )

    def _view(self, message: Message, caller: Principal) -> DeliveryView:
        error = message.error
        if error and not self._sees(caller, message.channel):
            error = HIDDEN
        fact = message.notification
        if fact.job and not access.sees_all(caller, fact.owner):
            fact = replace(fact, text=fact.public or fact.cause, lines=())
        return view_delivery(replace(message, notification=fact, error=error))

    def _sees(self, caller: Principal, channel: str) -> bool:
        """Return whether the caller may see the destination, and the receiver's answer, which may name it: admins may,
        and the user whose own address it is."""
        settings = self._setup.channels.get(channel)
        own = settings is not None and settings.to.casefold() == caller.name.casefold()
        return own or caller.at_least(Role.ADMIN)

    def _channel(self, name: str) -> Channel:
        if name not in self._setup.channels:
            hint = "`tpujob notifications` lists them"
            raise NotFound(f"there is no channel {name[:80]!r}", hint=hint)
        return self._setup.channels[name]


def view_delivery(message: Message) -> DeliveryView:
    return DeliveryView(
        id=message.id,
        channel=message.channel,
        at=rfc3339(message.at),
        kind=message.notification.kind,
        state=message.state,
        headline=messages.headline(message),
        lines=messages.lines(message),
        job=message.notification.job,
        count=1 + message.more,
        tries=message.tried,
        tried_at=None if message.tried_at is None else rfc3339(message.tried_at),
        error=message.error,
        due=None if message.due is None else rfc3339(message.due),
    )
