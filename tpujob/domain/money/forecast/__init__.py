"""What a job will probably take, as a range: waiting, set-up, preemptions, steps that are made again, and so dollars.

Pure. `met` reads what earlier jobs met, `experience` and `durations` make of it what a new one is to expect, and
`course` draws many courses from that. How fast programs go is in `throughput`, dollars are in `amounts`. The lines of
an estimate are not here.
"""

from tpujob.domain.money.forecast.amounts import Amounts, Best, Micros, Outlook, Way, amounts, best
from tpujob.domain.money.forecast.course import Forecast, Range, Work, forecast
from tpujob.domain.money.forecast.experience import Conditions, conditions
from tpujob.domain.money.forecast.met import Met, Place, history
from tpujob.domain.money.forecast.throughput import (
    UNITS,
    Hardware,
    Source,
    Throughput,
    Unit,
    measured,
)

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
    "Source",
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
