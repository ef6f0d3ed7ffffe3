"""What people are told without asking: of which facts, on which channels, when, and in which words. Pure.

No sending, no storing and no secrets here: what is not yet delivered is in `ports.Outbox`, the sinks are in
`adapters/notify`.
"""

from tpujob.domain.notify.digest import plan
from tpujob.domain.notify.model import Channel, Kind, Message, Note, Receipt, Try
from tpujob.domain.notify.rules import Quiet, Rule, recipients

__all__ = [
    "Channel",
    "Kind",
    "Message",
    "Note",
    "Quiet",
    "Receipt",
    "Rule",
    "Try",
    "plan",
    "recipients",
]
