"""What to do next with one job: one module for each state, and `decide` which picks it. Pure.

How an event changes the record is in `lifecycle.py`; what an ended attempt means, in `failures/`.
"""

from tpujob.domain.decide.attempt_end import best_progress
from tpujob.domain.decide.dispatch import decide, decide_beside, follow_up
from tpujob.domain.decide.queued import receive
from tpujob.domain.decide.releasing import SUSPENDED_WITHIN, handed_on

__all__ = [
    "SUSPENDED_WITHIN",
    "best_progress",
    "decide",
    "decide_beside",
    "follow_up",
    "handed_on",
    "receive",
]
