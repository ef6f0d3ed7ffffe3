"""What the calls about notifications send: channels with their rules, and messages with their tries. No secret is in
them."""

from __future__ import annotations

from typing_extensions import TypedDict


class RuleView(TypedDict):
    """Who is told on a channel, and of what."""

    users: list[str]  #: whose jobs; empty: everybody's, and what is about no job
    on: list[str]  #: kinds of news; empty: everything that concerns them


class ChannelView(TypedDict):
    name: str
    kind: str  #: `slack`, `email` or `webhook`
    to: str  #: where it leads; empty: only admins are told, and whoever's own address it is
    rules: list[RuleView]  #: of the context; jobs may name the channel besides
    quiet: str  #: hours in which only what is urgent is told; empty: none
    daily: str  #: when the summary of a day is told; empty: never
    state: str  #: `works`, `failing` at its last try, `untried`, `muted` or `disabled`
    muted_until: str | None
    disabled_at: str | None  #: nothing is sent any more, until a test or a replay succeeds
    disabled_why: str
    waiting: int  #: things that are not told yet, up to 100
    last: DeliveryView | None  #: its newest message


class TryView(TypedDict):
    at: str
    error: str  #: empty: it was delivered; what the receiver says is for those alone who see where the channel leads


class DeliveryView(TypedDict):
    """A message: the same content and the same id in each try."""

    id: str
    channel: str
    at: str
    kind: str
    state: str  #: `waiting` for its next try, `sent` or `failed`
    headline: str
    lines: list[str]
    jobs: list[str]  #: ids, of the first things that it tells
    count: int  #: how many things it tells
    tries: list[TryView]
    due: str | None  #: its next try
