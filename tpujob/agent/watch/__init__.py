"""Watches a program while it runs: its progress, patterns in its output, its stacks, notices of preemption.

Nothing is concluded here: the backend decides on what is reported.
"""

from tpujob.agent.watch.notices import Notices
from tpujob.agent.watch.supervision import Supervision

__all__ = ["Notices", "Supervision"]
