"""What jobs cost and what came of it: the ledger of slices, goodput, what a grant covers, reports over many jobs,
bills; what a job will cost: estimates and forecasts; and what may still be spent: budgets.

Pure, and in whole micro-dollars and whole microseconds, so that parts add up to their sum. List prices are in
`domain/prices/`; here the past is priced by what was stored: each slice keeps the rate at which it was asked for.
"""

from tpujob.domain.money.estimate import (
    DataToCopy,
    Estimate,
    Kind,
    Line,
    Surroundings,
    Use,
    estimate,
    sums,
)
from tpujob.domain.money.goodput import Part, Span, spans
from tpujob.domain.money.grants import chips, covered, in_use
from tpujob.domain.money.ledger import Bill, bill, free, moment, rate, usd_of_job, usd_of_slice
from tpujob.domain.money.length import Length, Said, length, told_steps
from tpujob.domain.money.report import GROUPS, Group, Report, Row, joined, report

__all__ = [
    "GROUPS",
    "Bill",
    "DataToCopy",
    "Estimate",
    "Group",
    "Kind",
    "Length",
    "Line",
    "Part",
    "Report",
    "Row",
    "Said",
    "Span",
    "Surroundings",
    "Use",
    "bill",
    "chips",
    "covered",
    "estimate",
    "free",
    "in_use",
    "joined",
    "length",
    "moment",
    "rate",
    "report",
    "spans",
    "sums",
    "told_steps",
    "usd_of_job",
    "usd_of_slice",
]
