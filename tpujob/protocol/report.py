"""What one host says of its attempt, as JSON. The agent writes it; `domain/host/reports.py` decides what to believe.

Those of all hosts of a slice are in one object (`slice_report.py`). Agents that do not know this write one for each
host: the report in the metadata of `paths.report_path`, as `report`; the evidence in the body: `{"v": 1, "lines":
[...]}`, and of host 0 a second line after it, of `series.py`. `mac` beside the report signs its text with the key of
the attempt (`signing.py`).
"""

from __future__ import annotations

from typing import Literal, Optional, TypedDict, Union

#: what the check before the program finds of what is installed
VERSIONS = ("python", "jax", "jaxlib", "libtpu")

Number = Union[int, float]

#: The causes that an agent gives; `domain.model.Cause` has them all.
AgentCause = Literal[
    "SETUP", "PERMISSION", "TPU_BUSY", "PREFLIGHT", "BAD_HOST", "OOM_HOST", "NONFINITE", "CRASH"
]


class VerdictDocument(TypedDict):
    """Where a non-finite number came from."""

    step: Number | None
    host: Number | None
    device: str  #: such as `device 2 of host 1`; empty: none is to blame
    blame: str  #: device, data or model; empty: nobody knows
    text: str


class UnreachedDocument(TypedDict):
    """A connection between hosts of a slice that nothing answers, not even with a refusal: packets are dropped."""

    source: int  #: the host that tried
    target: int  #: the host that it tried to reach
    port: int  #: of TCP


class MaintenanceDocument(TypedDict):
    """What the cloud announces for the host, in its own words; times are RFC 3339, empty where it names none."""

    starts: str
    ends: str
    latest: str  #: until when the start may be moved
    kind: str  #: SCHEDULED: a week ahead; UNSCHEDULED: with less notice
    status: str  #: PENDING or ONGOING


class ReportDocument(TypedDict, total=False):
    v: int  #: 1
    job: str
    attempt: int
    host: int
    seq: int  #: grows with each report of this host; also when its agent was started anew
    evidence: str  #: the SHA-256 of the first line of the body, in hex; from agents that report for one host alone
    phase: str  #: a Phase
    #: once it has exited; negative: killed by that signal; None: it was not started
    exit_code: int | None
    error: str  #: what the agent could not do
    cause: AgentCause | None  #: of that error
    late: bool  #: of that error: something was not done in time, and nothing was found wrong
    unreached: UnreachedDocument | None  #: of that error
    signalled: bool  #: the program was told to stop, or killed, before it ended
    ran: Optional[float]  #: seconds from the program's start to its end, once it has ended
    notice: str  #: one of NOTICES
    maintenance: MaintenanceDocument | None  #: announced, perhaps days ahead; not a notice
    saved_in: float | None  #: seconds from the notice to the commit of a newer checkpoint
    physical: str  #: the machine below the host
    verdict: VerdictDocument | None
    versions: dict[str, str]  #: by VERSIONS
    idle: float  #: seconds without a sign of progress, while the program runs
    looks: int  #: in that time
    # what the program says of itself, by the contract
    program_phase: str
    step: Number | None
    steps: Number | None
    loss: Number | None
    checkpoint: Number | None
    resumed_from: Number | None
    first_step: Number | None  #: that it made in this attempt
    metrics: dict[str, Number | None]
