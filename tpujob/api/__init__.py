"""`JobsApi`, the interface to jobs, and the shapes of its arguments and results. This package exports all of them.

Shapes, signatures and their transport: no rules, no I/O. `service/` and `domain/` have the rules.
"""

from typing import TYPE_CHECKING, Any

from tpujob.api.jobs_api import METHODS as METHODS
from tpujob.api.jobs_api import JobsApi as JobsApi

if TYPE_CHECKING:
    from tpujob.api.all_shapes import *  # noqa: F403


def __getattr__(name: str) -> Any:
    """Return a shape; all are imported at the first use, as most commands need none."""
    if name.startswith("__"):
        raise AttributeError(name)
    import tpujob.api.all_shapes as shapes

    return getattr(shapes, name)
