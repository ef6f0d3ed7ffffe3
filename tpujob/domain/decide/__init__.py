"""Decisions about one job: a module for each state, and `decide`, which selects it. Pure.

`lifecycle.py` applies events to the record; `failures/` interprets the end of an attempt.
"""

from tpujob.domain.decide.attempt_end import best_progress
from tpujob.domain.decide.dispatch import decide, decide_beside, follow_up
from tpujob.domain.decide.queued import can_request, receive
from tpujob.domain.decide.releasing import SUSPENDED_WITHIN, handed_on

__all__ = [
    "SUSPENDED_WITHIN",
    "best_progress",
    "can_request",
    "decide",
    "decide_beside",
    "follow_up",
    "handed_on",
    "receive",
]
