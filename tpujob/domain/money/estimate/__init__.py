"""What a job will cost, line by line, from what it asks for and what somebody said it will take. Pure.

Every line is an amount times a row of the price list, in whole micro-dollars, so that lines add up to their sum. What
nobody said, or has no known price, is None and named: it is never counted as 0. For how long slices run is found in
`length.py`; what preemptions add is told in `forecast/`, which asks for estimates of more hours.
"""

from tpujob.domain.money.estimate.shapes import DataToCopy, Estimate, Kind, Line, Surroundings, Use
from tpujob.domain.money.estimate.whole import estimate, sums

__all__ = ["DataToCopy", "Estimate", "Kind", "Line", "Surroundings", "Use", "estimate", "sums"]
