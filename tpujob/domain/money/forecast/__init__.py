"""What a job will probably take, as a range: waiting, set-up, preemptions, steps that are made again, and so dollars.

Pure: from what earlier jobs met (`met`) to what a new one is to expect (`experience`, `durations`), to many courses
that it may take (`course`). How fast programs go is in `throughput`. What a slice
costs an hour is given; what else is billed is in the estimate.
"""

from tpujob.domain.money.forecast.course import Forecast, Range, Work, forecast
from tpujob.domain.money.forecast.experience import Conditions, conditions
from tpujob.domain.money.forecast.met import Met, Place, history

__all__ = [
    "Conditions",
    "Forecast",
    "Met",
    "Place",
    "Range",
    "Work",
    "conditions",
    "forecast",
    "history",
]
