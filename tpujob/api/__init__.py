"""The way in: what a user can ask of jobs (`JobsApi`), and the shapes of what goes in and comes out.

Shapes and signatures only: no rule, no I/O, no import of another room. The rules are in `service/` and `domain/`.
"""

from tpujob.api.jobs_api import JobsApi
from tpujob.api.shapes import (
    AttemptView,
    BrokenView,
    ChangeView,
    CodeGiven,
    CodeView,
    DiffSide,
    DiffView,
    EventView,
    FileChangeView,
    HostAccess,
    JobView,
    LeakView,
    LogLine,
    LogPage,
    PlanView,
    SliceView,
    SuspectView,
    SweptView,
    VerdictView,
)

__all__ = [
    "AttemptView",
    "BrokenView",
    "ChangeView",
    "CodeGiven",
    "CodeView",
    "DiffSide",
    "DiffView",
    "EventView",
    "FileChangeView",
    "HostAccess",
    "JobView",
    "JobsApi",
    "LeakView",
    "LogLine",
    "LogPage",
    "PlanView",
    "SliceView",
    "SuspectView",
    "SweptView",
    "VerdictView",
]
