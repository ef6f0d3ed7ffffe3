"""What the page of one job shows beside its record: its time as spans, the hosts that serve it, and the code that was
shipped with it. Pure, but for the read of that code."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import cast

from tpujob.api import CodeView, HostView, PatchView, SliceJobView, SpanKind, SpanView
from tpujob.domain.failures import host_reputation
from tpujob.domain.model import Job, Progress, Slice, State, Suspect
from tpujob.domain.money.goodput import Stretch, timeline
from tpujob.domain.money.ledger import US
from tpujob.domain.observations import HostReport
from tpujob.domain.text import rfc3339
from tpujob.errors import NotFound, TpujobError
from tpujob.ports import Blobs

#: seconds to read the diff of the code
ANSWER = 15.0
#: bytes of it that are read; it was cut when it was stored
MOST = 256 * 1024


def spans(job: Job, now: float, done: Progress | None = None) -> list[SpanView]:
    """Return all its time, oldest first. `done`: how far its program is now."""
    return [_span(one) for one in timeline(job, now, done)]


def _span(one: Stretch) -> SpanView:
    return SpanView(
        kind=cast(SpanKind, str(one.kind)),
        start=rfc3339(one.start / US),
        end=None if one.open else rfc3339(one.end / US),
        seconds=round((one.end - one.start) / US, 3),
        slice=one.slice.name if one.slice else "",
        attempt=one.attempt.number if one.attempt else None,
        cause=one.cause,
        text=one.text,
        requests=one.requests,
        usd=None if one.micros is None else one.micros / US,
    )


#: jobs before this one, and after it, that are shown of a slice that was handed on
NEAR = 4


def slice_jobs(job: Job, one: Slice, read: Callable[[str], Job], now: float) -> list[SliceJobView]:
    """Return the jobs that have had a slice, as far as their records can be read; none if only this job has had it."""
    found = deque([(job, one)])
    ways = ("received_from", 0, found.appendleft, NEAR), ("handed_to", -1, found.append, 2 * NEAR)
    for link, end, add, most in ways:
        while (job_id := getattr(found[end][1], link)) and len(found) <= most:
            try:
                other = read(job_id)
                add((other, next(its for its in other.slices if its.name == one.name)))
            except (TpujobError, StopIteration):
                break
    return [
        SliceJobView(
            id=job.id,
            name=job.name,
            seconds=round((one.gone_at or now) - (one.ready_at or now), 3),
            now=one.gone_at is None,
        )
        for job, one in (found if len(found) > 1 else ())
    ]


#: states in which the hosts of the serving slice have something to say
_HEARD = (State.PREPARING, State.RUNNING, State.HOLDING)


def hosts(
    job: Job,
    reports: Iterable[HostReport],
    heard_at: float,
    silent: Mapping[int, float],
    suspects: Iterable[Suspect] | None,
    now: float,
) -> list[HostView]:
    """Return the hosts of the serving slice. `reports`: the newest ones, as read at `heard_at`; `silent`: since when
    hosts do not answer over SSH; `suspects`: the machines that are suspected or pinned, None where the caller may see
    neither them nor the errors that hosts report."""
    serving, attempt = job.slice, job.attempt
    if serving is None or not serving.endpoints or job.state not in _HEARD:
        return []
    newest = attempt.number if attempt else 0
    by_host = {one.host: one for one in reports if one.attempt == newest}
    known = None if suspects is None else {one.physical: one for one in suspects}
    found: list[HostView] = []
    for one in sorted(serving.endpoints, key=lambda each: each.host):
        report, since = by_host.get(one.host), silent.get(one.host)
        physical = report.physical if report else ""
        suspect = known.get(physical) if known and physical else None
        score = 0.0 if suspect is None else round(host_reputation.score(suspect, now), 3)
        found.append(
            HostView(
                host=one.host,
                address=one.address,
                heard_at=rfc3339(heard_at - report.age) if report else None,
                phase=report.phase if report else "",
                step=report.progress.step if report else None,
                notice=report.notice if report else "",
                error=report.error if report and known is not None else "",
                silent_since=None if since is None else rfc3339(since),
                physical=physical,
                suspicion=None if known is None else score,
                refused=bool(suspect and host_reputation.refused(suspect, now)),
            )
        )
    return found


def patch(job: Job, blobs: Blobs) -> PatchView:
    """Return what of its code is not in the commit. Raises NotFound when the code is of no checkout; Transient."""
    if job.code is None:
        what = "its code does not come from a git checkout" if job.bundles else "it ships no code"
        raise NotFound(f"job {job.id} has no diff: {what}")
    text = ""
    if job.code.diff:
        try:
            text = blobs.get(job.code.diff, end=MOST, timeout=ANSWER).decode(errors="replace")
        except NotFound:
            raise NotFound(
                f"the diff of job {job.id} has been removed from the bucket",
                hint="shipped code is removed with the last job that has it",
            ) from None
    return PatchView(code=CodeView(**asdict(job.code)), text=text)
