"""`notifications:` of a context: channels, who is told on them, and where mail is handed in. Secrets are named here,
and kept where the backend keeps secrets (`tpujob notifications secret NAME`): a webhook of Slack, keys, a password.

The local stack, which has no context file, reads the same words from `notifications.yaml` in the state folder.
"""

import re
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self
from zoneinfo import ZoneInfo

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from tpujob.config import files
from tpujob.config.settings import Settings
from tpujob.domain import secrets
from tpujob.domain.notify.model import Kind
from tpujob.domain.notify.rules import Clocktime, Quiet, Rule
from tpujob.domain.spec import Allowed, bad_spec, problems, yaml
from tpujob.domain.spec import fields as kinds
from tpujob.domain.spec.errors import EACH

_TIME = r"([01][0-9]|2[0-3]):([0-5][0-9])"
_ZONE = r"[A-Za-z][A-Za-z0-9_+/-]{0,60}"
_ADDRESS = r"[^\s@<>,;:\"\\()\[\]\x00-\x1f\x7f]{1,64}@[A-Za-z0-9.-]{1,253}"
_HOST = r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?"
_URL = r"https?://[^\s<>\"]{1,1000}"
#: what may be named in a rule
_KINDS = tuple(kind.value for kind in Kind if kind not in (Kind.SUMMARY, Kind.TEST))


def _matching(pattern: str, allowed: str) -> BeforeValidator:
    return BeforeValidator(kinds.matching(pattern, allowed))


def _zone(name: str) -> tzinfo:
    if name in ("", "UTC"):
        return UTC
    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError):
        raise ValueError(f"names no time zone that this machine knows: {name}") from None


def _hours(value: Any) -> str:
    pattern = rf"{_TIME}-{_TIME}( {_ZONE})?"
    given = kinds.matching(pattern, "hours such as 22:00-07:00 Europe/Berlin")(value)
    hours, _, zone = given.partition(" ")
    start, _, end = hours.partition("-")
    if start == end:
        raise ValueError("must end at another time than they begin")
    _zone(zone)
    return given


def _time(value: Any) -> str:
    given = kinds.matching(rf"{_TIME}( {_ZONE})?", "a time such as 09:00 Europe/Berlin")(value)
    _zone(given.partition(" ")[2])
    return given


_Secret = Annotated[
    str, kinds.or_empty(kinds.matching(secrets.NAME, "the name of a secret, such as SLACK_LAB"))
]
_Name = Annotated[str, BeforeValidator(kinds.channel)]
_Names = Annotated[tuple[_Name, ...], BeforeValidator(kinds.names("a channel", kinds.channel))]


class ChannelFile(kinds.Part):
    """One channel: exactly one of slack, email and webhook."""

    slack: _Secret = ""  #: the secret that holds the URL of an incoming webhook
    email: Annotated[str, kinds.or_empty(kinds.matching(_ADDRESS, "one e-mail address"))] = ""
    #: a URL, or the secret that holds one
    webhook: Annotated[
        str, kinds.or_empty(kinds.matching(f"{_URL}|{secrets.NAME}", "a URL, or a secret's name"))
    ] = ""
    #: secrets that hold keys which sign what is sent to the webhook; each signs, so that the receiver can change over
    keys: Annotated[
        tuple[str, ...],
        BeforeValidator(
            kinds.names("a secret", kinds.matching(secrets.NAME, "the name of a secret"))
        ),
    ] = ()
    private: bool = False  #: it may be at an address that is not public, and over plain HTTP
    quiet: Annotated[str, kinds.or_empty(_hours)] = ""
    daily: Annotated[str, kinds.or_empty(_time)] = ""

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        given = [name for name in ("slack", "email", "webhook") if getattr(self, name)]
        if len(given) != 1:
            said = " and ".join(given) or "none"
            raise ValueError(f"needs exactly one of slack, email and webhook, and has {said}")
        if bool(self.webhook) != bool(self.keys):
            raise ValueError("webhook and keys go together: what is sent is signed")
        if self.webhook.startswith("http://") and not self.private:
            raise ValueError("webhook must begin with https://, unless private is true")
        return self


class MailServer(kinds.Part):
    """Where mail is handed in."""

    host: Annotated[str, _matching(_HOST, "the name of a host")]
    port: Annotated[int, BeforeValidator(kinds.count(65535, 1))] = 587
    tls: Annotated[
        Literal["starttls", "implicit", "none"],
        BeforeValidator(kinds.one_of(("starttls", "implicit", "none"), "kind of TLS")),
    ] = "starttls"
    login: Annotated[str, kinds.or_empty(kinds.text(320))] = ""
    password: _Secret = ""
    sender: Annotated[str, _matching(_ADDRESS, "an e-mail address"), Field(alias="from")]

    @model_validator(mode="after")
    def _login_is_kept_safe(self) -> Self:
        if bool(self.login) != bool(self.password):
            raise ValueError("login and password, the name of a secret, go together")
        if self.login and self.tls == "none":
            raise ValueError("tls must not be none where there is a login: anybody could read it")
        return self


class RuleFile(kinds.Part):
    """Who is told of what."""

    channels: _Names
    users: Annotated[
        tuple[str, ...], BeforeValidator(kinds.names("a user", kinds.text(320)))
    ] = ()  #: whose jobs; left out: everybody's, and what is about no job
    on: Annotated[
        tuple[str, ...],
        BeforeValidator(kinds.names("what is told", kinds.one_of(_KINDS, "kind of news"))),
    ] = ()  #: left out: everything


class Notifications(kinds.Part):
    """What a context says of notifications."""

    #: where the status page is, for links
    page: Annotated[str, kinds.or_empty(kinds.matching(_URL, "a URL"))] = ""
    channels: Annotated[
        dict[_Name, ChannelFile], BeforeValidator(kinds.mapping("names to channels"))
    ] = Field(default_factory=dict)
    smtp: MailServer | None = None
    rules: Annotated[tuple[RuleFile, ...], Field(strict=False)] = ()
    #: for hardware, after which it is told
    waiting: kinds.Ttl = 3600
    #: in which a slice must be gone that was given back; twice that until a program runs
    stuck: kinds.Hold = 1800

    @model_validator(mode="after")
    def _complete(self) -> Self:
        for name, channel in self.channels.items():
            if channel.email and self.smtp is None:
                raise ValueError(f"channel {name} needs smtp: where mail is handed in")
        for rule in self.rules:
            for name in rule.channels:
                if name not in self.channels:
                    known = ", ".join(self.channels) or "none"
                    raise ValueError(f"rules name the channel {name}; there are: {known}")
        return self


ALLOWED: Allowed = {
    (): tuple(field.alias or name for name, field in Notifications.model_fields.items()),
    ("channels", EACH): tuple(ChannelFile.model_fields),
    ("smtp",): tuple(field.alias or name for name, field in MailServer.model_fields.items()),
    ("rules", EACH): tuple(RuleFile.model_fields),
}


def below(key: str) -> Allowed:
    """The same where they are below that key of another file."""
    return {(key, *path): names for path, names in ALLOWED.items()}


class Told(NamedTuple):
    """A time of day, as text and as a rule."""

    quiet: Quiet | None
    daily: Clocktime | None


def times(channel: ChannelFile) -> Told:
    hours, _, zone = channel.quiet.partition(" ")
    start, _, end = hours.partition("-")
    quiet = Quiet(_clock(start, zone), _clock(end, zone)) if hours else None
    at, _, place = channel.daily.partition(" ")
    return Told(quiet, _clock(at, place) if at else None)


def rules(found: Notifications) -> tuple[Rule, ...]:
    return tuple(
        Rule(rule.channels, rule.users, frozenset(map(Kind, rule.on))) for rule in found.rules
    )


def _clock(text: str, zone: str) -> Clocktime:
    match = re.fullmatch(_TIME, text)
    assert match, text
    return Clocktime(int(match[1]) * 60 + int(match[2]), _zone(zone))


def of_local_stack(settings: Settings) -> Notifications:
    """Of the file beside the jobs of the local stack; without it nothing is told. Raises BadSpec."""
    path = file_of_local_stack(settings)
    return parse(files.read(path), str(path)) if path.exists() else Notifications()


def file_of_local_stack(settings: Settings) -> Path:
    return settings.state / "notifications.yaml"


def parse(text: str, source: str) -> Notifications:
    """Raises BadSpec that says everything that is wrong, each with its line."""
    document = yaml.load(text, source)
    try:
        return Notifications.model_validate(document.data)
    except ValidationError as error:
        raise bad_spec(problems(error, ALLOWED, of="notifications"), document) from None
