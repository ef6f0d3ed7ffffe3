"""When which notes of a channel become one message.

The first note of a topic is told at once. What follows is collected: for a minute, then, while it goes on, for twice as
long each time, up to ten minutes. One job is the reason for one message in ten minutes at most; only what is urgent
does not wait for that, nor for the end of quiet hours. Nothing is dropped: what has to wait is told later.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from tpujob.domain.notify.model import Channel, Message, Note, Told
from tpujob.domain.notify.rules import Quiet

#: seconds for which a topic is collected after its first message, and at most
WINDOW, LONGEST = 60.0, 600.0
#: seconds between two messages about one job
PER_JOB = 600.0
#: notes that are shown in a message; the others are counted
SHOWN = 20
#: notes in one message
MOST = 2000


class Plan(NamedTuple):
    message: Message | None  #: to be sent now
    channel: Channel  #: as it is once that message is made
    wake: float | None  #: when the earliest of the other notes can be told; None: there is none


def plan(channel: Channel, notes: Sequence[Note], quiet: Quiet | None, now: float) -> Plan:
    """The next message of these notes, which no message tells yet. To be called again with what is left."""
    quiet_until = (quiet.ends(now) or 0.0) if quiet else 0.0
    ready = {note.key: ready_at(channel, note, quiet_until) for note in notes}
    due = [note for note in notes if ready[note.key] <= now]
    if not due:
        return Plan(None, channel, min(ready.values(), default=None))
    first = min(due, key=lambda n: (not n.kind.urgent, n.at, n.key))
    mine = sorted((n for n in notes if n.topic == first.topic), key=lambda n: (n.at, n.key))[:MOST]
    made = channel.made + 1
    message = Message(
        id=message_id(channel.name, made, now),
        channel=channel.name,
        at=now,
        notes=tuple(mine[:SHOWN]),
        keys=tuple(note.key for note in mine),
        due=now,
    )
    after = replace(
        channel,
        made=made,
        topics=_recent(channel, now) | {first.topic: _told(channel, first.topic, now)},
        jobs={job: at for job, at in channel.jobs.items() if now - at < PER_JOB}
        | {note.job: now for note in mine if note.job},
        closing=message.id,
    )
    return Plan(message, after, now)


def message_id(channel: str, number: int, at: float) -> str:
    """Sorts by time; no two messages have the same."""
    return f"msg_{max(0, round(at * 1000)):013d}_{channel}_{number}"


def ready_at(channel: Channel, note: Note, quiet_until: float) -> float:
    """When the note may be told, as things are."""
    told = channel.topics.get(note.topic)
    collected = told.at + told.window if told else 0.0
    if note.kind.urgent:
        return max(channel.muted_until, collected)
    again = channel.jobs[note.job] + PER_JOB if note.job in channel.jobs else 0.0
    return max(channel.muted_until, collected, again, quiet_until)


def _told(channel: Channel, topic: str, now: float) -> Told:
    """It goes on if it is told again as soon as it may be, or nearly."""
    before = channel.topics.get(topic)
    if before is None or now > before.at + 2 * before.window:
        return Told(now, WINDOW)
    return Told(now, min(LONGEST, 2 * before.window))


def _recent(channel: Channel, now: float) -> dict[str, Told]:
    """Without the topics that would begin anew."""
    return {
        topic: told for topic, told in channel.topics.items() if now <= told.at + 2 * told.window
    }
