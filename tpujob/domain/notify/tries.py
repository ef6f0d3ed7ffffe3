"""When a message is tried again, and when that ends."""

from dataclasses import replace

from tpujob.domain.notify.model import Message, Receipt, Try

#: seconds before each further try, as Standard Webhooks suggests: about 75 hours in all
PAUSES = (5.0, 60.0, 300.0, 1800.0, 7200.0, 18000.0, 36000.0, 50400.0, 72000.0, 86400.0)
#: a pause is shortened or prolonged by up to this part, so that messages of one outage come apart
JITTER = 0.1
#: the longest pause that a receiver can ask for
LONGEST = 86400.0
#: seconds for which one process may try; a message that it has not settled by then is tried by another
CLAIM = 60.0
#: tries that are remembered
REMEMBERED = 30


def claimed(message: Message, owner: str, now: float) -> Message:
    """As it is while one process tries to deliver it."""
    return replace(message, due=now + CLAIM, claimed_by=owner)


def after(message: Message, receipt: Receipt, now: float, chance: float) -> Message:
    """As it is after a try; `chance` is from 0 to 1."""
    tries = (*message.tries, Try(now, receipt.error[:300]))
    from_there = message.counted_from
    if len(tries) > REMEMBERED:
        from_there -= len(tries) - REMEMBERED
        tries = tries[-REMEMBERED:]
    tried = replace(message, tries=tries, counted_from=max(0, from_there), due=None)
    if not receipt.error:
        return replace(tried, state="sent")
    failures = len(tries) - tried.counted_from
    if receipt.permanent or receipt.gone or failures > len(PAUSES):
        return replace(tried, state="failed")
    pause = PAUSES[failures - 1] * (1 + JITTER * (2 * chance - 1))
    return replace(tried, state="waiting", due=now + max(pause, min(receipt.retry_after, LONGEST)))


def again(message: Message, now: float) -> Message:
    """As it is when a person has it sent again: with all its tries, and the same id."""
    return replace(message, state="waiting", due=now, counted_from=len(message.tries))
