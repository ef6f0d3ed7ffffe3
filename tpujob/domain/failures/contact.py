"""Signs of life of the hosts of an attempt: which hosts are asked over SSH, and which may be lost. Pure.

A host that dies ends the programs of the other hosts within seconds or minutes, before its own silence proves anything.
So an end counts only once every other host has given a sign of life since: a report, or an answer over SSH.
"""

from collections.abc import Mapping, Sequence

from tpujob.domain.failures import stall, triage
from tpujob.domain.failures.retry import due_at
from tpujob.domain.model import Job, State
from tpujob.domain.observations import HostReport
from tpujob.protocol import Phase

#: seconds after which every host of a new slice must answer over SSH
BOOTED = 1200.0


def to_ask(
    job: Job,
    reports: Sequence[HostReport],
    answered: Mapping[int, float],
    every: float,
    now: float,
) -> frozenset[int]:
    """Return the hosts of which a sign of life is missing. `answered`: seconds since hosts last answered over SSH;
    `every`: seconds between two reports."""
    late = stall.LATELY * stall.pace(every)
    unheard = unreported(job, reports, now) if job.state is State.PREPARING else []
    patience = 0.0 if starts_again(job) else BOOTED
    awaited = [*reports, *(r for r in unheard if r.age > patience)]
    quiet = {r.host for r in awaited if r.phase != Phase.EXITED and r.age > late}
    stopping = job.state is State.HOLDING
    return frozenset(quiet) if stopping else in_doubt(reports, job.hosts, answered) | quiet


def in_doubt(
    reports: Sequence[HostReport], hosts: int, answered: Mapping[int, float]
) -> frozenset[int]:
    """Return the hosts that may be lost: the program of another host has failed, and they have given no sign of life
    since that failure could be judged."""
    since = triage.judged_for(reports)
    if since is None:
        return frozenset()
    alive = {r.host for r in reports if r.phase == Phase.EXITED or r.age <= since}
    alive |= {host for host, seconds in answered.items() if seconds <= since}
    return frozenset(range(hosts)) - alive


def starts_again(job: Job) -> bool:
    """Return whether the program is being started on a slice where it ran before, so that all hosts should answer. On a
    new slice, hosts may not be ready for SSH yet."""
    newest = job.attempt
    before = (a for a in job.attempts[:-1] if newest and a.slice == newest.slice)
    return job.state is State.PREPARING and any(a.running_at is not None for a in before)


def unreported(job: Job, reports: Sequence[HostReport], now: float) -> list[HostReport]:
    """Return reports that stand for the hosts without one, as old as the start of the newest attempt."""
    missing = sorted(set(range(job.hosts)) - {r.host for r in reports})
    if job.attempt is None:
        return []
    age = now - max(job.attempt.started_at, due_at(job.wake, now))
    return [HostReport(host, job.attempt.number, Phase.FETCHING, age) for host in missing]
