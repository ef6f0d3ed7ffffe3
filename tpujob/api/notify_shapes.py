"""What the calls about notifications send: channels with their rules, and messages. No secret is in them."""

from __future__ import annotations

from typing_extensions import TypedDict


class RuleView(TypedDict):
    """Which events a channel gets."""

    users: list[str]  #: whose jobs; empty: those of all users, and what is about no job
    on: list[str]  #: kinds of events; empty: everything that concerns them


class ChannelView(TypedDict):
    name: str
    kind: str  #: `slack`, `email` or `webhook`
    to: str  #: its destination; empty: only admins see it, and the user whose own address it is
    rules: list[RuleView]  #: of the context; jobs may name the channel besides
    state: str  #: `works`, `failing` at its last try, or `untried`
    waiting: int  #: messages that are still to be sent
    last: DeliveryView | None  #: the message that was tried last


class DeliveryView(TypedDict):
    """A message: the same content and the same id in each try."""

    id: str
    channel: str
    at: str
    kind: str
    state: str  #: `waiting` for its next try, `sent`, `failed`, or `collapsed` into another message of a burst
    headline: str
    lines: list[str]
    job: str  #: its id; empty: it is about no single job
    count: int  #: of messages of a burst, this one included
    tries: int
    tried_at: str | None
    error: str  #: of the last try; empty: it was delivered. The receiver's answer is only for those who see `to`
    due: str | None  #: its next try
