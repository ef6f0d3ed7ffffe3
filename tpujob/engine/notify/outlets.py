"""The channels of a backend as they are set up, and who is told on them. Data only."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tpujob.domain.notify.facts import Patience
from tpujob.domain.notify.rules import Clocktime, Quiet, Rule
from tpujob.ports import Sink

ChannelKind = Literal["slack", "email", "webhook"]


@dataclass(frozen=True, slots=True)
class Outlet:
    """One channel."""

    kind: ChannelKind
    to: str  #: where it leads, for people; no secret
    sink: Sink
    quiet: Quiet | None = None
    quiet_text: str = ""  #: as the context has it
    daily: Clocktime | None = None  #: when the summary of a day is told
    daily_text: str = ""
    pace: float = 0.0  #: seconds between two messages, at least


@dataclass(frozen=True, slots=True)
class Setup:
    """What a context says of notifications."""

    outlets: Mapping[str, Outlet] = field(default_factory=dict[str, Outlet])
    rules: tuple[Rule, ...] = ()
    patience: Patience = field(default_factory=Patience)
