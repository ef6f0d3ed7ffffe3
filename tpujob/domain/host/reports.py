"""Reads what agents say in the bucket. A program may write there too: a value of a wrong kind is passed over."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Protocol, cast, get_args

from tpujob.domain.model import Cause, Job, Progress, Unreached, Verdict
from tpujob.domain.observations import HostReport, Maintenance
from tpujob.domain.text import clean, one_line, seconds
from tpujob.protocol import (
    NOTICES,
    VERSIONS,
    Phase,
    ReportDocument,
    VerdictDocument,
    limits,
    old_slice_report,
    paths,
    signing,
)
from workloads.contract import Blame

#: such a word, or what an object of an old agent says of the phases or notices of all hosts
_TURNS = re.compile(
    rf'"(?:{"|".join((Phase.STOPPING, Phase.EXITED, *filter(None, NOTICES)))})"'
    r'|"(?:phase|notice)":\{[^{}]*(?:\{[^{}]*\})?[^{}]*\}'
)

#: the `proven` of a report from an object with the reports of many hosts, whose body has a signature of its own
OF_SLICE = "slice"

_YEAR_9999 = 253_370_764_800

_PHASES = {phase.value: phase for phase in Phase}


class ReportObject(Protocol):
    """As much of an object in the bucket as a report needs."""

    @property
    def path(self) -> str: ...
    @property
    def generation(self) -> int: ...
    @property
    def updated(self) -> float: ...
    @property
    def metadata(self) -> Mapping[str, str]: ...


def reports_prefix(job: Job) -> str:
    """What the report paths of the newest attempt begin with."""
    assert job.attempt is not None, f"job {job.id} has no attempt in state {job.state}"
    return paths.reports_prefix(job.workdir, job.attempt.number)


def turns(metadata: Mapping[str, str]) -> tuple[str, ...]:
    """Return the words in it that may require a decision: an unverified hint to tick the job earlier."""
    return tuple(word for text in metadata.values() for word in _TURNS.findall(text))


def host_of(job: Job, path: str) -> int | None:
    """Return the host whose report has that path; None: it is not the path of a report of the newest attempt."""
    prefix = reports_prefix(job)
    number = path.removeprefix(prefix)
    fits = path.startswith(prefix) and re.fullmatch(r"0|[1-9][0-9]{0,5}", number)
    return int(number) if fits else None


def verified_report(
    job: Job, host: int, metadata: Mapping[str, str], key: str
) -> tuple[HostReport, float | None] | None:
    """Return the report in an object's metadata, without its age, and when it was made, by the storage's clock (None:
    unknown). None when it is not of that host of the newest attempt, or not signed with `key`."""
    text = metadata.get("report", "")
    if not signing.verify(key, metadata.get("mac"), "report", text):
        return None
    job_id, report, at = _read(host, text)
    newest = job.attempt.number if job.attempt else None
    return (report, at) if report and report.attempt == newest and job_id == job.id else None


def report_of(job: Job, host: int, document: Mapping[str, object]) -> HostReport | None:
    """Return the report in a document whose signature was verified. None when it is not of that host of the newest
    attempt."""
    report = _report(host, cast(ReportDocument, document))
    newest = job.attempt.number if job.attempt else None
    if report is None or report.attempt != newest or document.get("job") != job.id:
        return None
    return replace(report, proven=OF_SLICE)


def read_report(host: int, text: str, *, age: float) -> HostReport | None:
    """The report in a text; None when it is none of `host`. A value of a wrong kind is passed over."""
    report = _read(host, text)[1]
    return replace(report, age=age) if report else None


@lru_cache(maxsize=4096)  # a tick comes several times as often as a new report
def _read(host: int, text: str) -> tuple[object, HostReport | None, float | None]:
    """Return the job that a text names, the report in it without its age, and when that was made."""
    document = cast(ReportDocument, _loads(text))  # whose values may be of any kind
    return document.get("job"), _report(host, document), number(document.get("at"))


def _report(host: int, document: ReportDocument) -> HostReport | None:
    phase, notice = _PHASES.get(_text(document.get("phase"))), _text(document.get("notice"))
    attempt = _whole(document.get("attempt"))
    if _whole(document.get("host")) != host or attempt is None or phase is None:
        return None
    cause = _text(document.get("cause"))
    return HostReport(
        host=host,
        attempt=attempt,
        phase=phase,
        age=0.0,
        exit_code=_whole(document.get("exit_code")),
        error=_text(document.get("error")),
        error_cause=Cause(cause) if cause in Cause.__members__ else None,
        late=document.get("late") is True,
        unreached=_unreached(document.get("unreached")),
        # an agent that does not report it may have stopped its program
        signalled=document.get("signalled") is not False,
        ran=number(document.get("ran")),
        notice=notice if notice in NOTICES else "",
        maintenance=_maintenance(document.get("maintenance")),
        saved_in=number(document.get("saved_in")),
        progress=_progress(document),
        idle=number(document.get("idle")),
        looks=_whole(document.get("looks")) or 0,
        verdict=_verdict(document.get("verdict")),
        physical=_text(document.get("physical")),
        versions=_versions(document.get("versions")),
        seq=_whole(document.get("seq")) or 0,
        proven=_text(document.get("evidence")),
    )


def _versions(value: object) -> dict[str, str]:
    known = _mapping(value)
    found = {name: _text(known.get(name)) for name in VERSIONS}
    return {name: version for name, version in found.items() if version}


def _verdict(value: object) -> Verdict | None:
    if not isinstance(value, dict):
        return None
    document = cast(VerdictDocument, value)
    blame = _text(document.get("blame"))
    return Verdict(
        step=_whole(document.get("step")),
        host=_whole(document.get("host")),
        device=_text(document.get("device")),
        blame=blame if blame in get_args(Blame) else "",
        text=_text(document.get("text")),
    )


def _unreached(value: object) -> Unreached | None:
    document = _mapping(value)
    source, target, port = (_whole(document.get(name)) for name in ("source", "target", "port"))
    if source is None or target is None or port is None:
        return None
    return Unreached(source, target, port)


def _maintenance(value: object) -> Maintenance | None:
    document = _mapping(value)
    starts = _time(document.get("starts"))
    if starts is None:
        return None
    return Maintenance(
        starts=starts,
        ends=_time(document.get("ends")),
        latest=_time(document.get("latest")),
        kind=_text(document.get("kind")),
        status=_text(document.get("status")),
    )


def read_evidence(body: bytes, signed: str = "") -> tuple[str, ...]:
    """The lines that an agent kept of a bad end, from the body of its report; empty when it kept none, or when these
    are not those whose hash is `signed`."""
    first = body[: limits.MAX_EVIDENCE_READ].partition(b"\n")[0]
    if signed and signing.digest(first) != signed:
        return ()
    text = first.decode("utf-8", "replace")
    given = _loads(text).get("lines")
    lines = cast(list[object], given) if isinstance(given, list) else []
    found = [clean(line[: limits.MAX_TEXT]).rstrip() for line in lines if isinstance(line, str)]
    return tuple(line for line in found if line)[-limits.MAX_EVIDENCE_LINES_READ :]


def evidence_of(report: HostReport, body: bytes, key: str) -> tuple[str, ...]:
    """The lines of one host from the body of the object that had its report; empty when it has none, or older ones."""
    if report.proven != OF_SLICE:
        return read_evidence(body, report.proven)
    content = old_slice_report.read_slice_report(body, key)
    own = (one for one in content.reports if one.host == report.host) if content else ()
    fresh = (o.evidence for o in own if (_whole(o.document.get("seq")) or 0) >= report.seq)
    return read_evidence(next(fresh, b""))


def _progress(document: ReportDocument) -> Progress:
    metrics = _mapping(document.get("metrics"))
    numbers = {_text(name): number(value) for name, value in metrics.items()}
    known = [(name, value) for name, value in numbers.items() if value is not None]
    return Progress(
        step=_whole(document.get("step")),
        steps=_whole(document.get("steps")),
        loss=number(document.get("loss")),
        phase=_text(document.get("program_phase")),
        checkpoint=_whole(document.get("checkpoint")),
        resumed_from=_whole(document.get("resumed_from")),
        first_step=_whole(document.get("first_step")),
        metrics=dict(known[: limits.MAX_METRICS]),
    )


# Values that a stranger may have written -----------------------------------------------------------------------------


def _loads(text: str) -> dict[str, object]:
    if len(text) > limits.MAX_REPORT:
        return {}
    try:
        return _mapping(json.loads(text))
    except (ValueError, RecursionError):
        return {}


def _mapping(value: object) -> dict[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def _whole(value: object) -> int | None:
    """Return a whole number within the 64 bits that a store keeps."""
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 2**63:
        return None
    return value


def number(value: object) -> float | None:
    """A finite number, within reason."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > 1e300:
        return None
    return float(value) if math.isfinite(value) else None


def _time(value: object) -> float | None:
    """Seconds of a time by RFC 3339; without a zone it is UTC."""
    at = seconds(_text(value))
    return at if at is not None and 0 < at < _YEAR_9999 else None


def _text(value: object) -> str:
    """One line that is safe to show."""
    return one_line(value, limits.MAX_TEXT) if isinstance(value, str) else ""
