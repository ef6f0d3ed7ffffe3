"""Every page, for the tests of all pages: a new page needs a line."""

from typing import NamedTuple


class Shown(NamedTuple):
    path: str
    name: str
    console: tuple[str, ...] = ()  #: parts of the expected errors in the browser's console
    picture: bool = False  #: a document shows it: docs/page/NAME.png


MISSING = ("404 (Not Found)",)
WRONG = ("400 (Bad Request)",)
NOT_NOW = (*MISSING, "409 (Conflict)")

#: the tests store jobs 000001 to 000015, or fewer, or none
PAGES = (
    Shown("/", "jobs", picture=True),
    Shown("/?who=everyone&show=all", "jobs-all"),
    Shown("/?q=no+such+job", "jobs-none"),
    Shown("/queue", "queue"),
    Shown("/capacity", "capacity"),
    Shown("/hosts", "hosts"),
    Shown("/spend", "spend"),
    Shown("/spend?by=job", "spend-by-job"),
    Shown("/spend?by=user&then=day&month=2025-12", "spend-month"),
    Shown("/events", "events"),
    Shown("/confirm/cancel?job=000001&job=000007&job=000009", "confirm"),
    Shown("/jobs/000001/logs", "logs", MISSING),
    Shown("/jobs/000001/logs?q=loss+2.88&i=1", "logs-found", MISSING, picture=True),
    Shown("/jobs/000004/logs", "logs-none", MISSING),
    Shown("/notifications", "notifications"),
    Shown("/backend", "backend"),
    Shown("/jobs/999999", "no-such-job", MISSING),
    Shown("/?colour=green", "no-such-filter", WRONG),
    Shown("/jobs/000001", "job", MISSING, picture=True),
    Shown("/jobs/000003", "job-queued", MISSING),
    Shown("/jobs/000007", "job-holding", MISSING),
    Shown("/jobs/000010", "job-failed", MISSING),
    Shown("/jobs/000001/metrics", "job-curves", MISSING),
    Shown("/jobs/000001/spec", "job-spec", MISSING),
    Shown("/jobs/000001/code", "no-such-code", MISSING),
    Shown("/jobs/000001/clean", "job-clean", MISSING),
    Shown("/jobs/000007/resume", "job-resume", NOT_NOW),
    Shown("/compare?jobs=000001,000002,000007", "compare", MISSING),
    Shown("/diff?a=000001&b=000002", "diff", MISSING),
)
