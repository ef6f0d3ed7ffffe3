"""The TPU generations that each provider offers: what it adds to a chip of `tpujob/contract/chips.py`, one row each.
`accelerators.py` derives types from them; `tpu_prices.py` has prices by region. Imports the standard library and
the contract only, as the emulator reads these tables too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tpujob.contract.chips import CHIPS, Chip

#: the providers, the APIs that slices are requested from
CLOUD_TPU = "cloud-tpu"


def at_provider(name: str) -> str:
    """Return the end of a text on hardware, such as ` at compute-engine`; empty for Cloud TPU, which goes without
    saying."""
    return "" if name == CLOUD_TPU else f" at {name}"


@dataclass(frozen=True, slots=True)
class Generation:
    """The facts that all types of a generation share at one provider."""

    provider: str
    chip: Chip
    prefix: str  #: prefix of its type strings: `v5litepod`
    api_enum: str  #: `AcceleratorConfig.Type` of the Cloud TPU API
    system_image: str  #: what hosts boot, as the provider names it: at Cloud TPU a runtime version
    device_zones: tuple[str, ...]  #: zones for types of one host; the usual ones first
    pod_zones: tuple[str, ...]  #: zones for types of several hosts
    #: its part of the names of quotas, as `V4s` in `TPUV4sPreemptiblePodPerProjectPerZoneForTPUAPI`
    quota_name: str
    #: quota metrics of slices of one host. `serving`: those with that word; `device`: those without `pod`; empty: none
    one_host_quota: str = ""
    quota_unit_known: bool = True  #: False: no document says whether a quota counts chips or cores
    sold_by_8_cores: bool = False  #: False: sold by the chip
    #: prices of commitments of one and of three years, as shares of the on-demand price, by the shipped lists
    committed_shares: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The chip's name: `v5e`."""
        return self.chip.name


# Zones: where the documentation offers the generation, then what the API lists beyond that. Listed is not available.
_V2_DEVICE = "us-central1-b us-central1-c us-central1-f europe-west4-a asia-east1-c"
_V2_POD = "us-central1-a europe-west4-a"
_V3_DEVICE = "us-central1-a us-central1-b us-central1-f europe-west4-a us-east1-d"
_V3_POD = "europe-west4-a us-east1-d"
_V4 = "us-central2-b"
_V5E = """
    us-central1-a us-south1-a us-south1-b us-west1-c us-west4-a us-west4-b europe-west4-b europe-west4-a
    us-east1-b us-east1-c us-east4-b us-east5-a us-east5-b us-east5-c
    europe-north1-a europe-north1-c europe-west1-b europe-west1-c europe-west3-c
    asia-east1-a asia-east1-b asia-east1-c asia-northeast1-b asia-southeast1-b
    northamerica-northeast1-b southamerica-west1-b southamerica-west1-c
"""
_V5P = """
    us-central1-a us-east5-a us-east5-b us-east5-c europe-west4-b us-east1-d
    us-south1-a us-south1-b us-south1-c europe-west1-b europe-west1-d
"""
_V6E = """
    us-central1-b us-central1-a us-central1-c us-east1-d us-east5-a us-east5-b us-east5-c
    us-south1-ai1b us-south1-a us-south1-c europe-west4-a us-east4-a us-west1-c us-central2-b
    asia-northeast1-b asia-south1-b asia-south1-c asia-southeast1-b asia-east1-c
    southamerica-west1-a southamerica-east1-c
"""

_BASE = "tpu-ubuntu2204-base"
_OLD_SHARES, _SHARES = ("0.63", "0.45"), ("0.70", "0.45")

#: the first provider's first
ROWS = (
    Generation(
        CLOUD_TPU, CHIPS["v2"], "v2", "V2", system_image=_BASE,
        device_zones=tuple(_V2_DEVICE.split()), pod_zones=tuple(_V2_POD.split()),
        quota_name="V2s", one_host_quota="device", sold_by_8_cores=True, committed_shares=_OLD_SHARES,
    ),
    Generation(
        CLOUD_TPU, CHIPS["v3"], "v3", "V3", system_image=_BASE,
        device_zones=tuple(_V3_DEVICE.split()), pod_zones=tuple(_V3_POD.split()),
        quota_name="V3s", one_host_quota="device", sold_by_8_cores=True, committed_shares=_OLD_SHARES,
    ),
    Generation(
        CLOUD_TPU, CHIPS["v4"], "v4", "V4", system_image=_BASE,
        device_zones=tuple(_V4.split()), pod_zones=tuple(_V4.split()),
        quota_name="V4s", quota_unit_known=False, sold_by_8_cores=True, committed_shares=_OLD_SHARES,
    ),
    Generation(
        CLOUD_TPU, CHIPS["v5e"], "v5litepod", "V5LITE_POD", system_image="v2-alpha-tpuv5-lite",
        device_zones=tuple(_V5E.split()), pod_zones=tuple(_V5E.split()),
        quota_name="V5sLitepod", one_host_quota="serving", committed_shares=_SHARES,
    ),
    Generation(
        CLOUD_TPU, CHIPS["v5p"], "v5p", "V5P", system_image="v2-alpha-tpuv5",
        device_zones=tuple(_V5P.split()), pod_zones=tuple(_V5P.split()),
        quota_name="V5p", quota_unit_known=False, committed_shares=_SHARES,
    ),
    Generation(
        CLOUD_TPU, CHIPS["v6e"], "v6e", "V6E", system_image="v2-alpha-tpuv6e",
        device_zones=tuple(_V6E.split()), pod_zones=tuple(_V6E.split()),
        quota_name="V6E", committed_shares=_SHARES,
    ),
)  # fmt: skip

#: by name: the row of the first provider that offers it
GENERATIONS: Mapping[str, Generation] = MappingProxyType(
    {row.name: next(first for first in ROWS if first.name == row.name) for row in ROWS}
)
