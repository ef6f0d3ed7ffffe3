"""The text of a message, which every sink sends in its own markup. Each try sends the same text. Pure."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from tpujob.domain.notifications.model import Message, Notification, NotificationKind
from tpujob.domain.text import one_line, rfc3339

_K = NotificationKind


class _Words(NamedTuple):
    """The words for one kind of notification. Command and page are for one that is about no job."""

    headline: str
    command: str = "tpujob events"
    page: str = "/events"


_WORDS: Mapping[NotificationKind, _Words] = {
    _K.SUCCEEDED: _Words("succeeded"),
    _K.FAILED: _Words("failed"),
    _K.CANCELLED: _Words("cancelled"),
    _K.HELD: _Words("stopped, slice held"),
    _K.WAITING: _Words("waiting for hardware"),
    _K.STUCK: _Words("stuck"),
    _K.NONFINITE: _Words("loss is not finite"),
    _K.BUDGET_WARNED: _Words("budget nearly used", "tpujob cost budgets", "/spend"),
    _K.BUDGET_USED_UP: _Words("budget used up", "tpujob cost budgets", "/spend"),
    _K.DEADLINE_MISSED: _Words("deadline missed"),
    _K.LEAK: _Words("slice that no job claims", "tpujob leaks", "/capacity"),
    _K.HOST_REFUSED: _Words("machine refused", "tpujob hosts", "/hosts"),
    _K.TEST: _Words("test", "tpujob notifications", "/notifications"),
}


def headline(message: Message) -> str:
    """Return one line of at most 150 characters, without line breaks or invisible characters."""
    fact = message.notification
    event = _WORDS[fact.kind].headline
    if fact.kind is _K.TEST:
        return f"tpujob: {event}"
    job = f"{fact.name} ({fact.job}) " if fact.job else ""
    why = f": {fact.cause}" if fact.cause and fact.kind is not _K.BUDGET_USED_UP else ""
    return one_line(f"{job}{event}{why}{f' in {fact.zone}' if fact.zone else ''}", 150)


def lines(message: Message, page: str = "") -> list[str]:
    """Return the lines below the headline. The last one counts the other messages of a burst, if there are any."""
    fact = message.notification
    job = f"{fact.name} ({fact.job}) of {fact.user}: " if fact.job else ""
    text_lines = [one_line(f"{job}{fact.text}", 500)]
    text_lines += [one_line(line, 200) for line in fact.lines if line[:100] not in fact.text]
    if message.more:
        where = f"{page.rstrip('/')}/events" if page else "tpujob events"
        text_lines.append(f"and {message.more:,} more: {where}")
    return text_lines


def command(fact: Notification) -> str:
    """Return the command that shows more about the fact."""
    if not fact.job:
        return _WORDS[fact.kind].command
    see = "show" if fact.kind in (_K.SUCCEEDED, _K.BUDGET_WARNED) else "why"
    return f"tpujob {see} {fact.job}"


def link(page: str, fact: Notification) -> str:
    """Return the URL of the fact on the status page; empty if the URL of that page is unknown."""
    path = f"/jobs/{fact.job}" if fact.job else _WORDS[fact.kind].page
    return f"{page.rstrip('/')}{path}" if page else ""


def document(message: Message, page: str) -> dict[str, Any]:
    """Return the message for programs: type, timestamp and data, as Standard Webhooks has them."""
    fact = message.notification
    return {
        "type": f"job.{fact.kind}" if fact.job else f"backend.{fact.kind}",
        "timestamp": rfc3339(message.at),
        "data": {
            "headline": headline(message),
            "kind": fact.kind.value,
            "cause": fact.cause,
            "zone": fact.zone,
            "count": 1 + message.more,
            "notes": [
                {
                    "at": rfc3339(fact.at),
                    "job": fact.job,
                    "name": fact.name,
                    "user": fact.user,
                    "attempt": fact.attempt,
                    "cause": fact.cause,
                    "zone": fact.zone,
                    "text": one_line(fact.text, 500),
                    "lines": [one_line(line, 200) for line in fact.lines],
                    "command": command(fact),
                    "url": link(page, fact),
                }
            ],
        },
    }
