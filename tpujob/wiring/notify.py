"""What a context says of notifications, as channels with their sinks."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tpujob.config import notify as files
from tpujob.domain.access import BACKEND
from tpujob.domain.notify.facts import Patience
from tpujob.engine.notify import Outlet, Setup
from tpujob.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpujob.config.notify import ChannelFile, Notifications
    from tpujob.ports import Clock, Secrets, Sink

#: Slack takes one message a second for each channel
SLACK_PACE = 1.0


def setup(found: Notifications, secrets: Secrets, clock: Clock, page: str) -> Setup:
    """`page`: where the status page is, unless the context says it."""
    page = found.page or page
    outlets = {
        name: _outlet(each, _sink(each, found, secrets, clock, page))
        for name, each in found.channels.items()
    }
    patience = Patience(float(found.waiting), float(found.stuck))
    return Setup(outlets, files.rules(found), patience)


def _outlet(channel: ChannelFile, sink: Sink) -> Outlet:
    at = files.times(channel)
    if channel.slack:
        kind, to, pace = "slack", f"the webhook in {channel.slack}", SLACK_PACE
    elif channel.email:
        kind, to, pace = "email", channel.email, 0.0
    else:
        host = urlsplit(channel.webhook).hostname if "://" in channel.webhook else ""
        kind, to, pace = "webhook", host or f"the URL in {channel.webhook}", 0.0
    return Outlet(kind, to, sink, at.quiet, channel.quiet, at.daily, channel.daily, pace)


def _sink(
    channel: ChannelFile, found: Notifications, secrets: Secrets, clock: Clock, page: str
) -> Sink:
    from tpujob.adapters.notify import Mail, Server, Slack, Webhook

    def secret(name: str) -> Callable[[], str]:
        return lambda: _value(secrets, name)

    if channel.slack:
        return Slack(secret(channel.slack), page=page, private=channel.private)
    if channel.email:
        smtp = found.smtp
        assert smtp, "a context with a channel for mail says where mail is handed in"
        server = Server(smtp.host, smtp.port, smtp.tls, smtp.sender, smtp.login)
        return Mail(server, channel.email, secret(smtp.password), page=page)
    url = channel.webhook
    where = (lambda: url) if "://" in url else secret(url)
    keys = [secret(name) for name in channel.keys]
    return Webhook(
        where, lambda: [key() for key in keys], clock, page=page, private=channel.private
    )


def _value(secrets: Secrets, name: str) -> str:
    """Of the backend itself. Raises NotFound with what to do."""
    try:
        return secrets.get(BACKEND.id, name)
    except NotFound:
        raise NotFound(
            f"the secret {name} is not set: `tpujob notifications secret {name}`"
        ) from None
