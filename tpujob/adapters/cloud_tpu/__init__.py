"""Slices on the Cloud TPU API, through Google's client: the real service, or the emulator.

`domain/` decides when to request a slice. `slice_state.py` translates the API's states to ours, `errors.py` its errors.
Google's library is imported at the first call.
"""

from tpujob.adapters.cloud_tpu.calls import Api, Throttle, creates
from tpujob.adapters.cloud_tpu.catalog import CloudTpuCatalog
from tpujob.adapters.cloud_tpu.request import Options
from tpujob.adapters.cloud_tpu.slices import CloudTpuSlices
from tpujob.adapters.cloud_tpu.usage import count_usage

__all__ = [
    "Api",
    "CloudTpuCatalog",
    "CloudTpuSlices",
    "Options",
    "Throttle",
    "count_usage",
    "creates",
]
