"""Input that nobody would write: 1,000 cases, always the same, in `make nightly`; 100,000 in `make fuzz`."""

import os
from collections.abc import Callable
from typing import TypeVar

from hypothesis import HealthCheck, settings

T = TypeVar("T", bound=Callable[..., object])

FUZZ = int(os.environ.get("TPUJOB_FUZZ", "1000"))
LONG = "TPUJOB_FUZZ" in os.environ


def cases(share: float) -> Callable[[T], T]:
    """So large a part of all cases; without CASES they can be repeated, as they depend on nothing but the code."""
    return settings(
        max_examples=max(1, round(FUZZ * share)),
        derandomize=not LONG,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
