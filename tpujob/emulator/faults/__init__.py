"""Fault injection on the emulated Cloud TPU: by command, by schedule, or at random from a seed.

What the cloud does by itself is in `tpu/`. Exports what the command line offers; the emulator imports the modules.
"""

from tpujob.emulator.faults.chaos import PER_HOUR, PRESETS
from tpujob.emulator.faults.host_faults import USUAL_HOST_FAULT

__all__ = ["PER_HOUR", "PRESETS", "USUAL_HOST_FAULT"]
