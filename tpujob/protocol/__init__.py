"""The formats that backend, agent and emulator share: plan, report, log segments, paths, limits, signatures. Standard
library only, Python 3.8 and later: this package travels with the agent.

`tpujob/contract/` has the formats between agent and program. `domain/host/` writes plans and verifies reports.

An older backend may have started the agent that a newer backend reads. So keys are added, never renamed, and each side
ignores keys that it does not know.
"""

from tpujob.protocol import limits, paths, signing
from tpujob.protocol.limits import JOB_LABEL, LABEL, OWNER_LABEL, PRICING_LABEL
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
from tpujob.protocol.ports import COORDINATOR_PORT, coordinator_port
from tpujob.protocol.report import (
    MAINTENANCE,
    NONFINITE_LOSSES,
    NOTICES,
    PREEMPTED,
    VERSIONS,
    AgentCause,
    MaintenanceDocument,
    OutputsDocument,
    Phase,
    ReportDocument,
    UnreachedDocument,
    VerdictDocument,
)

__all__ = [
    "COORDINATOR_PORT", "JOB_LABEL", "LABEL", "MAINTENANCE", "NONFINITE_LOSSES", "NOTICES", "OWNER_LABEL",
    "PREEMPTED", "PRICING_LABEL", "VERSIONS", "AgentCause", "EnvironmentOrder", "MaintenanceDocument", "MountOrder",
    "OutputsDocument", "Phase", "Plan", "PreflightOrder", "ReportDocument", "StageOrder", "StallRule",
    "UnreachedDocument", "VerdictDocument", "WatchPatterns", "check_plan", "coordinator_port", "limits", "paths",
    "signing",
]  # fmt: skip
