"""Input that no person would write: 1,000 cases, always the same, in `make nightly`; more by tests/bench/README.md."""

import os
from collections.abc import Callable
from typing import TypeVar

from hypothesis import HealthCheck, settings

T = TypeVar("T", bound=Callable[..., object])

FUZZ = int(os.environ.get("TPUJOB_FUZZ", "1000"))
LONG = "TPUJOB_FUZZ" in os.environ


def cases(share: float) -> Callable[[T], T]:
    """Use this share of all cases. Without TPUJOB_FUZZ they depend on the code alone and can be repeated."""
    return settings(
        max_examples=max(1, round(FUZZ * share)),
        derandomize=not LONG,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
