"""What a job will probably take, as a range: waiting, set-up, preemptions, steps that are made again, and so dollars.

Pure: from what earlier jobs met (`met`) to what a new one is to expect (`experience`, `durations`), to many courses
that it may take (`course`). How fast programs go is in `throughput`, what it
comes to in dollars in `amounts`. What the lines of an estimate are is not here.
"""

from tpujob.domain.money.forecast.amounts import Amounts, Best, Micros, Outlook, Way, amounts, best
from tpujob.domain.money.forecast.course import Forecast, Range, Work, forecast
from tpujob.domain.money.forecast.experience import Conditions, conditions
from tpujob.domain.money.forecast.met import Met, Place, history
from tpujob.domain.money.forecast.throughput import UNITS, Hardware, Throughput, Unit, measured

__all__ = [
    "UNITS",
    "Amounts",
    "Best",
    "Conditions",
    "Forecast",
    "Hardware",
    "Met",
    "Micros",
    "Outlook",
    "Place",
    "Range",
    "Throughput",
    "Unit",
    "Way",
    "Work",
    "amounts",
    "best",
    "conditions",
    "forecast",
    "history",
    "measured",
]
