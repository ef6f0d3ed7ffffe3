"""What a user can ask of jobs (`JobsApi`), and the shapes of what goes in and comes out: every name of these modules.

Shapes, signatures and how they travel: no rule, no I/O. The rules are in `service/` and `domain/`.
"""

from typing import TYPE_CHECKING, Any

from tpujob.api.jobs_api import METHODS as METHODS
from tpujob.api.jobs_api import JobsApi as JobsApi

if TYPE_CHECKING:
    from tpujob.api.all_shapes import *  # noqa: F403


def __getattr__(name: str) -> Any:
    """The shapes are imported when one is asked for: most commands do without."""
    if name.startswith("__"):
        raise AttributeError(name)
    import tpujob.api.all_shapes as shapes

    return getattr(shapes, name)
