"""What the attempts of a job hold against machines, and whether that is proved. Pure.

A device that computes something else than the reference accuses itself. Any other failure that looks like the machine's
stays open until a contradiction decides: the same program goes on elsewhere, or fails in the same way there, too.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from tpujob.domain.failures import nonfinite
from tpujob.domain.failures.host_reputation import NAMED, ONE_OF_SEVERAL
from tpujob.domain.model import Accusation, Attempt, Cause, End, Job, Outcome, Standing

#: number of attempts with the same failure, on at least two machines, that show that the program is the cause
ATTEMPTS = 3

#: an accusation with the machines that it is against
Charge = tuple[tuple[str, ...], Accusation]


def accusations(job: Job, physical: Sequence[str], now: float) -> list[Charge]:
    """Return the accusations that follow from the record. `physical`: the machines of the newest attempt; by default
    those in its record. Machines without a name are not accused."""
    if job.attempt is None:
        return []
    newest = job.attempt
    newest = replace(newest, physical=tuple(physical) if any(physical) else newest.physical)
    charges: list[Charge] = []
    for attempt in job.attempts:
        if _is_suspicious(attempt):
            standing = _standing(job, attempt, newest)
            text = attempt.verdict.text if attempt.verdict else ""
            machine = _machine(attempt)
            charges.append(_charge(job, attempt, [machine], standing, text or attempt.message, now))
    for earlier in nonfinite.unexplained(job):
        if nonfinite.passed(newest, earlier.verdict) and _is_elsewhere(earlier, newest):
            step = earlier.verdict.step if earlier.verdict else None
            at = "" if step is None else f" at step {step}"
            text = f"not finite{at}; the step passed on other hardware"
            charges.append(_charge(job, earlier, earlier.physical, Standing.PROVED, text, now))
    return [charge for charge in charges if charge[0]]


def as_failure_of_program(job: Job, end: End) -> End:
    """Return the end of the newest attempt as that of its program, if it looks like the machine's and was the same on
    other machines. Else return it unchanged."""
    if job.attempt is None or end.cause is not Cause.BAD_HOST or end.verdict or end.host is None:
        return end
    this = replace(job.attempt, physical=end.physical, host=end.host, cause=end.cause)
    before = [a for a in job.attempts[:-1] if a.started_at >= job.fresh_at and _is_suspicious(a)]
    alike = [a for a in before if a.everywhere or _standing(job, a, this) is Standing.OPEN]
    tries, count = len(alike) + 1, len({_machine(a) or a.slice for a in (*alike, this)})
    if (tries < ATTEMPTS or count < 2) and not any(a.everywhere for a in alike):
        return end
    often = "" if count == tries else f" in {tries} attempts"
    why = f"; the same failure{often} on {count} machines: the program is the cause"
    detail = end.detail + why if end.detail else ""
    return replace(
        end, cause=Cause.CRASH, message=end.message + why, detail=detail, everywhere=True
    )


def _is_suspicious(attempt: Attempt) -> bool:
    return attempt.cause is Cause.BAD_HOST or attempt.everywhere


def _standing(job: Job, attempt: Attempt, newest: Attempt) -> Standing:
    """Return whether the failure of an attempt is proved to be its machine's. `newest`: as it is known now."""
    verdict = attempt.verdict
    alone = len(attempt.physical) == 1
    if verdict and verdict.blame == "device" and (alone or verdict.host is not None):
        return Standing.PROVED
    later = [a for a in (*job.attempts[:-1], newest) if a.number > attempt.number]
    if attempt.everywhere or any(a.everywhere for a in later):
        return Standing.REFUTED
    return Standing.PROVED if any(_went_on(a, attempt) for a in later) else Standing.OPEN


def _went_on(later: Attempt, failed: Attempt) -> bool:
    """Return whether a later attempt got further than the failed one on other machines. Beyond a step that the failed
    one had made, only the later one's end shows that it did not fail in the same way."""
    if _is_suspicious(later) or not _is_elsewhere(failed, later):
        return False
    step, reached = failed.progress.step, later.progress.step
    further = reached is not None and (step is None or (reached > step and later.ended_at))
    return later.outcome is Outcome.SUCCEEDED or bool(further)


def _is_elsewhere(earlier: Attempt, later: Attempt) -> bool:
    return nonfinite.elsewhere(earlier, later.slice, later.physical)


def _machine(attempt: Attempt) -> str:
    """Return the machine that an attempt accuses; empty: its name is unknown."""
    verdict = attempt.verdict
    host = verdict.host if verdict and verdict.host is not None else attempt.host
    has_name = host is not None and host < len(attempt.physical)
    return attempt.physical[host] if has_name and host is not None else ""


def _charge(
    job: Job, attempt: Attempt, machines: Sequence[str], standing: Standing, text: str, now: float
) -> Charge:
    named = tuple(dict.fromkeys(machine for machine in machines if machine))
    return named, Accusation(
        job=job.id,
        attempt=attempt.number,
        owner=job.owner,
        program=_program(job),
        zone=next((s.zone for s in job.slices if s.name == attempt.slice), ""),
        standing=standing,
        weight=NAMED if len(named) == 1 else ONE_OF_SEVERAL,
        text=text[:200],
        at=now,
    )


def _program(job: Job) -> tuple[str, ...]:
    """Return names of the job's code: its group, its bundles, and its command without arguments."""
    run = job.spec.run
    words = " ".join((run.workload or run.command or "").split()[:2])
    command = hashlib.sha256(words.encode(errors="surrogatepass")).hexdigest()[:16]
    return (*([job.group] if job.group else ()), *job.bundles, command)
