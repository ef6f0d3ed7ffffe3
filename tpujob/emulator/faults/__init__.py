"""Fault injection on the emulated Cloud TPU: by command, by schedule, or at random from a seed.

What the cloud does by itself is in `tpu/`. Here is what the command line offers; importing the modules takes longer.
"""

from collections.abc import Mapping

#: How often each kind of fault comes in an hour of chaos at rate 1.
PER_HOUR: Mapping[str, float] = {
    "preempt": 6.0,
    "maintain": 1.0,
    "stockout": 4.0,
    "api-error": 20.0,
    "storage-error": 20.0,
    "slow": 4.0,
    "hang": 0.5,
    "silence": 0.5,
    "oom": 0.5,
}
USUAL_HOST_FAULT = "nan:step=20,device=0"  #: of a bad host without a named fault
