"""Whether the program is started again at all: its number of starts, its progress, and ends that another start would
repeat. Pure. The retry budgets of causes are in `retry.py`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from signal import SIGTERM

from tpujob.domain.model import Attempt, Cause, End, Job, Progress
from tpujob.domain.observations import HostReport, Unknown
from tpujob.domain.text import many
from tpujob.protocol import Phase

#: causes for which a person or a limit stops a program. Only a request of a person starts it again.
STOPPED = (Cause.CANCELLED, Cause.BUDGET, Cause.TIME_LIMIT)
#: causes for which a program is stopped that may have succeeded before that
OVERTAKEN = (*STOPPED, Cause.GAVE_WAY, Cause.PLANNED_END)

#: exit codes of commands that cannot start, and their meaning
UNUSABLE: Mapping[int, str] = {
    2: "a usage error, such as a wrong option or a missing file",
    126: "the command cannot be executed",
    127: "the command was not found",
}
#: seconds after which a program works: its exit code 2 is no usage error, and its command was there
WORKS = 120.0


def may_have_started(job: Job, reports: Sequence[HostReport] | Unknown) -> bool:
    """Return whether the program of the newest attempt, which ends, may have been started on a host. A host reports its
    start at once, so one that reports none has not started it."""
    stored = job.attempt is not None and job.attempt.running_at is not None
    return isinstance(reports, Unknown) or stored or any(map(_started, reports))


def _started(report: HostReport) -> bool:
    if report.phase != Phase.EXITED:
        return report.phase in (Phase.RUNNING, Phase.STOPPING)
    # an agent that is stopped before its program reports SIGTERM, and no time of the program
    return report.ran is not None or report.exit_code not in (None, -SIGTERM)


def count_starts(job: Job) -> int:
    """Return how often the program may have been started since a person last had it started again."""
    count = 0
    for attempt in job.attempts:
        if attempt.cause in STOPPED or attempt.started_at < job.fresh_at:
            count = 0
        elif attempt.started:
            count += 1
    return count


def why_no_more(job: Job, end: End, reports: Sequence[HostReport], now: float) -> str:
    """Return why the program is not started again after the newest attempt, which ends now; empty: it may be."""
    limit = job.spec.recovery.attempts
    ended = replace(job.attempts[-1], started=end.started)
    if limit is not None and count_starts(_with_newest(job, ended)) >= limit:
        return f"`recovery.attempts` allows {many(limit, 'start')} of the program, all used"
    return _why_repeated(job, end, reports, now)


def _with_newest(job: Job, attempt: Attempt) -> Job:
    return replace(job, attempts=(*job.attempts[:-1], attempt))


def _why_repeated(job: Job, end: End, reports: Sequence[HostReport], now: float) -> str:
    """Return why another start would end in the same way. All hosts have ended alike and without a step, and no attempt
    shows that the command works."""
    codes = {r.exit_code for r in reports}
    code = codes.pop() if len(codes) == 1 and len(reports) == job.hosts else None
    if code is None or end.cause not in (Cause.CRASH, Cause.SETUP):
        return ""
    *earlier, newest = job.attempts
    began = end.running_at if newest.running_at is None else newest.running_at
    stepped = any(r.progress.step is not None for r in reports)
    if stepped or any(_worked(a, a.running_at, a.ended_at) for a in earlier):
        return ""
    if code in UNUSABLE and not (code == 2 and _worked(newest, began, now)):
        return f"exit code {code} is not retried: {UNUSABLE[code]}"
    # of a program, as the agent's set-up has no exit code
    missing = end.cause is Cause.SETUP and code not in UNUSABLE
    return "not retried: another start would lack the same" if missing else ""


def _worked(attempt: Attempt, began: float | None, ended: float | None) -> bool:
    ran = ended - began if began is not None and ended is not None else 0.0
    return attempt.progress.step is not None or ran > WORKS


def has_advanced(job: Job, end: End) -> bool:
    """Return whether the newest attempt, which ends now, got to a later step or checkpoint than all before it."""
    now, before = end.progress or Progress(), [a.progress for a in job.attempts[:-1]]
    return _exceeds(now.step, [p.step for p in before]) or _exceeds(
        now.checkpoint, [p.checkpoint for p in before]
    )


def _exceeds(step: int | None, earlier: Iterable[int | None]) -> bool:
    return step is not None and all(e is None or step > e for e in earlier)
