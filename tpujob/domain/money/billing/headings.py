"""What a row of the bill is for: TPU time of which kind, or under which heading it is shown. Pure.

SKUs are told by their descriptions, as public code does it (SkyPilot, gpuhunt): Google's `usageType` says OnDemand for
preemptible TPUs too. Which generations are charged by eight cores, and not by the chip, is in `prices/tpu.py`.
"""

import re
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from tpujob.domain.money.billing.charges import Charge
from tpujob.domain.prices.tpu import CHIPS_OF_8_CORES, SOLD_BY_CORES


class Heading(StrEnum):
    """Where money goes that is not the TPU time of one of our jobs. In the order in which they are shown."""

    REMOVED_JOBS = "slices of removed jobs"  #: our label, and no job of that id any more
    OTHER_BACKENDS = "other tpujob backends"  #: labelled by tpujob, and not by this backend
    OTHER_TPU = "TPU time of others"  #: not ours, or more than our slices can have used
    UNUSED_RESERVATION = "unused reservation"  #: capacity that was paid for and stood idle
    BESIDE_SLICES = "disks and addresses of slices"  #: our label, and no TPU time
    LIVE_BYTES = "stored bytes"
    NONCURRENT_BYTES = "stored bytes: old versions"
    SOFT_DELETED_BYTES = "stored bytes: soft-deleted"
    UPLOAD_PARTS = "stored bytes: unfinished uploads"  #: parts that nobody completed or aborted
    OPERATIONS = "storage operations"
    TRAFFIC = "network traffic"
    CONTROL_PLANE = "backend services"  #: Cloud Run, Firestore, Scheduler, Secret Manager
    COMMITMENTS = "commitments"  #: fees that are owed whether they are used or not
    SERVICE = "other services"  #: named by service
    ADJUSTMENTS = "adjustments"  #: memos that are about no single use
    ROUNDING = "rounding"
    TAX = "tax"


class TpuSku(NamedTuple):
    generation: str  #: `v4`, `v5e`
    spot: bool
    chips: int  #: per unit


_GENERATION = re.compile(r"tpu[ -]?v(\d)\s?(e|p)?(?![0-9a-z])", re.IGNORECASE)
_LETTERS = {"5": "e", "6": "e"}  #: of a description that leaves it out


@lru_cache(4096)
def tpu_sku(description: str) -> TpuSku | None:
    """What TPU time a SKU is for; None: it is for something else."""
    found, words = _GENERATION.search(description), description.lower()
    if found is None or "commitment" in words:
        return None
    number, letter = found[1], (found[2] or "").lower()
    generation = f"v{number}{letter or _LETTERS.get(number, '')}"
    spot = "preemptible" in words or "spot" in words
    return TpuSku(generation, spot, CHIPS_OF_8_CORES if generation in SOLD_BY_CORES else 1)


UNUSED = "compute.googleapis.com/is_unused_reservation"
OBJECT_STATE = "storage.googleapis.com/object_state"

_KINDS = {
    "tax": Heading.TAX,
    "adjustment": Heading.ADJUSTMENTS,
    "rounding_error": Heading.ROUNDING,
}
_STATES = {
    "noncurrent": Heading.NONCURRENT_BYTES,
    "soft_deleted": Heading.SOFT_DELETED_BYTES,
    "multipart": Heading.UPLOAD_PARTS,
}
_CONTROL = (
    "cloud run", "firestore", "cloud scheduler", "secret manager", "artifact registry", "cloud build", "cloud logging",
)  # fmt: skip


def by_kind(row: Charge) -> Heading | None:
    """The heading of a row that is about no use at all, or about capacity that nobody used."""
    if row.system_labels.get(UNUSED) == "true":
        return Heading.UNUSED_RESERVATION
    return _KINDS.get(row.cost_type)


def by_service(row: Charge) -> tuple[Heading, str]:
    """The heading of a row that is no TPU time, and the service where that is the name."""
    service, sku = row.service.lower(), row.sku.lower()
    if "commitment" in sku:
        return Heading.COMMITMENTS, ""
    if service == "cloud storage":
        if "operations" in sku:
            return Heading.OPERATIONS, ""
        if not _is_traffic(sku):
            return _STATES.get(row.system_labels.get(OBJECT_STATE, ""), Heading.LIVE_BYTES), ""
    if _is_traffic(sku) or service == "networking":
        return Heading.TRAFFIC, ""
    if any(name in service for name in _CONTROL):
        return Heading.CONTROL_PLANE, ""
    return Heading.SERVICE, row.service


def _is_traffic(sku: str) -> bool:
    return any(word in sku for word in ("egress", "ingress", "transfer", "download"))
