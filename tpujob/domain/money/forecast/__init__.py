"""What a job will probably take, as a range: waiting, set-up, preemptions, steps that are made again, and so dollars.

Pure: from what earlier jobs met (`history`), how long things like that last (`durations`), to many courses that the
job may take (`course`). What a slice costs an hour is given; what else is billed is in the estimate.
"""

from tpujob.domain.money.forecast.course import Forecast, Range, Work, forecast
from tpujob.domain.money.forecast.history import Conditions, Met, Place, conditions, history

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
