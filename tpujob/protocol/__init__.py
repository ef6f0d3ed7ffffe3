"""What backend, agent and emulator agree on: the plan that a host is given, the report that it gives back, phases,
paths, limits, which variables hold secrets, how what hosts say is signed. Standard library only, Python 3.8 and later:
it travels with the agent.
What a program is promised is in `workloads/contract/`; who writes plans and believes reports is `domain/host/`.

An agent that an older backend started is still heard after the backend was replaced: keys are added, never renamed, and
each side passes over what it does not know.
"""

from tpujob.protocol import limits, paths, signing
from tpujob.protocol.limits import JOB_LABEL, LABEL, OWNER_LABEL
from tpujob.protocol.plan import (
    EnvironmentOrder,
    MountOrder,
    Plan,
    PreflightOrder,
    StageOrder,
    StallRule,
    WatchPatterns,
    check_plan,
)
from tpujob.protocol.report import (
    MAINTENANCE,
    NOTICES,
    PREEMPTED,
    VERSIONS,
    AgentCause,
    MaintenanceDocument,
    Phase,
    ReportDocument,
    UnreachedDocument,
    VerdictDocument,
)

__all__ = [
    "JOB_LABEL", "LABEL", "MAINTENANCE", "NOTICES", "OWNER_LABEL", "PREEMPTED", "VERSIONS", "AgentCause",
    "EnvironmentOrder", "MaintenanceDocument", "MountOrder", "Phase", "Plan", "PreflightOrder", "ReportDocument",
    "StageOrder", "StallRule", "UnreachedDocument", "VerdictDocument", "WatchPatterns", "check_plan", "limits", "paths",
    "signing",
]  # fmt: skip
