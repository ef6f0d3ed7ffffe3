"""Reads agents' reports from the bucket. Programs can write there too, so values of a wrong type are ignored."""

import json
import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Protocol, cast, get_args

from tpujob.contract import Blame
from tpujob.domain.model import (
    Cause,
    FoundProgress,
    Job,
    NonfiniteLoss,
    Progress,
    Unreached,
    Verdict,
)
from tpujob.domain.observations import HostOutputs, HostReport, Maintenance, OutputLine
from tpujob.domain.text import clean, one_line, seconds
from tpujob.protocol import (
    NONFINITE_LOSSES,
    NOTICES,
    VERSIONS,
    Phase,
    ReportDocument,
    VerdictDocument,
    limits,
    paths,
    signing,
)
from tpujob.protocol.limits import MAX_CHECKPOINTS, MAX_EMPTY

#: a phase or notice that may require a decision
_TURNS = re.compile(rf'"(?:{"|".join((Phase.STOPPING, Phase.EXITED, *filter(None, NOTICES)))})"')

#: the values of `EvidenceLine.part`
PARTS = frozenset({"frame", "error", "more", "cause"})

_YEAR_9999 = 253_370_764_800

_PHASES = {phase.value: phase for phase in Phase}


class ReportObject(Protocol):
    """The part of an object in the bucket that a report needs."""

    @property
    def path(self) -> str: ...
    @property
    def generation(self) -> int: ...
    @property
    def updated(self) -> float: ...
    @property
    def metadata(self) -> Mapping[str, str]: ...


def reports_prefix(job: Job) -> str:
    """Return the prefix of the paths of the newest attempt's reports."""
    assert job.attempt is not None, f"job {job.id} has no attempt in state {job.state}"
    return paths.reports_prefix(job.workdir, job.attempt.number)


def signals(metadata: Mapping[str, str]) -> tuple[str, ...]:
    """Return the words in the metadata that may require a decision: an unverified hint to tick the job earlier."""
    return tuple(word for text in metadata.values() for word in _TURNS.findall(text))


def host_of(job: Job, path: str) -> int | None:
    """Return the host whose report has that path; None: no report of the newest attempt has it."""
    prefix = reports_prefix(job)
    number = path.removeprefix(prefix)
    fits = path.startswith(prefix) and re.fullmatch(r"0|[1-9][0-9]{0,5}", number)
    return int(number) if fits else None


def verified_report(
    job: Job, host: int, metadata: Mapping[str, str], key: str
) -> tuple[HostReport, float | None] | None:
    """Return the report in an object's metadata, without its age, and its time by the storage's clock (None: unknown).
    None if it is not of that host of the newest attempt, or not signed with `key`."""
    text = metadata.get("report", "")
    if not signing.verify(key, metadata.get("mac"), "report", text):
        return None
    job_id, report, at = read_report(host, text)
    newest = job.attempt.number if job.attempt else None
    return (report, at) if report and report.attempt == newest and job_id == job.id else None


@lru_cache(maxsize=4096)  # a tick comes several times as often as a new report
def read_report(host: int, text: str) -> tuple[object, HostReport | None, float | None]:
    """Return the job, the report without its age, and the report's time in a text. The report is None if it is not one
    of `host`; values of a wrong type are ignored."""
    document = cast(ReportDocument, _loads(text))  # its values may have any type
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
        kernel_kills=_whole(document.get("kernel_kills")) or 0,
        notice=notice if notice in NOTICES else "",
        maintenance=_maintenance(document.get("maintenance")),
        saved_in=number(document.get("saved_in")),
        progress=_progress(document),
        checkpoints=_steps(document.get("checkpoints")),
        outputs=_outputs(document.get("outputs")),
        idle=number(document.get("idle")),
        looks=_whole(document.get("looks")) or 0,
        verdict=_verdict(document.get("verdict")),
        physical=_text(document.get("physical")),
        versions=_versions(document.get("versions")),
        last_error=_text(document.get("last_error")),
        seq=_whole(document.get("seq")) or 0,
        proven=_text(document.get("evidence")),
    )


def _versions(value: object) -> dict[str, str]:
    versions = _mapping(value)
    texts = {name: _text(versions.get(name)) for name in VERSIONS}
    return {name: version for name, version in texts.items() if version}


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


def _outputs(value: object) -> HostOutputs | None:
    document = _mapping(value)
    if not document:
        return None
    folders = document.get("empty")
    names = cast(list[object], folders if isinstance(folders, list) else [])
    return HostOutputs(
        restored=max(0, _whole(document.get("restored")) or 0),
        left_out=max(0, _whole(document.get("left_out")) or 0),
        empty=tuple(filter(None, map(_text, names[:MAX_EMPTY]))),
    )


def _steps(value: object) -> tuple[int, ...]:
    listed = cast(list[object], value if isinstance(value, list) else [])
    steps = (_whole(step) for step in listed[-MAX_CHECKPOINTS:])
    return tuple(step for step in steps if step is not None)


def read_evidence(body: bytes, signed: str = "") -> tuple[OutputLine, ...]:
    """Return the last lines of a failed program from a report's body; empty: none, or their hash is not `signed`."""
    first = body[: limits.MAX_EVIDENCE_READ].partition(b"\n")[0]
    if signed and signing.digest(first) != signed:
        return ()
    text = first.decode("utf-8", "replace")
    value = _loads(text).get("lines")
    lines = cast(list[object], value) if isinstance(value, list) else []
    read = [_output_line(_mapping(line)) for line in lines[-limits.MAX_EVIDENCE_LINES_READ :]]
    return tuple(line for line in read if line.text)


def _output_line(document: Mapping[str, object]) -> OutputLine:
    text, part = document.get("text"), document.get("part")
    return OutputLine(
        text=clean(text[: limits.MAX_TEXT]).rstrip() if isinstance(text, str) else "",
        ago=number(document.get("ago")) or 0.0,
        later=_whole(document.get("later")) or 0,
        stepped=document.get("stepped") is True,
        part=part if isinstance(part, str) and part in PARTS else "",
    )


def _progress(document: ReportDocument) -> Progress:
    return Progress(
        step=_whole(document.get("step")),
        steps=_whole(document.get("steps")),
        loss=number(document.get("loss")),
        nonfinite=_nonfinite(document.get("nonfinite")),
        phase=_text(document.get("program_phase")),
        checkpoint=_whole(document.get("checkpoint")),
        resumed_from=_whole(document.get("resumed_from")),
        first_step=_whole(document.get("first_step")),
        metrics=_metrics(document.get("metrics")),
        found=_found(document.get("found")),
    )


def _metrics(value: object) -> dict[str, float | None]:
    metrics = _mapping(value)
    numbers = {_text(name): number(value) for name, value in metrics.items()}
    bad = {_text(name) for name, value in metrics.items() if value in NONFINITE_LOSSES}
    valid = [(name, value) for name, value in numbers.items() if value is not None or name in bad]
    return dict(valid[: limits.MAX_METRICS])


def _found(value: object) -> FoundProgress | None:
    document = _mapping(value)
    loss = document.get("loss")
    found = FoundProgress(
        step=_whole(document.get("step")),
        steps=_whole(document.get("steps")),
        loss=number(loss),
        nonfinite=loss if isinstance(loss, str) and loss in NONFINITE_LOSSES else "",
        step_s=number(document.get("step_s")),
        metrics=_metrics(document.get("metrics")),
    )
    return None if found == FoundProgress() else found


def _nonfinite(value: object) -> NonfiniteLoss | None:
    document = _mapping(value)
    loss = _text(document.get("loss"))
    known = loss in NONFINITE_LOSSES
    return NonfiniteLoss(loss, _whole(document.get("since"))) if known else None


# Untrusted values ----------------------------------------------------------------------------------------------------


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
    """Return a finite number up to 1e300; None: any other value."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > 1e300:
        return None
    return float(value) if math.isfinite(value) else None


def _time(value: object) -> float | None:
    """Return the seconds of a time by RFC 3339; without a zone the time is UTC."""
    at = seconds(_text(value))
    return at if at is not None and 0 < at < _YEAR_9999 else None


def _text(value: object) -> str:
    """Return one line that is safe to show."""
    return one_line(value, limits.MAX_TEXT) if isinstance(value, str) else ""
