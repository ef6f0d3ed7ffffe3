"""One cause for an ended attempt: which host failed first, what its end means, and the lines that prove it.

Exit codes come first. If the code does not explain an end, lines of the hosts' output may name the cause of a failure;
they never prove a success or a preemption.
"""

from collections.abc import Mapping, Sequence

from tpujob.contract import Exit
from tpujob.domain.failures import preemption_notice
from tpujob.domain.failures.evidence import (
    STOPPED,
    code_of,
    ending,
    error_class,
    is_echo,
    last_error,
    last_line,
    proofs,
    shorten,
    sign_of,
)
from tpujob.domain.model import Cause, End, Outcome, Proof, Verdict
from tpujob.domain.observations import HostReport
from tpujob.protocol import Phase

#: seconds for which the other hosts may end by themselves after the first bad end of a host
SETTLE = 20.0

#: meaning of an exit code under the contract of `tpujob/contract/`
CODES: Mapping[int, tuple[Outcome, Cause, str]] = {
    Exit.NONFINITE: (
        Outcome.FAILED,
        Cause.NONFINITE,
        "the loss is not finite, and the model or the data is the cause",
    ),
    Exit.DEVICE: (
        Outcome.INTERRUPTED,
        Cause.BAD_HOST,
        "the loss is not finite, and a device is the cause",
    ),
    Exit.INTERRUPTED: (
        Outcome.INTERRUPTED,
        Cause.RESTART,
        "the program asked to be started again",
    ),
    Exit.CONFIG: (Outcome.FAILED, Cause.BAD_SPEC, "the program refused its configuration"),
}

#: rank of an end that another host, or the loss of the slice, may have caused
ECHOED = 2
#: ends that another host may have caused: a peer died, aborted, killed, terminated
CASCADE = frozenset({int(Exit.PEER), 134, 137, 143, -6, -9, -15})


def ended(reports: Sequence[HostReport], hosts: int) -> End | None:
    """Return how the attempt ended; None while it runs, or while hosts still have time to end by themselves."""
    done = [r for r in reports if r.phase == Phase.EXITED]
    bad = _bad(reports)
    if not bad:
        if len(done) == hosts:
            return _done(reports, hosts)
        return None
    if len(done) < hosts and max(r.age for r in bad) < SETTLE and not _is_early(bad):
        return None
    return _blame(bad, reports)


def judged_for(reports: Sequence[HostReport]) -> float | None:
    """Return the seconds for which the first bad end of a host could be judged: all of its age, or what exceeds SETTLE.
    None: no host ended badly."""
    bad = _bad(reports)
    age = max((r.age for r in bad), default=None)
    return age if age is None or _is_early(bad) else max(0.0, age - SETTLE)


def only_echoes(reports: Sequence[HostReport]) -> bool:
    """Return whether no host ended by itself: each that ended badly was stopped, or had lost another host."""
    return all(_rank(r) == ECHOED for r in _bad(reports))


def _is_early(bad: Sequence[HostReport]) -> bool:
    """Return whether an end is judged at once: the other hosts only wait for a host that failed before its program, or
    may save wrong numbers. A late host is no such case, as another one may report the reason."""
    return any(
        r.unreached
        or r.error_cause is Cause.NONFINITE
        or (r.error_cause is Cause.PREFLIGHT and not r.late)
        for r in bad
    )


def succeeded(reports: Sequence[HostReport], hosts: int) -> End | None:
    """Return the success of a program that has ended on every host, also after a request to stop it. None: it has not
    succeeded, or it ended because it was stopped."""
    done = [r for r in reports if r.phase == Phase.EXITED]
    if len(done) < hosts or not hosts or _bad(done):
        return None
    stopped = any(r.signalled or r.notice for r in done)
    if stopped and not any(preemption_notice.complete(r.progress) for r in done):
        return None
    return _success(reports, hosts)


def _success(reports: Sequence[HostReport], hosts: int) -> End:
    where = "the only host" if hosts == 1 else f"all {hosts} hosts"
    message = f"exit code 0 on {where}"
    doubtful = next((r for r in sorted(reports, key=lambda r: r.host) if r.last_error), None)
    if doubtful is None:
        return End(Outcome.SUCCEEDED, None, None, message)
    whose = "" if hosts == 1 else f" of host {doubtful.host}"
    text = f"{message}, but the last lines{whose} have an error"
    detail, error = f"{text}: {doubtful.last_error}", Proof(doubtful.host, doubtful.last_error)
    return End(Outcome.SUCCEEDED, None, None, text, detail=detail, last_error=error)


def _done(reports: Sequence[HostReport], hosts: int) -> End:
    """Return the end of a program whose hosts all exited with 0. Some trainers exit so after a notice, incomplete."""
    if preemption_notice.notice_of(reports) and not any(
        preemption_notice.complete(r.progress) for r in reports
    ):
        return preemption_notice.interrupted(reports, preemption_notice.stopped(0))
    return _success(reports, hosts)


def witnesses(reports: Sequence[HostReport]) -> list[HostReport]:
    """Return the hosts whose lines are worth reading, the likeliest culprit first: those that ended badly; if none did,
    those that still run, the one that is furthest behind first."""
    silent = (0, int(Exit.INTERRUPTED))
    bad = sorted((r for r in _bad(reports) if r.exit_code not in silent), key=_guilt)
    running = [r for r in reports if r.phase == Phase.RUNNING]
    return bad or sorted(running, key=lambda r: (r.progress.step or 0, -(r.idle or 0.0), r.host))


def _bad(reports: Sequence[HostReport]) -> list[HostReport]:
    return [r for r in reports if r.phase == Phase.EXITED and (r.exit_code != 0 or r.error_cause)]


def _blame(bad: Sequence[HostReport], reports: Sequence[HostReport]) -> End:
    ordered = sorted(bad, key=_guilt)
    first = ordered[0]
    code = code_of(first)
    if first.error_cause:
        code_text = "the program was not started" if first.exit_code is None else ending(code)
        proof = proofs(first, (), ordered)
        if first.error_cause is Cause.NONFINITE and first.progress.nonfinite:
            code_text = f"{first.progress.nonfinite} ({code_text})"
        return End(
            Outcome.FAILED,
            first.error_cause,
            first.host,
            f"host {first.host}: {code_text}",
            proof,
            _verdict(ordered),
            unreached=first.unreached,
            late=first.late,
            detail=f"host {first.host}: {first.error}",
        )
    stops = code == Exit.INTERRUPTED or is_echo(first.evidence) or _was_stopped(first)
    if preemption_notice.notice_of(reports) and stops:
        plain = "saved" if code == Exit.INTERRUPTED else preemption_notice.stopped(code)
        return preemption_notice.interrupted(reports, plain)
    if code in CODES:
        outcome, cause, words = CODES[code]
        verdict = _verdict(ordered) or _JUDGED.get(code)
        host, detail = first.host, ""
        if verdict and verdict.text:
            host = first.host if verdict.host is None else verdict.host
            detail = f"{verdict.text} ({ending(code)})"
        message = f"host {host}: {words} ({ending(code)})"
        proof = proofs(first, (), ordered)
        return End(outcome, cause, host, message, proof, verdict, detail=detail)
    return _explain(ordered)


#: the verdict by exit code of a program without a verdict of its own
_JUDGED: Mapping[int, Verdict] = {
    Exit.NONFINITE: Verdict(blame="model or data"),
    Exit.DEVICE: Verdict(blame="device"),
}


def _verdict(ordered: Sequence[HostReport]) -> Verdict | None:
    """Return the most specific verdict of the hosts; of equally specific ones, the likeliest culprit's; None: none."""
    verdicts = [r.verdict for r in ordered if r.verdict]
    return max(
        verdicts,
        key=lambda v: (v.blame != "", v.host is not None, v.step is not None),
        default=None,
    )


def _explain(ordered: Sequence[HostReport]) -> End:
    """Return the end of a program that its exit code does not explain. The line that explains it may be on any host;
    one that only waited for another host explains nothing if that host ended by itself."""
    first = ordered[0]
    for report in ordered:
        waited = report is not first and is_echo(report.evidence)
        judged = report.error_cause or code_of(report) in CODES or waited
        match = None if judged else sign_of(report)
        if match:
            sign, lines = match
            code = ending(code_of(report))
            message, detail = f"host {report.host}: {sign.words} ({code})", ""
            if lines:  # the line names what is missing, or how much memory
                line = lines[-1 if sign.cause in (Cause.PERMISSION, Cause.BAD_SPEC) else 0]
                detail = f"{shorten(line)}; {sign.words} (host {report.host}: {code})"
            proof = proofs(report, lines, ordered)
            return End(Outcome.FAILED, sign.cause, report.host, message, proof, detail=detail)
    message, detail = f"host {first.host}: {ending(code_of(first))}", ""
    error = last_error(first.evidence)
    if error:
        detail = f"{shorten(error)} ({message})"
        named = error_class(error)
        message = f"{named} ({message})" if named else message
    elif line := last_line(first.evidence):
        detail = f"{message}: {shorten(line)}"
    proof = proofs(first, (), ordered)
    return End(Outcome.FAILED, Cause.CRASH, first.host, message, proof, detail=detail)


def _guilt(report: HostReport) -> tuple[int, float, int]:
    """Return a sort key, the culprit first: an end of its own before a cascade, the earlier before the later."""
    return (_rank(report), -report.age, report.host)


def _rank(report: HostReport) -> int:
    if report.unreached:  # the reason for which other hosts are late
        return -1
    if report.error_cause:
        return 1 if report.late else 0
    code = code_of(report)
    if code == Exit.INTERRUPTED:
        return 1
    if code in CODES:
        return 0
    if report.notice and _was_stopped(report):  # after a notice its lines prove nothing
        return ECHOED
    if is_echo(report.evidence):
        return ECHOED
    failed = sign_of(report) or (last_error(report.evidence) and not _names_signal(report))
    return ECHOED if code in CASCADE and not failed else 0


def _was_stopped(report: HostReport) -> bool:
    """Return whether a signal ended the program, by its exit code or by its last error. torchrun ends with 1."""
    return code_of(report) in CASCADE or _names_signal(report)


def _names_signal(report: HostReport) -> bool:
    return bool(STOPPED.search(last_error(report.evidence)))
