"""How much money may be spent: the amounts of `budget:` in a job file, and of the budgets in a context.

What follows from them is in `domain/money/budget.py`. The retry budgets of `recovery:` are another thing.
"""

import math
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from tpujob.domain.spec.fields import Part
from tpujob.domain.spec.yaml import describe

#: US dollars, at most
MOST = 100_000_000


def check_usd(value: Any) -> float:
    """Raises ValueError with half a sentence that follows what it is."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(
            f"must be a number of US dollars, such as 50 or 12.50, not {describe(value)}"
        )
    if not math.isfinite(value) or not 0.01 <= value <= MOST:
        raise ValueError(f"must be from 0.01 to {MOST:,} US dollars, not {describe(value)}")
    return float(value)


Usd = Annotated[
    float,
    BeforeValidator(check_usd),
    WithJsonSchema({"type": "number", "minimum": 0.01, "maximum": MOST}),
]


class JobBudget(Part):
    """What the slices of one job may cost in all."""

    usd: Usd = Field(
        description="US dollars. The program is told to save, and the slice is given back, before "
        "they are used up; `tpujob resume --budget` raises it.",
    )
