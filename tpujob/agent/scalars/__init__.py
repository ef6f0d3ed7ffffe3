"""The scalars that programs write to files for TensorBoard and W&B. They are shown and decide nothing."""

from tpujob.agent.scalars.files import ScalarFiles
from tpujob.agent.scalars.tail import Scalars

__all__ = ["ScalarFiles", "Scalars"]
