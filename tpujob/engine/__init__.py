"""What happens by itself: the loop that ticks, the tick of one job, what it observes, and the sweep of orphans.

Effects only: what to do next is decided in `domain/decide/`; who is asked is a port in `ports/`.
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
