"""The engine: the loop, the tick of one job, its observations and actions, and the sweep of orphaned slices.

Effects only: `domain/decide/` makes the decisions, and `ports/` has the interfaces to the world.
"""

from tpujob.engine.bundles import Bundles
from tpujob.engine.counters import Counters
from tpujob.engine.job_runtime import JobRuntime
from tpujob.engine.loop import Loop, Pulse
from tpujob.engine.orphans import Orphans, zones
from tpujob.engine.queue import Queue
from tpujob.engine.reconciler import Reconciler

__all__ = [
    "Bundles",
    "Counters",
    "JobRuntime",
    "Loop",
    "Orphans",
    "Pulse",
    "Queue",
    "Reconciler",
    "zones",
]
