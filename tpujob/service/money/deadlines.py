"""Deadlines: what is expected of a new job that has one, whether it can be kept, and its view. Pure."""

from collections.abc import Sequence
from math import ceil

from tpujob.api import DeadlineView
from tpujob.domain.capacity import circuits
from tpujob.domain.capacity.deadline import deadline_of, preemptible
from tpujob.domain.capacity.offers import Offer
from tpujob.domain.hardware.prices import PriceList
from tpujob.domain.model import ExpectedRun, Job, State
from tpujob.domain.money import budget, ledger
from tpujob.domain.money.conditions import Conditions
from tpujob.domain.money.run_time import steps_of_spec
from tpujob.domain.spec import JobSpec
from tpujob.domain.text import dollars, duration, rfc3339, utc
from tpujob.errors import BadSpec

#: seconds for which a job waits for a slice that cannot be preempted, where no job has waited for one
WAIT = 600.0


def safe_offer(offers: Sequence[Offer]) -> Offer:
    """Return the preferred offer that cannot be preempted; a spec with a deadline has one."""
    return next(offer for offer in offers if not preemptible(offer))


def expect(spec: JobSpec, work: float, checkpoint: float, expected: Conditions) -> ExpectedRun:
    """Return what is expected of so many seconds of work, in the conditions of a slice that cannot be preempted."""
    wait = WAIT if "wait" in expected.unknown else expected.first.wait.quantile(0.9)
    lost = _ninetieth(expected.lost) if expected.lost else checkpoint
    start = _ninetieth(expected.setup)
    return ExpectedRun(work, round(start), round(wait), round(lost), steps_of_spec(spec))


def _ninetieth(values: Sequence[float]) -> float:
    return sorted(values)[ceil(0.9 * len(values)) - 1]


def unknown_work() -> BadSpec:
    text = "finish_by: nothing says how long the job runs: no earlier run of its program, and no `time`"
    return BadSpec(text, hint="give `time`, such as `time: 12h`")


def check(spec: JobSpec, expected: ExpectedRun, now: float) -> None:
    """Raise BadSpec if the deadline is over, or cannot be kept even on slices that are not preempted."""
    finish_by = spec.finish_by or now
    if finish_by <= now:
        raise BadSpec(f"finish_by: {utc(finish_by)} is over", hint="give a later time")
    left = finish_by - max(now, spec.not_before or 0.0)
    needed = expected.wait + expected.start + expected.work
    if needed > left:
        parts = (
            f"{duration(expected.wait)} for a slice, {duration(expected.start)} to start, "
            f"{duration(expected.work)} of work"
        )
        raise BadSpec(
            f"finish_by: the job needs up to {duration(needed)} ({parts}), and has {duration(max(0.0, left))}",
            hint="give a later time, less work, or a larger slice",
        )


def view(job: Job, prices: PriceList, now: float) -> DeadlineView | None:
    """Return the view of the job's deadline; None: it has none."""
    facts = deadline_of(job)
    if facts is None:
        return None
    missed = job.missed_at is not None
    shown = DeadlineView(
        finish_by=rfc3339(facts.finish_by),
        missed=missed,
        latest=None,
        low_micros=None,
        high_micros=None,
        text=f"{utc(facts.finish_by)}{', missed' if missed else ''}",
    )
    if job.state is State.SUCCEEDED and job.finished_at is not None:
        spare = facts.finish_by - job.finished_at
        shown["text"] += f"; ended {duration(abs(spare))} {'before' if spare >= 0 else 'after'} it"
    if job.state.final or job.spec.is_group:
        return shown
    offers = circuits.allowed(job, prices)
    texts = [shown["text"]]
    if job.slice:
        verb = "" if job.slice.ready_at else "waits for a slice "
        texts.append(verb + _on(job.slice.pricing))
    safe = next((offer for offer in offers if not preemptible(offer)), None)
    if safe and (job.slice is None or preemptible(job.slice)):
        latest = max(now, facts.latest)
        shown["latest"] = rfc3339(latest)
        texts.append(f"{_on(safe.pricing)} from {utc(latest)} at the latest")
    rates = [budget.micros(o.usd_per_hour) for o in offers if o.usd_per_hour is not None]
    spent = ledger.micros(job.slices, now)
    if len(rates) == len(offers) and spent is not None:
        seconds = facts.left + facts.start
        low, high = (spent + round(rate * seconds / 3600) for rate in (min(rates), max(rates)))
        shown["low_micros"], shown["high_micros"] = low, high
        texts.append(f"{dollars(low)} to {dollars(high)}")
    shown["text"] = "; ".join(texts)
    return shown


def _on(pricing: str) -> str:
    """Return the terms in a sentence: `on spot`, `on demand`."""
    return f"on {pricing.removeprefix('on-')}"
