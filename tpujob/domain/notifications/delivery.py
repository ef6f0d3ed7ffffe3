"""Delivery of messages: times, retries, and the merging of a burst into few messages. Pure."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from tpujob.domain.notifications.model import Message, Notification, Receipt

#: seconds before each further try; the last one is repeated
PAUSES = (5.0, 60.0, 300.0, 1800.0, 3600.0)
#: tries of one message, which take about three days
MAX_TRIES = 76
#: largest share by which a pause is changed, so that messages of one outage are not retried together
JITTER = 0.1
#: the longest pause that a receiver can ask for
MAX_PAUSE = 86400.0
#: seconds for which one process alone may try a message
CLAIM = 60.0
#: the most messages of one channel within BURST_SECONDS
BURST, BURST_SECONDS = 10, 60.0


def message_for(channel: str, notification: Notification) -> Message:
    """Return the message of a notification for a channel. Its id follows from the channel and the key."""
    digest = hashlib.sha256(f"{channel} {notification.key}".encode()).hexdigest()[:24]
    at = notification.at
    return Message(f"msg_{digest}", channel, at, notification, due=at)


def claim_next(due: Sequence[Message], left: int, owner: str, now: float) -> list[Message]:
    """Return the messages of a channel that the next try changes, the one to send first: that is the first one due. If
    only one more may be sent in this minute (`left`), it is the newest, and stands for the others that are due."""
    if left > 1:
        return [replace(due[0], due=now + CLAIM, claimed_by=owner)]
    newest = max(due, key=lambda message: message.at)
    others = [message for message in due if message is not newest]
    collapsed = newest.more + sum(1 + message.more for message in others)
    claimed = replace(newest, more=collapsed, due=now + CLAIM, claimed_by=owner)
    return [claimed, *(replace(other, state="collapsed", due=None) for other in others)]


def record_try(message: Message, receipt: Receipt, now: float, chance: float) -> Message:
    """Return the message after a try; `chance`, from 0 to 1, varies the pause."""
    count = message.tried + 1
    tried = replace(message, tried=count, tried_at=now, error=receipt.error[:300], due=None)
    if not receipt.error:
        return replace(tried, state="sent")
    if receipt.permanent or count >= MAX_TRIES:
        return replace(tried, state="failed")
    pause = PAUSES[min(count, len(PAUSES)) - 1] * (1 + JITTER * (2 * chance - 1))
    return replace(
        tried, state="waiting", due=now + max(pause, min(receipt.retry_after, MAX_PAUSE))
    )
