"""The port `Slices` on the Cloud TPU API, through Google's client: the real service, or the emulator.

All words of the vendor end here: states in `states.py`, errors in `errors.py`, each a table.
"""

from tpujob.adapters.cloud_tpu.calls import Api
from tpujob.adapters.cloud_tpu.catalog import Catalog
from tpujob.adapters.cloud_tpu.request import Options
from tpujob.adapters.cloud_tpu.slices import CloudTpuSlices
from tpujob.adapters.cloud_tpu.throttle import Throttle
from tpujob.adapters.cloud_tpu.usage import Usage

__all__ = ["Api", "Catalog", "CloudTpuSlices", "Options", "Throttle", "Usage"]
