"""One cause for an ended attempt: which host failed first, what its end means, and the lines that prove it.

Exit codes come first: what a program says by its code is believed. Of an end that its code does not explain, the
lines that the hosts kept may name one of the causes of a failure; they never make a success, nor a preemption.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tpujob.domain.model import Cause, End, Outcome, Proof, Verdict
from tpujob.domain.observations import Report
from tpujob.protocol import MAINTENANCE, Phase
from workloads.contract import Exit

#: how long the other hosts get to end by themselves after the first one ended badly, in seconds
SETTLE = 20.0

#: what an exit code says by itself, under the contract of `workloads/contract/`
CODES: Mapping[int, tuple[Outcome, Cause, str]] = {
    Exit.NONFINITE: (
        Outcome.FAILED,
        Cause.NONFINITE,
        "the loss is not finite, and the model or the data made it",
    ),
    Exit.DEVICE: (
        Outcome.INTERRUPTED,
        Cause.BAD_HOST,
        "the loss is not finite, and a device made it",
    ),
    Exit.INTERRUPTED: (
        Outcome.INTERRUPTED,
        Cause.PREEMPTED,
        "told to stop; the checkpoint is committed",
    ),
    Exit.CONFIG: (Outcome.FAILED, Cause.BAD_SPEC, "the program refused its configuration"),
}

#: ends that another host may have caused: a peer died, aborted, killed, terminated
CASCADE = frozenset({int(Exit.PEER), 134, 137, 143, -6, -9, -15})

LINES = 10  #: of evidence that an attempt keeps
WIDTH = 240  #: characters of one with its host


@dataclass(frozen=True, slots=True)
class Sign:
    """A line that names a cause."""

    cause: Cause
    pattern: re.Pattern[str]
    words: str


def _sign(cause: Cause, pattern: str, words: str) -> Sign:
    return Sign(cause, re.compile(pattern), words)


#: the first that matches counts, narrow ones first: a TPU that is in use shows as a failed initialization, too
SIGNS: tuple[Sign, ...] = (
    _sign(
        Cause.TPU_BUSY,
        r"Couldn't open iommu group|open\(/dev/(?:vfio|accel)|TPU is already in use|libtpu_lockfile"
        r"|libtpu multi-process lockfile|libtpu\.so (?:is )?already in use"
        r"|(?i:(?:vfio|accel|iommu|tpu).*Device or resource busy)"
        r"|(?i:Device or resource busy.*(?:vfio|accel|iommu|tpu))"
        r"|FAILED_PRECONDITION.*(?i:tpu|accelerator)",
        "another process holds the TPU",
    ),
    _sign(
        Cause.BAD_HOST,
        r"No accelerator found|Failed to initialize TPU system|TPU initialization failed"
        r"|Did you run your code on all TPU hosts|(?i:uncorrectable (?:ECC|memory) error)",
        "the TPU of this host does not come up",
    ),
    _sign(
        Cause.OOM_HBM,
        r"memory space hbm|Exceeded hbm capacity|Error allocating device buffer"
        r"|RESOURCE_EXHAUSTED.*(?i:hbm|out of memory|attempting to (?:allocate|reserve)"
        r"|trying to allocate|device memory)",
        "the memory of the TPU is too small for the program",
    ),
    _sign(
        Cause.OOM_HOST,
        r"(?:^|[.\s])_?(?:Array)?MemoryError(?::|\s*$)|std::bad_alloc|Cannot allocate memory"
        r"|\[tpujob\] the kernel killed|Out of memory: Killed process"
        r"|DataLoader worker .*killed by signal: Killed",
        "the memory of the host is too small for the program",
    ),
    _sign(
        Cause.PERMISSION,
        r"does not have storage\.\S+ (?:access|permission)|IAM_PERMISSION_DENIED",
        "the program may not do what it does",
    ),
    _sign(
        Cause.SETUP,
        r"^(?:ba)?sh: .*\bpython: (?:command )?not found$|\[tpujob\] cannot start python:",
        "there is no `python` where it runs, as Ubuntu has `python3` alone; write that",
    ),
    _sign(
        Cause.SETUP,
        r"^ModuleNotFoundError: No module named|\[tpujob\] cannot start "
        r"|^(?:ba)?sh: .*: (?:command )?not found$",
        "something that the program needs is not installed",
    ),
    _sign(Cause.CRASH, r"No space left on device", "the disk of the host is full"),
)

#: what a host prints when it failed only because another one was gone
ECHO = re.compile(
    r"PollForError|coordination service.*(?:error|unavailable|fatal|shut)|tasks? (?:is|are) unhealthy"
    r"|stopped sending heartbeats|(?i:heartbeat timeout)|(?i:barrier (?:timed out|failed))"
    r"|Connection (?:reset|closed) by (?:remote )?peer|another task (?:died|has (?:failed|crashed))"
)

#: what libraries print on every host that has no key file, whatever happens
NOISE = re.compile(r"google_auth_provider|Could not find the credentials file")

_TRACEBACK = "Traceback (most recent call last)"


def ended(reports: Sequence[Report], hosts: int) -> End | None:
    """How the attempt ended; None while it goes on, or while hosts still have time to end by themselves."""
    done = [r for r in reports if r.phase == Phase.EXITED]
    bad = _bad(reports)
    if not bad:
        if len(done) == hosts:
            return End(Outcome.SUCCEEDED, None, None, f"exit code 0 on {_all(hosts)}")
        return None
    # the others only wait for it; of hosts that were late, another one may know why
    early = any(r.unreached or (r.error_cause is Cause.PREFLIGHT and not r.late) for r in bad)
    if len(done) < hosts and max(r.age for r in bad) < SETTLE and not early:
        return None
    return _blame(bad, reports)


def witnesses(reports: Sequence[Report]) -> list[Report]:
    """The hosts whose lines are worth reading, the likeliest culprit first: those that ended badly; when none did,
    those that do not go on, the one that is furthest behind first."""
    silent = (0, int(Exit.INTERRUPTED))
    bad = sorted((r for r in _bad(reports) if r.exit_code not in silent), key=_guilt)
    running = [r for r in reports if r.phase == Phase.RUNNING]
    return bad or sorted(running, key=lambda r: (r.progress.step or 0, -(r.idle or 0.0), r.host))


def saved_words(reports: Sequence[Report]) -> str:
    """What a program that was told to stop could still save, as far as it said so; empty: it said nothing."""
    steps = [r.progress for r in reports if r.progress.step is not None]
    if not steps:
        return ""
    reached = max(p.step or 0 for p in steps)
    kept = max((p.checkpoint for p in steps if p.checkpoint is not None), default=None)
    times = [r.saved_in for r in reports if r.saved_in is not None]
    if times and kept is not None:
        return f"saved step {kept} in {max(times):.0f} s"
    lost = reached - (kept or 0)
    if lost <= 0:
        return f"step {reached} was saved"
    return f"not saved, {lost} {'step' if lost == 1 else 'steps'} lost"


def sign_of(lines: Sequence[str]) -> tuple[Sign, list[str]] | None:
    """The cause that these lines name, and those that do; None: they name none."""
    for sign in SIGNS:
        found = [line for line in lines if sign.pattern.search(line)]
        if found:
            return sign, found
    return None


def _bad(reports: Sequence[Report]) -> list[Report]:
    return [r for r in reports if r.phase == Phase.EXITED and (r.exit_code != 0 or r.error_cause)]


def _blame(bad: Sequence[Report], reports: Sequence[Report]) -> End:
    ordered = sorted(bad, key=_guilt)
    first = ordered[0]
    code = _code(first)
    notice = next((r.notice for r in reports if r.notice), "")
    if first.error_cause:
        message = f"host {first.host}: {first.error}"
        proof = _proof(first, (), ordered)
        return End(
            Outcome.FAILED,
            first.error_cause,
            first.host,
            message,
            proof,
            _verdict(ordered),
            unreached=first.unreached,
            late=first.late,
        )
    if notice and (code in CASCADE or code == Exit.INTERRUPTED):
        cause = Cause.MAINTENANCE if notice == MAINTENANCE else Cause.PREEMPTED
        word = "preempted" if cause is Cause.PREEMPTED else "taken for maintenance"
        plain = (
            "saved" if code == Exit.INTERRUPTED else f"the program was stopped ({_ending(code)})"
        )
        message = f"the slice was {word}; {saved_words(reports) or plain}"
        return End(Outcome.INTERRUPTED, cause, None, message, _notices(reports))
    if code in CODES:
        outcome, cause, words = CODES[code]
        verdict = _verdict(ordered) or _JUDGED.get(code)
        message = f"host {first.host}: {words} ({_ending(code)})"
        host = first.host
        if verdict and verdict.text:
            host = first.host if verdict.host is None else verdict.host
            message = f"{verdict.text} ({_ending(code)})"
        return End(outcome, cause, host, message, _proof(first, (), ordered), verdict)
    return _explain(ordered)


#: what the code itself says, of a program that left no verdict
_JUDGED: Mapping[int, Verdict] = {
    Exit.NONFINITE: Verdict(blame="model or data"),
    Exit.DEVICE: Verdict(blame="device"),
}


def _verdict(ordered: Sequence[Report]) -> Verdict | None:
    """The most specific verdict that the program left; of equals, the likeliest culprit's."""
    told = [r.verdict for r in ordered if r.verdict]
    return max(
        told, key=lambda v: (v.blame != "", v.host is not None, v.step is not None), default=None
    )


def _explain(ordered: Sequence[Report]) -> End:
    """The end of a program that its exit code does not explain. An echo may hide the line that does, on any host."""
    for report in ordered:
        found = None if report.error_cause or _code(report) in CODES else sign_of(report.evidence)
        if found:
            sign, lines = found
            message = f"host {report.host}: {sign.words} ({_ending(_code(report))})"
            proof = _proof(report, lines, ordered)
            return End(Outcome.FAILED, sign.cause, report.host, message, proof)
    first = ordered[0]
    message = f"host {first.host}: {_ending(_code(first))}"
    error = _last_error(first.evidence)
    if error:
        message += f", {error[:100]}"
    return End(Outcome.FAILED, Cause.CRASH, first.host, message, _proof(first, (), ordered))


def _guilt(report: Report) -> tuple[int, float, int]:
    """Orders the culprit first: an end of its own before a cascade, the earlier before the later."""
    return (_rank(report), -report.age, report.host)


def _rank(report: Report) -> int:
    if report.unreached:  # which is why the others were late
        return -1
    if report.error_cause:
        return 1 if report.late else 0
    code = _code(report)
    if code == Exit.INTERRUPTED:
        return 1
    if code in CODES:
        return 0
    if report.notice and code in CASCADE:  # told, then killed: its lines prove nothing more
        return 2
    if sign_of(report.evidence):
        return 0
    return 2 if code in CASCADE or _is_echo(report.evidence) else 0


def _is_echo(lines: Sequence[str]) -> bool:
    error = _last_error(lines)
    return any(ECHO.search(line) for line in ([error] if error else lines))


# Evidence ------------------------------------------------------------------------------------------------------------


def _proof(culprit: Report, named: Sequence[str], ordered: Sequence[Report]) -> tuple[Proof, ...]:
    """The lines that prove the cause, then how the other hosts followed."""
    lines = list(dict.fromkeys(named))[-4:] or _last_words(culprit.evidence)
    own = [proof(culprit.host, line) for line in lines]
    others = [r for r in ordered if r.host != culprit.host]
    room = max(1, LINES - len(own) - 1)
    after = [proof(r.host, f"ended too: {_ending(_code(r))}") for r in others[:room]]
    left = len(others) - room
    more = [Proof(None, f"{left} more hosts ended too")] if left > 0 else []
    return (*own, *after, *more)


def _notices(reports: Sequence[Report]) -> tuple[Proof, ...]:
    """What the hosts were told before they ended."""
    told = [proof(r.host, f"the metadata server said: {r.notice}") for r in reports if r.notice]
    more = [Proof(None, f"{len(told) - 3} more hosts were told so")] if len(told) > 3 else []
    return (*told[:3], *more)


def _last_words(lines: Sequence[str]) -> list[str]:
    """The end of the last traceback, or of everything."""
    traceback = _traceback(lines)
    plain = [line for line in lines if line.strip() and not NOISE.search(line)]
    return (traceback or plain)[-6:]


def _traceback(lines: Sequence[str]) -> list[str]:
    """The last traceback, up to the line that names its error."""
    starts = [i for i, line in enumerate(lines) if line.startswith(_TRACEBACK)]
    if not starts:
        return []
    rest = lines[starts[-1] + 1 :]
    length = next((i for i, line in enumerate(rest) if line and not line[0].isspace()), len(rest))
    return [lines[starts[-1]], *rest[: length + 1]]


def _last_error(lines: Sequence[str]) -> str:
    """The line that names the last traceback's error; empty without one."""
    traceback = _traceback(lines)
    return traceback[-1] if traceback and not traceback[-1][:1].isspace() else ""


def proof(host: int, text: str) -> Proof:
    """A line of evidence, cut to its width."""
    return Proof(host, text[: WIDTH - len(str(Proof(host, "")))])


def _code(report: Report) -> int:
    return report.exit_code if report.exit_code is not None else int(Exit.ERROR)


def _ending(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


def _all(hosts: int) -> str:
    return "the only host" if hosts == 1 else f"all {hosts} hosts"
