"""The summary of a day: what ran, what failed, what waits, and what it cost."""

from collections import Counter
from collections.abc import Iterable, Sequence

from tpujob.domain.model import Job, State
from tpujob.domain.money import ledger
from tpujob.domain.notify.model import Kind, Note
from tpujob.domain.placement import circuits
from tpujob.domain.text import dollars, duration, many, rfc3339

#: jobs that are named in each list
NAMED = 10
DAY = 86400.0
_WAITING = (State.QUEUED, State.PROVISIONING)


def of_day(jobs: Iterable[Job], channel: str, at: float, now: float) -> Note:
    """Of the day up to `at`, as things were at `now`, a little later. One for each channel and day."""
    since = at - DAY
    touched = [job for job in jobs if not job.state.final or (job.finished_at or 0.0) > since]
    ended = Counter(job.state for job in touched if job.state.final)
    going = [job for job in touched if not job.state.final]
    waits = [job for job in going if job.state in _WAITING]
    said = [many(len(touched), "job")]
    said += [f"{ended[state]} {state}" for state in State if ended[state]]
    if rest := len(going) - len(waits):
        said.append(f"{rest} going on")
    if waits:
        said.append(f"{len(waits)} waiting")
    text = f"24 h up to {rfc3339(at)}: {', '.join(said)}; {_cost(touched, since, at)}"
    failed = [job for job in touched if job.state is State.FAILED]
    lines = (*_named(failed, "failed"), *_longest(waits, now))
    return Note(f"{Kind.SUMMARY}/{channel}/{at:.0f}", Kind.SUMMARY, at, text, lines=lines)


def _named(failed: Sequence[Job], what: str) -> list[str]:
    found = [f"{what}: {job.name} ({job.id}) of {job.user}, {job.cause or '-'}" for job in failed]
    more = len(found) - NAMED
    return [*found[:NAMED], *([f"{what}: {more} more"] if more > 0 else [])]


def _longest(waits: Sequence[Job], now: float) -> list[str]:
    by_wait = sorted(waits, key=circuits.waiting_since)[:NAMED]
    return [
        f"waiting for {duration(now - circuits.waiting_since(job))}: {job.name} ({job.id}) of {job.user}"
        for job in by_wait
    ]


def _cost(jobs: Iterable[Job], since: float, until: float) -> str:
    """By list price; from when a slice was ready until it was gone, as far as that lies within the day."""
    total, unknown = 0, 0
    for job in jobs:
        for one in job.slices:
            if ledger.free(job, one) or one.ready_at is None:
                continue
            end = until if one.gone_at is None else min(one.gone_at, until)
            rate = ledger.rate(one)
            if rate is None:
                unknown += end > max(one.ready_at, since)
                continue
            of_slice = ledger.moment(one.ready_at), ledger.moment(since), ledger.moment(end)
            total += ledger.between(rate, *of_slice)
    without = f", without {many(unknown, 'slice')} of unknown price" if unknown else ""
    return f"{dollars(total)} by list price{without}"
