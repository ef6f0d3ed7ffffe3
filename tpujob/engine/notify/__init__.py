"""Telling people by itself: events become notes, notes become messages, messages are delivered.

A thread of its own: a sink that is dead delays messages, never jobs. Which events, when and in which words is decided
in `domain/notify/`; how a message is handed over, in `adapters/notify/`.

Why nothing is lost, and nothing told twice: notes are made of the events that the store has, from a place on that is
moved only after they were kept. Whatever was cut off in between is done again, and finds what it made by its key: a
note by job, attempt and cause, a message by its number in its channel. One step cannot be made so: between a delivery
and its record lies the other side: a process that is killed there delivers the same message again, with the same id.
"""

from tpujob.engine.notify.notifier import Notifier
from tpujob.engine.notify.outlets import Outlet, Setup
from tpujob.engine.notify.sender import Sender

__all__ = ["Notifier", "Outlet", "Sender", "Setup"]
