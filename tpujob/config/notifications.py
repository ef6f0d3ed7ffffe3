"""`notifications:` of a context: channels, rules and the mail server. Secrets (a Slack webhook, keys, a password) are
named here, and stored where the backend stores secrets (`tpujob notifications secret NAME`).

The local stack, which has no context file, reads the same keys from `notifications.yaml` in the state folder.
"""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from tpujob.config import files
from tpujob.config.settings import Settings
from tpujob.domain import secrets
from tpujob.domain.notifications.model import NotificationKind
from tpujob.domain.notifications.rules import ChannelRule
from tpujob.domain.spec import fields as kinds
from tpujob.domain.spec import validate, yaml

_ADDRESS = r"[^\s@<>,;:\"\\()\[\]\x00-\x1f\x7f]{1,64}@[A-Za-z0-9.-]{1,253}"
_HOST = r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?"
_URL = r"https?://[^\s<>\"]{1,1000}"
#: the kinds of events that a rule can name
_KINDS = tuple(kind.value for kind in NotificationKind if kind != "test")


_Secret = Annotated[
    str, kinds.or_empty(kinds.matching(secrets.NAME, "the name of a secret, such as SLACK_LAB"))
]
_Name = Annotated[str, kinds.channel]
_Names = Annotated[tuple[_Name, ...], kinds.names("a channel", kinds.channel)]


class ChannelFile(kinds.SpecPart):
    """One channel: exactly one of slack, email and webhook."""

    slack: _Secret = ""  #: the secret that holds the URL of an incoming webhook
    email: Annotated[str, kinds.or_empty(kinds.matching(_ADDRESS, "one e-mail address"))] = ""
    #: a URL, or the secret that holds one
    webhook: Annotated[
        str, kinds.or_empty(kinds.matching(f"{_URL}|{secrets.NAME}", "a URL, or a secret's name"))
    ] = ""
    #: secrets of keys that sign messages to the webhook; every key signs, so that the receiver can change keys
    keys: Annotated[
        tuple[str, ...],
        kinds.names("a secret", kinds.matching(secrets.NAME, "the name of a secret")),
    ] = ()
    private: bool = False  #: allows a private address and plain HTTP

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        destinations = [name for name in ("slack", "email", "webhook") if getattr(self, name)]
        if len(destinations) != 1:
            listed = " and ".join(destinations) or "none"
            raise ValueError(f"needs exactly one of slack, email and webhook, and has {listed}")
        if bool(self.webhook) != bool(self.keys):
            raise ValueError("webhook and keys go together: what is sent is signed")
        if self.webhook.startswith("http://") and not self.private:
            raise ValueError("webhook must begin with https://, unless private is true")
        return self


class MailServer(kinds.SpecPart):
    """The server that takes e-mail."""

    host: Annotated[str, kinds.matching(_HOST, "the name of a host")]
    port: Annotated[int, kinds.count(65535, 1)] = 587
    tls: Annotated[Literal["starttls", "implicit", "none"], kinds.Word("kind of TLS")] = "starttls"
    login: Annotated[str, kinds.or_empty(kinds.text(320))] = ""
    password: _Secret = ""
    sender: Annotated[str, kinds.matching(_ADDRESS, "an e-mail address"), Field(alias="from")]

    @model_validator(mode="after")
    def _login_is_kept_safe(self) -> Self:
        if bool(self.login) != bool(self.password):
            raise ValueError("login and password, the name of a secret, go together")
        if self.login and self.tls == "none":
            raise ValueError(
                "tls must not be none where there is a login: it would be readable on the way"
            )
        return self


class RuleFile(kinds.SpecPart):
    """A rule: the events that are reported on some channels."""

    channels: _Names
    #: users whose jobs are reported; empty: all, and events that concern no job
    users: Annotated[tuple[str, ...], kinds.names("a user", kinds.member)] = ()
    #: kinds of events; empty: all
    on: Annotated[
        tuple[str, ...], kinds.names("an event", kinds.one_of(_KINDS, "kind of event"))
    ] = ()


class NotificationSettings(kinds.SpecPart):
    """The `notifications:` of a context."""

    #: the address of the status page, for links
    page: Annotated[str, kinds.or_empty(kinds.matching(_URL, "a URL"))] = ""
    channels: Annotated[dict[_Name, ChannelFile], kinds.mapping("names to channels")] = Field(
        default={}
    )
    smtp: MailServer | None = None
    rules: Annotated[tuple[RuleFile, ...], Field(strict=False)] = ()
    #: seconds of waiting for hardware after which it is reported
    waiting: kinds.Ttl = 3600
    #: seconds until a slow release of a slice is reported; twice that for a start of a program
    stuck: kinds.Hold = 1800

    @model_validator(mode="after")
    def _complete(self) -> Self:
        for name, channel in self.channels.items():
            if channel.email and self.smtp is None:
                raise ValueError(f"channel {name} needs smtp, the mail server")
        for rule in self.rules:
            for name in rule.channels:
                if name not in self.channels:
                    existing = ", ".join(self.channels) or "none"
                    raise ValueError(f"rules name the channel {name}; there are: {existing}")
        return self

    def channel_rules(self) -> tuple[ChannelRule, ...]:
        return tuple(
            ChannelRule(rule.channels, rule.users, frozenset(map(NotificationKind, rule.on)))
            for rule in self.rules
        )


def of_local_stack(settings: Settings) -> NotificationSettings:
    """Return the settings of the local stack; without its file there are no channels. Raise BadSpec as `parse` does."""
    path = file_of_local_stack(settings)
    return parse(files.read(path), str(path)) if path.exists() else NotificationSettings()


def file_of_local_stack(settings: Settings) -> Path:
    return settings.state / "notifications.yaml"


def parse(text: str, source: str) -> NotificationSettings:
    """Return the settings in a file's text. Raise BadSpec that lists every mistake with its line."""
    document = yaml.load(text, source)
    return validate(NotificationSettings, document.data, document, of="notifications")
