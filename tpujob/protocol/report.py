"""The report of one host about its attempt, as JSON. The agent writes reports; `domain/host/reports.py` verifies them.

A report is the metadata `report` of the object `paths.report_path`, so that a list call reads it. The metadata `mac`
signs its text with the key of the attempt (`signing.py`). The body has four lines: the evidence, an `EvidenceDocument`;
the curves of `agent/upload/progress.py`; the number of the report; the signature of these three. Evidence and curves
may be empty.
"""

from __future__ import annotations

import json
from enum import Enum
from typing import Any, Dict, List, Literal, NamedTuple, Optional, Tuple, TypedDict, Union, cast

from tpujob.protocol import limits, signing

#: the keys of `ReportDocument.versions`
VERSIONS = ("python", "jax", "jaxlib", "libtpu")

Number = Union[int, float]

#: the causes that an agent gives; `domain.model.Cause` has all causes
AgentCause = Literal[
    "SETUP",
    "PERMISSION",
    "TPU_BUSY",
    "PREFLIGHT",
    "BAD_HOST",
    "OOM_HOST",
    "NONFINITE",
    "OUTPUTS",
    "CRASH",
]


class VerdictDocument(TypedDict):
    """The origin of a non-finite number."""

    step: Number | None
    host: Number | None
    device: str  #: such as `device 2 of host 1`; empty: no device is to blame
    #: device, data or model; empty: unknown
    blame: str
    text: str


#: the values of a loss that is not finite; `not finite`: a line of output matched `watch.nonfinite`
NONFINITE_LOSSES = ("NaN", "inf", "-inf", "not finite")


class NonfiniteDocument(TypedDict):
    """The newest loss that the program reports is not finite."""

    loss: str  #: one of NONFINITE_LOSSES
    since: Number | None  #: the first step with such a loss since the last finite one


class UnreachedDocument(TypedDict):
    """A connection between hosts of a slice that gets no answer, not even a refusal: packets are dropped."""

    source: int  #: the host that tried
    target: int  #: the host that it tried to reach
    port: int  #: a TCP port


class MaintenanceDocument(TypedDict):
    """A maintenance of the host that the cloud announced, in the cloud's words. Times are RFC 3339; empty: unknown."""

    starts: str
    ends: str
    latest: str  #: the latest time that the start may be moved to
    kind: str  #: SCHEDULED: a week ahead; UNSCHEDULED: with less notice
    status: str  #: PENDING or ONGOING


class OutputsDocument(TypedDict):
    """The output folders of a host."""

    restored: int  #: files of an earlier attempt that the host got before its program
    left_out: int  #: files that the bucket cannot have; the log names them
    #: folders without a file after a checkpoint, or at the end of the program; at most MAX_EMPTY
    empty: List[str]


class FoundDocument(TypedDict):
    """Progress that was found in the output, or in files for TensorBoard and W&B, without a pattern of the user: it is
    shown and decides nothing."""

    step: Number | None
    steps: Number | None
    loss: Number | str | None  #: a text: one of NONFINITE_LOSSES
    step_s: Number | None  #: mean seconds of a step
    metrics: Dict[str, Number | str | None]  #: of files; a text: one of NONFINITE_LOSSES


class ReportDocument(TypedDict, total=False):
    v: int  #: 1
    job: str
    attempt: int
    host: int
    seq: int  #: grows with each report of this host, across restarts of its agent
    #: the time of the report by the storage's clock; None: the agent does not know that clock
    at: Optional[float]
    evidence: str  #: the SHA-256 of the first line of the body, in hex
    phase: str  #: a Phase
    #: the program's exit code; negative: killed by that signal; None: not started, or still running
    exit_code: int | None
    error: str  #: the agent's failure, as a sentence
    cause: AgentCause | None  #: the cause of `error`
    late: bool  #: `error` is a time-out without any other symptom
    unreached: UnreachedDocument | None  #: the connection that `error` is about
    #: the agent or the host sent the program SIGTERM or SIGKILL before it ended
    signalled: bool
    kernel_kills: int  #: processes of the host that the kernel killed for want of memory
    ran: Optional[float]  #: seconds from the program's start to its end; None: not ended
    notice: str  #: one of NOTICES
    maintenance: MaintenanceDocument | None  #: announced, perhaps days ahead; not a notice
    saved_in: float | None  #: seconds from the notice to the commit of a newer checkpoint
    physical: str  #: the physical machine of the host
    verdict: VerdictDocument | None
    last_error: str  #: an error in the last lines of a program that ended with 0
    versions: dict[str, str]  #: installed versions by the names in VERSIONS
    idle: float  #: seconds without a sign of progress, while the program runs
    looks: int  #: the agent's polls in that time
    # facts that the program reports by the contract of `tpujob/contract/`
    program_phase: str
    step: Number | None
    steps: Number | None
    loss: Number | None
    nonfinite: NonfiniteDocument | None  #: None: the newest loss is finite, or no loss is reported
    #: the newest that the program reported; while its numbers are not finite, the newest before these
    checkpoint: Number | None
    resumed_from: Number | None
    first_step: Number | None  #: the first step of this attempt
    metrics: dict[str, Number | str | None]  #: a text: one of NONFINITE_LOSSES
    #: the newest committed checkpoints, at most MAX_CHECKPOINTS, the newest last
    checkpoints: List[Number]
    found: FoundDocument | None  #: None: nothing was found, or the program reports its steps
    outputs: OutputsDocument | None  #: None: the job keeps none, or they are not restored yet


class EvidenceLine(TypedDict, total=False):
    """A line of output near the end of a program that ended badly, or of the stacks of a hang."""

    text: (
        str  #: without colours; of the error also without what its process prints before each line
    )
    ago: float  #: seconds from the line to the program's end
    later: int  #: lines after it, without those of the error
    stepped: bool  #: the program made steps after it
    #: of the last error: a `frame`, the `error` that is named, `more` of its message, the `cause` it was raised from
    part: str


class EvidenceDocument(TypedDict):
    v: int  #: 1
    lines: List[EvidenceLine]


class ReportBody(NamedTuple):
    """The signed body of a report."""

    seq: int
    evidence: bytes
    curves: bytes


def sign_report(
    document: ReportDocument, key: str, evidence: bytes = b"", curves: bytes = b""
) -> Tuple[Dict[str, str], bytes]:
    """Return metadata of at most `MAX_METADATA` bytes, and the body. `document` must have `seq`."""
    lines = [evidence.replace(b"\n", b" "), curves.replace(b"\n", b" ")]
    report: Dict[str, Any] = {k: v for k, v in document.items() if v is not None}
    report["evidence"] = signing.digest(lines[0])
    text = _to_json(report)
    for name in ("metrics", "versions", "maintenance", "outputs", "verdict", "error"):
        if len(text) <= limits.MAX_METADATA - 128:
            break
        report[name] = _shorten(report.get(name))
        text = _to_json(report)
    content = b"\n".join((*lines, b"%d" % report["seq"]))
    mac = signing.sign(key, "report body", content)
    metadata = {"report": text, "mac": signing.sign(key, "report", text)}
    return metadata, content + b"\n" + mac.encode()


def _shorten(value: Any) -> Any:
    """Return a text, or a verdict with its texts, cut to 60 characters; None for any other record."""
    if isinstance(value, str):
        return value[:60]
    record = cast(Dict[str, Any], value or {})
    if "blame" not in record:
        return None
    return {k: v[:60] if isinstance(v, str) else v for k, v in record.items()}


def _to_json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def read_report_body(body: bytes, key: str) -> Optional[ReportBody]:
    """Return the parsed body, or None if `key` did not sign it."""
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
    """The phases of an attempt, in their order; an attempt may skip any phase but the last."""

    FETCHING = "fetching"  #: the agent takes over the host and downloads bundles
    SETUP = "setup"  #: mounts, the environment, the job's own set-up
    CLEARING = "clearing"  #: the agent ends processes that hold the TPU
    PREFLIGHT = "preflight"  #: the agent checks devices and hosts
    RUNNING = "running"
    STOPPING = "stopping"  #: the agent ends the program
    EXITED = "exited"

    def __str__(self) -> str:
        return str(self.value)

    def __format__(self, form: str) -> str:
        return format(str(self.value), form)


PREEMPTED = "preempted"
MAINTENANCE = "maintenance"
NOTICES = ("", PREEMPTED, MAINTENANCE)


# Series --------------------------------------------------------------------------------------------------------------


#: a name's values in one bucket of steps: a single value, or the least, the greatest and the last; None: no value
Cell = Union[float, List[float], None]

MAX_ROWS, MAX_NAMES = 240, 8  #: most rows and names that an agent writes
MAX_SERIES, MAX_SERIES_READ = 24 * 1024, 64 * 1024  #: bytes that are written, and that are read


class SeriesDocument(TypedDict):
    v: int  #: 1
    names: List[str]  #: the program's names of metrics; `loss` and `ms` belong to its steps
    #: for each bucket of steps: the last step, seconds since the epoch by the host's clock, a cell for each name
    rows: List[List[Cell]]
