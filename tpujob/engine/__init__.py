"""What happens by itself: the loop that ticks, the tick of one job, what it observes, and the sweep of orphans.

Effects only: what to do next is decided in `domain/decide/`; who is asked is a port in `ports.py`.
"""

from tpujob.engine.loop import Loop
from tpujob.engine.orphans import as_slice, unclaimed, unused_keys
from tpujob.engine.reconciler import GRACE, Live, Reconciler

__all__ = ["GRACE", "Live", "Loop", "Reconciler", "as_slice", "unclaimed", "unused_keys"]
