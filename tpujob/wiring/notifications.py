"""Makes channels with their sinks from the `notifications:` of a context."""

from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tpujob.config.notifications import ChannelFile, NotificationSettings
from tpujob.domain.access import BACKEND
from tpujob.domain.notifications.rules import Thresholds
from tpujob.engine.notification_collector import Channel, NotificationSetup
from tpujob.errors import NotFound

if TYPE_CHECKING:
    from tpujob.ports import Clock, Secrets


def build_setup(
    settings: NotificationSettings, secrets: "Secrets", clock: "Clock", page: str
) -> NotificationSetup:
    """Return the channels, rules and thresholds. `page`: the address of the status page, unless the context sets it."""
    channels = {
        name: _build_channel(channel, settings, secrets, clock, settings.page or page)
        for name, channel in settings.channels.items()
    }
    thresholds = Thresholds(float(settings.waiting), float(settings.stuck))
    return NotificationSetup(channels, settings.channel_rules(), thresholds)


def _build_channel(
    channel: ChannelFile,
    settings: NotificationSettings,
    secrets: "Secrets",
    clock: "Clock",
    page: str,
) -> Channel:
    from tpujob.adapters.notify import Mail, Slack, SmtpServer, Webhook

    def secret(name: str) -> Callable[[], str]:
        return lambda: _value(secrets, name)

    if channel.slack:
        sink = Slack(secret(channel.slack), page=page, private=channel.private)
        return Channel("slack", f"the webhook in {channel.slack}", sink)
    if channel.email:
        smtp = settings.smtp
        assert smtp, "a context with a channel for e-mail has a mail server"
        server = SmtpServer(smtp.host, smtp.port, smtp.tls, smtp.sender, smtp.login)
        sink = Mail(server, channel.email, secret(smtp.password), page=page)
        return Channel("email", channel.email, sink)
    url = channel.webhook
    host = urlsplit(url).hostname if "://" in url else ""
    address = (lambda: url) if "://" in url else secret(url)
    keys = [secret(name) for name in channel.keys]
    sink = Webhook(
        address, lambda: [key() for key in keys], clock, page=page, private=channel.private
    )
    return Channel("webhook", host or f"the URL in {url}", sink)


def _value(secrets: "Secrets", name: str) -> str:
    """Return a secret of the backend itself. Raises NotFound with what to do."""
    try:
        return secrets.get(BACKEND.id, name)
    except NotFound:
        raise NotFound(
            f"the secret {name} is not set: `tpujob notifications secret {name}`"
        ) from None
