"""Where a job may get its slice, in which order, and when an offer that was refused may be asked for again. Pure.

Facts of the hardware are in `hardware/`; the decision to ask is in `decide/queued.py`.
"""

from tpujob.domain.placement.offers import Offer, offers, unsure
from tpujob.domain.placement.site import (
    EVERYWHERE,
    Site,
    check_location,
    home_region,
    settled,
    traffic,
)

__all__ = [
    "EVERYWHERE",
    "Offer",
    "Site",
    "check_location",
    "home_region",
    "offers",
    "settled",
    "traffic",
    "unsure",
]
