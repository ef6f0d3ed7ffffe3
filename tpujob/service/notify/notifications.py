"""Notifications as users meet them: channels, what was sent on them, and what a person can do about that."""

import re
from dataclasses import replace

from tpujob.api import ChannelView, DeliveryView, RuleView, TryView
from tpujob.domain import access
from tpujob.domain import secrets as secret_rules
from tpujob.domain.access import BACKEND, Principal, Role
from tpujob.domain.notify import words
from tpujob.domain.notify.model import Channel, Message
from tpujob.domain.spec import JobSpec
from tpujob.domain.text import rfc3339
from tpujob.engine.notify import Outlet, Sender, Setup
from tpujob.errors import BadRequest, BadSpec, NotFound
from tpujob.ports import Clock, Outbox, Secrets

#: things not told yet that are counted
COUNTED = 100
#: messages of one page
PAGE, MOST = 50, 1000
#: hours for which a channel can be muted
LONGEST = 30 * 24.0
#: what an error is to those who may not see it
KEPT = "it was not delivered; admins see why"
_EVER = 1e9  #: seconds by which everything is due
_ID = re.compile(r"msg_[0-9]{13,16}_[a-z0-9-]{1,40}_[0-9]{1,12}")


class Notifications:
    """The part of `api.JobsApi` that is about being told."""

    def __init__(
        self, outbox: Outbox, setup: Setup, sender: Sender, secrets: Secrets, clock: Clock
    ) -> None:
        self._outbox, self._setup, self._sender = outbox, setup, sender
        self._secrets, self._clock = secrets, clock

    def channels(self, who: Principal) -> list[ChannelView]:
        return [self._channel(name, who) for name in self._setup.outlets]

    def waiting(self, late: float) -> tuple[int, int]:
        """Messages that are still to be sent, at most 1,000, and those of them that are overdue by so many seconds."""
        now = self._clock.now()
        found = [m.due for m in self._outbox.due(now + _EVER, MOST) if m.due is not None]
        return len(found), sum(due < now - late for due in found)

    def deliveries(
        self, who: Principal, *, channel: str = "", before: str = "", limit: int = PAGE
    ) -> list[DeliveryView]:
        if channel:
            self._outlet(channel)
        if before:
            _checked_id(before)
        most = max(1, min(limit, MOST))
        found = self._outbox.messages(channel=channel, before=before, limit=most)
        return [self._delivery(message, who) for message in found]

    def test_channel(self, who: Principal, channel: str) -> DeliveryView:
        self._outlet(channel)
        return self._delivery(self._sender.test(channel, who.name), who)

    def replay(self, who: Principal, delivery: str) -> DeliveryView:
        return self._delivery(self._sender.replay(_checked_id(delivery)), who)

    def mute_channel(self, who: Principal, channel: str, hours: float) -> ChannelView:
        self._outlet(channel)
        if not 0 <= hours <= LONGEST:
            raise BadRequest(f"a channel is muted for 0 to {LONGEST:.0f} hours, not for {hours}")
        until = self._clock.now() + hours * 3600 if hours else 0.0
        self._sender.change(channel, lambda now: replace(now, muted_until=until))
        return self._channel(channel, who)

    def set_channel_secret(self, name: str, value: str) -> None:
        """Of the backend itself: no user has it, and no job can name it."""
        secret_rules.checked_value(secret_rules.checked_name(name), value)
        self._secrets.put(BACKEND.id, name, value)

    def check(self, spec: JobSpec) -> None:
        """Raises BadSpec when a job names a channel that there is not."""
        known = ", ".join(self._setup.outlets)
        for name in spec.notify:
            if name not in self._setup.outlets:
                there = f"there are: {known}" if known else "none is set up"
                raise BadSpec(
                    f"notify: there is no channel {name}; {there}",
                    hint="`tpujob notifications` lists them; the context has them (docs/notifications.md).",
                )

    def _channel(self, name: str, who: Principal) -> ChannelView:
        outlet, now = self._outlet(name), self._outbox.channel(name)
        newest = self._outbox.messages(channel=name, limit=1)
        muted = now.muted_until if now.muted_until > self._clock.now() else None
        return ChannelView(
            name=name,
            kind=outlet.kind,
            to=outlet.to if self._sees(who, name) else "",
            rules=[
                RuleView(users=list(rule.users), on=sorted(rule.on))
                for rule in self._setup.rules
                if name in rule.channels
            ],
            quiet=outlet.quiet_text,
            daily=outlet.daily_text,
            state=_state(now, muted, newest[0] if newest else None),
            muted_until=_maybe(muted),
            disabled_at=_maybe(now.disabled_at),
            disabled_why=self._why(now.disabled_why, name, who),
            waiting=len(self._outbox.open(name, COUNTED)),
            last=self._delivery(newest[0], who) if newest else None,
        )

    def _delivery(self, message: Message, who: Principal) -> DeliveryView:
        tries = (
            TryView(at=rfc3339(one.at), error=self._why(one.error, message.channel, who))
            for one in message.tries
        )
        notes = (
            note
            if not note.job or access.sees_all(who, note.owner)
            else replace(note, text=note.public or note.cause, lines=())
            for note in message.notes
        )
        return delivery_view(replace(message, notes=(*notes,)), [*tries])

    def _sees(self, who: Principal, channel: str) -> bool:
        """Whether the caller is told where it leads, and what its receiver answers, which may name an address: admins,
        and whoever's own address it is."""
        outlet = self._setup.outlets.get(channel)
        own = outlet is not None and outlet.to.casefold() == who.name.casefold()
        return own or who.at_least(Role.ADMIN)

    def _why(self, error: str, channel: str, who: Principal) -> str:
        return error if not error or self._sees(who, channel) else KEPT

    def _outlet(self, name: str) -> Outlet:
        found = self._setup.outlets.get(name)
        if found is None:
            raise NotFound(
                f"there is no channel {name[:80]!r}", hint="`tpujob notifications` lists them"
            )
        return found


def delivery_view(message: Message, tries: list[TryView]) -> DeliveryView:
    return DeliveryView(
        id=message.id,
        channel=message.channel,
        at=rfc3339(message.at),
        kind=message.kind,
        state=message.state,
        headline=words.headline(message),
        lines=words.lines(message),
        jobs=[note.job for note in message.notes if note.job],
        count=len(message.keys),
        tries=tries,
        due=_maybe(message.due),
    )


def _state(channel: Channel, muted: float | None, last: Message | None) -> str:
    if channel.disabled_at is not None:
        return "disabled"
    if muted is not None:
        return "muted"
    if last is None or not last.tries:
        return "untried"
    return "failing" if last.tries[-1].error else "works"


def _checked_id(id: str) -> str:
    if not _ID.fullmatch(id):
        raise BadRequest(
            f"{id[:80]!r} is no id of a message", hint="`tpujob notifications` shows them"
        )
    return id


def _maybe(seconds: float | None) -> str | None:
    return None if seconds is None else rfc3339(seconds)
