"""Details for the page of one job: its timeline, its hosts, and the diff that was shipped with its code. Pure, but for
the read of that diff."""

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
#: bytes of the diff that are read; it was cut when it was stored
MAX_DIFF = 256 * 1024


def spans(job: Job, now: float, done: Progress | None = None) -> list[SpanView]:
    """Return the stretches of the job's time, oldest first. `done`: the program's progress now."""
    return [_span(stretch) for stretch in timeline(job, now, done)]


def _span(stretch: Stretch) -> SpanView:
    return SpanView(
        kind=cast(SpanKind, str(stretch.kind)),
        start=rfc3339(stretch.start / US),
        end=None if stretch.open else rfc3339(stretch.end / US),
        seconds=round((stretch.end - stretch.start) / US, 3),
        slice=stretch.slice.name if stretch.slice else "",
        attempt=stretch.attempt.number if stretch.attempt else None,
        cause=stretch.cause,
        text=stretch.text,
        requests=stretch.requests,
        usd=None if stretch.micros is None else stretch.micros / US,
    )


#: jobs that are shown of a slice that was handed on: at most so many before this one, and twice as many in all others
NEAR = 4


def slice_jobs(
    job: Job, slice: Slice, read: Callable[[str], Job], now: float
) -> list[SliceJobView]:
    """Return the jobs that have had a slice, as far as their records can be read; none if only this job has had it."""
    links = deque([(job, slice)])
    ways = ("received_from", 0, links.appendleft, NEAR), ("handed_to", -1, links.append, 2 * NEAR)
    for link, end, add, limit in ways:
        while (job_id := getattr(links[end][1], link)) and len(links) <= limit:
            try:
                other = read(job_id)
                add((other, next(its for its in other.slices if its.name == slice.name)))
            except (TpujobError, StopIteration):
                break
    return [
        SliceJobView(
            id=job.id,
            name=job.name,
            seconds=round((slice.gone_at or now) - (slice.ready_at or now), 3),
            now=slice.gone_at is None,
        )
        for job, slice in (links if len(links) > 1 else ())
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
    by_host = {report.host: report for report in reports if report.attempt == newest}
    by_machine = None if suspects is None else {s.physical: s for s in suspects}
    views: list[HostView] = []
    for endpoint in sorted(serving.endpoints, key=lambda e: e.host):
        report, since = by_host.get(endpoint.host), silent.get(endpoint.host)
        physical = report.physical if report else ""
        suspect = by_machine.get(physical) if by_machine and physical else None
        score = 0.0 if suspect is None else round(host_reputation.score(suspect, now), 3)
        views.append(
            HostView(
                host=endpoint.host,
                address=endpoint.address,
                heard_at=rfc3339(heard_at - report.age) if report else None,
                phase=report.phase if report else "",
                step=report.progress.step if report else None,
                notice=report.notice if report else "",
                error=report.error if report and by_machine is not None else "",
                silent_since=None if since is None else rfc3339(since),
                physical=physical,
                suspicion=None if by_machine is None else score,
                refused=bool(suspect and host_reputation.refused(suspect, now)),
            )
        )
    return views


def patch(job: Job, blobs: Blobs) -> PatchView:
    """Return the diff from the commit to the shipped code. Raises NotFound if there is none; Transient."""
    if job.code is None:
        reason = "its code does not come from a git checkout" if job.bundles else "it ships no code"
        raise NotFound(f"job {job.id} has no diff: {reason}")
    text = ""
    if job.code.diff:
        try:
            text = blobs.get(job.code.diff, end=MAX_DIFF, timeout=ANSWER).decode(errors="replace")
        except NotFound:
            raise NotFound(
                f"the diff of job {job.id} has been removed from the bucket",
                hint="shipped code is removed with the last job that has it",
            ) from None
    return PatchView(code=CodeView(**asdict(job.code)), text=text)
