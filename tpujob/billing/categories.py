"""What a SKU of the bill is for: TPU time of a generation, or a category of other costs. Pure.

SKUs are recognised by their descriptions, as public code does it: Google's `usageType` is OnDemand for preemptible
TPUs, too.
"""

import re
from functools import lru_cache
from typing import NamedTuple

from tpujob.domain.prices.tpu import chips_per_unit

OTHER_TPU = "TPU time of others"
LIVE_BYTES = "stored bytes"
SERVICE = "other services"
#: in the order in which they are shown
CATEGORIES = (
    "slices of removed jobs", "slices not in the ledger", "other tpujob backends", OTHER_TPU, "unused reservation",
    "disks and addresses of slices", LIVE_BYTES, "stored bytes: old versions", "stored bytes: soft-deleted",
    "stored bytes: unfinished uploads", "storage operations", "network traffic", "backend services", "commitments",
    SERVICE, "adjustments", "rounding", "tax",
)  # fmt: skip
_CONTROL_PLANE = re.compile(
    "cloud run|firestore|cloud scheduler|secret manager|artifact registry|cloud build|cloud logging"
)
_TRAFFIC = re.compile("egress|ingress|transfer|download")
_GENERATION = re.compile(r"tpu[ -]?v(\d)\s?(e|p)?(?![0-9a-z])", re.IGNORECASE)
_LETTERS = {"5": "e", "6": "e"}  #: of a description that leaves it out


class Sku(NamedTuple):
    generation: str | None  #: `v5e`; None: it is not TPU time
    spot: bool
    chips: int  #: per unit
    category: str
    name: str  #: of the service, where the category has many


@lru_cache(4096)
def classify_sku(service: str, description: str) -> Sku:
    """Return what a SKU of a service is for."""
    words = description.lower()
    match = _GENERATION.search(words)
    if match is None or "commitment" in words:
        category = _category(service.lower(), words)
        return Sku(None, False, 1, category, service if category == SERVICE else "")
    generation = f"v{match[1]}{match[2] or _LETTERS.get(match[1], '')}"
    spot = "preemptible" in words or "spot" in words
    return Sku(generation, spot, chips_per_unit(generation), OTHER_TPU, "")


def _category(service: str, words: str) -> str:
    if "commitment" in words:
        return "commitments"
    if service == "cloud storage" and "operations" in words:
        return "storage operations"
    if _TRAFFIC.search(words) or service == "networking":
        return "network traffic"
    if service == "cloud storage":
        return LIVE_BYTES
    return "backend services" if _CONTROL_PLANE.search(service) else SERVICE
