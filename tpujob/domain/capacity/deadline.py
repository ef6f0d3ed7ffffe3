"""Deadlines: on which terms a job may hold a slice so that it ends in time at the least cost. Pure.

Uniform Progress with a safety net ("Can't Be Late", NSDI 24), and nothing tuned beyond it. A *line* leads from no work
at the job's start to all of it at its deadline. A slice that the cloud may take back is used wherever there is one. A
safe one is used while there is none and the work is behind the line. Once the time left is no more than the work left
and two starts (one may be lost with a preempted slice), a safe one is used to the end: this is the net.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from tpujob.domain.capacity.offers import Offer
from tpujob.domain.hardware.pricing import find_pricing
from tpujob.domain.model import Job, Slice
from tpujob.domain.pace import seconds_per_step
from tpujob.domain.progress import job_progress


class Terms(Enum):
    """The slices that a job may request now."""

    CHEAP = "cheap"  #: only such as may be preempted
    EITHER = "either"  #: the same first; safe ones where there is none now
    SAFE = "safe"  #: safe ones first; others where there is none now


@dataclass(frozen=True, slots=True)
class JobDeadline:
    """The facts of a job with a deadline. Times are seconds."""

    finish_by: float
    since: float  #: start of the line
    work: float  #: of the whole job
    left: float  #: work after the last kept checkpoint
    start: float  #: from a ready slice to its first step
    wait: float = 0.0  #: from the need of a safe slice until it is ready, refusals included
    lost: float = 0.0  #: work that the loss of a slice costs

    @property
    def latest(self) -> float:
        """When a safe slice must be requested at the latest."""
        return self.finish_by - self.left - 2 * self.start - self.wait - self.lost

    @property
    def last_start(self) -> float:
        """When a safe slice must be requested at the latest if no other start is lost before it."""
        return self.latest + self.start

    def line(self, now: float) -> float:
        """Return the work that may be left at a time."""
        return self.work * (self.finish_by - now) / max(1.0, self.finish_by - self.since)

    @property
    def behind_at(self) -> float:
        """When the work falls behind the line if none is done."""
        return self.finish_by - self.left * (self.finish_by - self.since) / max(1.0, self.work)

    def terms(self, now: float) -> Terms:
        """Return what a job without a slice may request."""
        if now >= self.latest:
            return Terms.SAFE
        return Terms.EITHER if self.left > self.line(now) else Terms.CHEAP

    def may_wait(self, now: float) -> bool:
        """Return whether a job may give up a safe slice although no other is there: it stays ahead of the line for two
        starts, and more work is left than these take, so that another start pays."""
        ahead = self.left <= self.line(now + 2 * self.start)
        return now < self.latest and ahead and self.left > 2 * self.start


def in_order(offers: Sequence[Offer], terms: Terms) -> tuple[Offer, ...]:
    """Return the offers that the terms allow, in the order in which they are requested. Where the job has none of the
    allowed ones, it may request the others."""
    cheap = [offer for offer in offers if preemptible(offer)]
    safe = [offer for offer in offers if not preemptible(offer)]
    match terms:
        case Terms.CHEAP:
            return tuple(cheap or safe)
        case Terms.EITHER:
            return (*cheap, *safe)
        case Terms.SAFE:
            return (*safe, *cheap)


def preemptible(target: Offer | Slice) -> bool:
    return find_pricing(target.pricing).preemptible


# Of a job ------------------------------------------------------------------------------------------------------------


def deadline_of(job: Job) -> JobDeadline | None:
    """Return the facts of a job's deadline; None: it has none. Work counts up to the newest checkpoint that is kept; of
    a program whose steps are not known, none does."""
    expected, finish_by = job.expected, job.spec.finish_by
    if expected is None or finish_by is None:
        return None
    done = job_progress(job)
    steps = None if done.found else done.steps or expected.steps
    paces = (seconds_per_step(attempt) for attempt in reversed(job.attempts))
    pace = next((pace for pace in paces if pace is not None), None)
    work = steps * pace if steps and pace else expected.work
    kept = min(1.0, (done.checkpoint or 0) / steps) if steps else 0.0
    since = max(job.created_at, job.spec.not_before or 0.0)
    return JobDeadline(
        finish_by, since, work, work * (1 - kept), expected.start, expected.wait, expected.lost
    )


def requestable(job: Job, offers: Sequence[Offer], now: float) -> tuple[Offer, ...]:
    """Return those of its offers that a job without a slice may request now, in order."""
    deadline = deadline_of(job)
    return tuple(offers) if deadline is None else in_order(offers, deadline.terms(now))


def changes_in(job: Job, now: float) -> float | None:
    """Return the seconds until other terms hold for a job without a slice, or until its deadline; None: never."""
    deadline = None if job.state.final else deadline_of(job)
    if deadline is None:
        return None
    behind = deadline.behind_at + 1.0  # when rounding hides it no longer
    times = (behind, deadline.latest, deadline.last_start, deadline.finish_by)
    return min((at - now for at in times if at > now), default=None)
