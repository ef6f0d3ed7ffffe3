"""What jobs cost and what came of it: the ledger of slices, goodput, what a grant covers, and reports over many jobs.

Pure, and in whole micro-dollars and whole microseconds, so that parts add up to their sum. List prices are in
`domain/prices/`; here the past is priced by what was stored: each slice keeps the rate at which it was asked for.
"""

from tpujob.domain.money.goodput import Part, Span, spans
from tpujob.domain.money.grants import covered
from tpujob.domain.money.ledger import Bill, bill, usd_of_job, usd_of_slice
from tpujob.domain.money.report import GROUPS, Group, Report, Row, report

__all__ = [
    "GROUPS",
    "Bill",
    "Group",
    "Part",
    "Report",
    "Row",
    "Span",
    "bill",
    "covered",
    "report",
    "spans",
    "usd_of_job",
    "usd_of_slice",
]
