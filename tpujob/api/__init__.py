"""What a user can ask of jobs (`JobsApi`), and the shapes of what goes in and comes out.

Shapes and signatures only: no rule, no I/O, no import of another room. The rules are in `service/` and `domain/`.
"""

from tpujob.api.admin_shapes import BrokenView, LeakView, SuspectView, SweptView
from tpujob.api.jobs_api import JobsApi
from tpujob.api.shapes import (
    AttemptView,
    BudgetView,
    CapacityView,
    ChangeView,
    CodeGiven,
    CodeView,
    CommandView,
    DiffSide,
    DiffView,
    EventView,
    FileChangeView,
    HostAccess,
    JobView,
    LogLine,
    LogPage,
    NextAction,
    NextView,
    PlanView,
    SliceView,
    VerdictView,
)

__all__ = [
    "AttemptView",
    "BrokenView",
    "BudgetView",
    "CapacityView",
    "ChangeView",
    "CodeGiven",
    "CodeView",
    "CommandView",
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
    "NextAction",
    "NextView",
    "PlanView",
    "SliceView",
    "SuspectView",
    "SweptView",
    "VerdictView",
]
