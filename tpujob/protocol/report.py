"""What one host says of its attempt, as JSON. The agent writes it; `domain/host/reports.py` decides what to believe.

The report is the metadata `report` of `paths.report_path`, so that a list call reads it; `mac` beside it signs its text
with the key of the attempt (`signing.py`). The body is lines: the evidence, `{"v": 1, "lines": [...]}`; the curves of
`agent/upload/progress.py`; the number of the report; the signature of these three. Evidence and curves may be empty.
Agents of before may leave out the last two lines, and the curves of all hosts but host 0.
"""

from __future__ import annotations

import json
from enum import Enum
from typing import Any, Dict, List, Literal, NamedTuple, Optional, Tuple, TypedDict, Union, cast

from tpujob.protocol import limits, signing

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
    #: device, data or model; empty: unknown
    blame: str
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
    seq: int  #: grows with each report of this host; also when its agent is started again
    #: when the report was made, by the storage's clock; None: the agent does not know that clock
    at: Optional[float]
    evidence: str  #: the SHA-256 of the first line of the body, in hex
    phase: str  #: a Phase
    #: once it has exited; negative: killed by that signal; None: it was not started
    exit_code: int | None
    error: str  #: what the agent could not do
    cause: AgentCause | None  #: of that error
    late: bool  #: of that error: something was not done in time, and nothing was found wrong
    unreached: UnreachedDocument | None  #: of that error
    #: the agent or the host sent the program SIGTERM or SIGKILL before it ended
    signalled: bool
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


class ReportBody(NamedTuple):
    """The signed body of a report."""

    seq: int  #: of the report
    evidence: bytes
    curves: bytes


def sign_report(
    document: ReportDocument, key: str, evidence: bytes = b"", curves: bytes = b""
) -> Tuple[Dict[str, str], bytes]:
    """Return metadata of at most `MAX_METADATA` bytes, and the body. `document` has `seq`."""
    lines = [evidence.replace(b"\n", b" "), curves.replace(b"\n", b" ")]
    report: Dict[str, Any] = {k: v for k, v in document.items() if v is not None}
    report["evidence"] = signing.digest(lines[0])
    text = _text(report)
    for name in ("metrics", "versions", "maintenance", "verdict", "error"):
        if len(text) <= limits.MAX_METADATA - 128:
            break
        report[name] = _short(report.get(name))
        text = _text(report)
    content = b"\n".join((*lines, b"%d" % report["seq"]))
    mac = signing.sign(key, "report body", content)
    metadata = {"report": text, "mac": signing.sign(key, "report", text)}
    return metadata, content + b"\n" + mac.encode()


def _short(value: Any) -> Any:
    """A text, or the texts of a record, cut; other records are left out."""
    if isinstance(value, str):
        return value[:60]
    record = cast(Dict[str, Any], value or {})
    if "blame" not in record:
        return None
    return {k: v[:60] if isinstance(v, str) else v for k, v in record.items()}


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def read_report_body(body: bytes, key: str) -> Optional[ReportBody]:
    """Return what a body says; None: it is not signed with that key."""
    content, _, mac = body.rpartition(b"\n")
    if not signing.verify(key, mac.decode("ascii", "replace"), "report body", content):
        return None
    try:
        evidence, curves, seq = content.split(b"\n")
        return ReportBody(int(seq), evidence, curves)
    except ValueError:
        return None


# Phases and notices --------------------------------------------------------------------------------------------------


class Phase(str, Enum):
    """In the order in which an attempt goes through them; `stopping` may be left out, as any but the last."""

    FETCHING = "fetching"  #: bundles come from the bucket, the host is taken over
    SETUP = "setup"  #: mounts, the environment, the job's own set-up
    CLEARING = "clearing"  #: whatever holds the TPU is ended
    PREFLIGHT = "preflight"  #: devices and hosts are checked
    RUNNING = "running"  #: the program runs
    #: the agent ends the program
    STOPPING = "stopping"
    EXITED = "exited"

    def __str__(self) -> str:
        return str(self.value)

    def __format__(self, form: str) -> str:
        return format(str(self.value), form)


PREEMPTED = "preempted"
MAINTENANCE = "maintenance"
NOTICES = ("", PREEMPTED, MAINTENANCE)


# Series --------------------------------------------------------------------------------------------------------------


#: of one bucket and one name: the value, or the least, the greatest and the last one; None: the bucket has none
Cell = Union[float, List[float], None]

MAX_ROWS, MAX_NAMES = 240, 8  #: that are written
MAX_SERIES, MAX_SERIES_READ = 24 * 1024, 64 * 1024  #: bytes that are written, and that are read


class SeriesDocument(TypedDict):
    v: int  #: 1
    names: List[str]  #: as the program calls them; `loss` and `ms` are of its steps
    #: for each bucket of steps: the last step, seconds since the epoch by the host's clock, a cell for each name
    rows: List[List[Cell]]
