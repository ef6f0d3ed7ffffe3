"""What jobs cost and what came of it: the ledger of slices, goodput, what a grant covers, reports over many jobs,
bills; what a job will cost: estimates and forecasts; and what may still be spent: budgets.

Pure, and in whole micro-dollars and whole microseconds, so that parts add up to their sum. List prices are in
`domain/prices/`; here the past is priced by what was stored: each slice keeps the rate at which it was asked for.
"""

from tpujob.domain.money.estimate import estimate, sums
from tpujob.domain.money.estimate_shapes import (
    CostKind,
    DataToCopy,
    Estimate,
    EstimateLine,
    Surroundings,
    Use,
)
from tpujob.domain.money.goodput import Span, TimePart, spans
from tpujob.domain.money.ledger import (
    Bill,
    bill,
    chips,
    covered,
    free,
    in_use,
    moment,
    rate,
    usd_of_job,
    usd_of_slice,
)
from tpujob.domain.money.report import GROUPS, CostReport, Group, Row, joined, report
from tpujob.domain.money.run_time import RunTime, StatedWork, estimate_run_time, steps_of_spec

__all__ = [
    "GROUPS",
    "Bill",
    "CostKind",
    "CostReport",
    "DataToCopy",
    "Estimate",
    "EstimateLine",
    "Group",
    "Row",
    "RunTime",
    "Span",
    "StatedWork",
    "Surroundings",
    "TimePart",
    "Use",
    "bill",
    "chips",
    "covered",
    "estimate",
    "estimate_run_time",
    "free",
    "in_use",
    "joined",
    "moment",
    "rate",
    "report",
    "spans",
    "steps_of_spec",
    "sums",
    "usd_of_job",
    "usd_of_slice",
]
