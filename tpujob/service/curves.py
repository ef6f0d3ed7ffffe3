"""The curves of a job: the numbers that its program reported for its steps, read from the reports of its attempts, also
long after their slices are gone."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from tpujob.api import ChartView, CurveView, MetricsView
from tpujob.domain.host import keys
from tpujob.domain.host.series import Point, read_curves, read_series
from tpujob.domain.model import Attempt, Job
from tpujob.domain.progress import began_from, steps_kept
from tpujob.domain.text import rfc3339
from tpujob.errors import NotFound, Refused, TpujobError, Transient
from tpujob.lib.lru import LruDict
from tpujob.lib.tries import Deadline
from tpujob.ports import Blobs, Clock
from tpujob.protocol import limits, paths

#: seconds for which the curves of an attempt are cached: while it runs, and once it has long ended
RUNNING_TTL, FINAL_TTL = 10.0, 600.0
CACHED_ATTEMPTS = 512  #: cached attempts, of 24 KiB each


class AttemptCurves(NamedTuple):
    """The newest known curves of an attempt."""

    line: bytes = b""  #: for `read_series`; empty: there is none
    doubted: bool = False  #: the stored report is not signed by its hosts
    number: int = -1  #: of the report
    until: float = 0.0  #: the time until which the cache is used
    error: TpujobError | None = None  #: why it could not be read; raised again until then


class AttemptSeries(NamedTuple):
    """The curves of an attempt, with what is known of its end."""

    job: str
    attempt: Attempt
    kept: int | None  #: as in `CurveView`
    series: dict[str, list[Point]]  #: by name
    began_at: float  #: time of the first step


class JobCurves(NamedTuple):
    curves: list[AttemptSeries]  #: of each attempt that has any, the oldest first
    unread: list[int]  #: attempts that could not be read
    trouble: str  #: why not; empty: all were read


ATTEMPTS = 12  #: of a job that are shown, the newest
POINTS = 1200  #: of one chart: twice as many as a screen has columns for it
LEAST_POINTS = 12  #: of a curve, however many there are
AT_ONCE = 8  #: jobs that are read at once
LATE = "reading takes too long"
CHARTS = 8
WITHIN = 5.0  #: seconds to read all of them

TITLES = {
    "loss": "Loss",
    "tokens_per_second": "Tokens per second",
    "samples_per_second": "Samples per second",
    "mfu": "Model FLOP/s utilization (MFU)",
    "steps/s": "Steps per second",
    "ms": "Step time, ms",
}
NO_ATTEMPT = "no program has run yet"
OF_ELEMENTS = "each of its jobs has its own curves: `tpujob show {name}-0 --plot`"
NO_STEPS = "the program has reported no metrics: one that writes `step` events (docs/workloads.md) has curves"
NOT_SIGNED = "the reports in its folder are not signed by its hosts, and are not drawn"


class Curves:
    """Safe for threads."""

    def __init__(self, blobs: Blobs, clock: Clock, key: Callable[[Sequence[str]], str]) -> None:
        """`key`: see `Hosts.key`."""
        self._blobs, self._clock, self._key = blobs, clock, key
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="curves")
        self._known: LruDict[tuple[str, int], AttemptCurves] = LruDict(CACHED_ATTEMPTS)

    def metrics(self, job: Job, *, attempt: int | None = None) -> MetricsView:
        """Return the curves of that attempt, or of the newest ones. Raises NotFound if the job has no such attempt."""
        if attempt is not None and not 1 <= attempt <= len(job.attempts):
            raise NotFound(f"job {job.id} has no attempt {attempt}")
        ran = [a for a in job.attempts if a.running_at is not None]
        attempts = [a for a in ran if a.number == attempt] if attempt else ran[-ATTEMPTS:]
        read = self._read_job(job, attempts, Deadline(WITHIN, late=LATE))
        charts = _charts(read.curves, POINTS)
        of_elements = OF_ELEMENTS.format(name=job.name) if job.spec.is_group else ""
        none = of_elements or (NO_STEPS if ran else NO_ATTEMPT)
        return MetricsView(
            charts=charts,
            attempts=[a.number for a in attempts],
            left_out=0 if attempt else len(ran) - len(attempts),
            unread=sorted(read.unread),
            why=read.trouble or ("" if charts else none),
        )

    def side_by_side(self, jobs: Sequence[Job]) -> tuple[list[ChartView], list[str], str]:
        """Return the charts of several jobs, each with the curves of all that have it; the ids of the jobs of which
        not everything could be read; and why curves are missing, empty: none is."""
        deadline = Deadline(WITHIN, late=LATE)

        def read(job: Job) -> JobCurves:
            ran = [a for a in job.attempts if a.running_at is not None]
            return self._read_job(job, ran[-ATTEMPTS:], deadline)

        of_jobs = list(self._pool.map(read, jobs))
        charts = _charts([curve for of_job in of_jobs for curve in of_job.curves], 2 * POINTS)
        unread = [job.id for job, of_job in zip(jobs, of_jobs, strict=True) if of_job.unread]
        trouble = next((of_job.trouble for of_job in of_jobs if of_job.trouble), "")
        none = NO_STEPS if any(job.attempts for job in jobs) else NO_ATTEMPT
        return charts, unread, trouble or ("" if charts else none)

    def _read_job(self, job: Job, attempts: Sequence[Attempt], deadline: Deadline) -> JobCurves:
        """Return the curves of these attempts, as far as they can be read."""
        curves: dict[int, dict[str, list[Point]]] = {}
        unread: list[int] = []
        trouble = ""
        for past in reversed(attempts):
            try:
                series = self._of(job, past, deadline)
            except (Transient, Refused) as error:
                unread.append(past.number)
                trouble = trouble or f"they cannot be read from the bucket now: {error.message}"
                continue
            if series.line:
                curves[past.number] = read_series(series.line)
            if series.doubted:
                unread.append(past.number)
                trouble = trouble or NOT_SIGNED
        kept = steps_kept(job)
        of_attempts = [
            AttemptSeries(job.id, a, kept.get(a.number), *_with_rates(curves[a.number]))
            for a in attempts
            if curves.get(a.number)
        ]
        return JobCurves(of_attempts, unread, trouble)

    def _of(self, job: Job, attempt: Attempt, deadline: Deadline) -> AttemptCurves:
        """Return the curves of an attempt. Raises Transient, Refused."""
        key, now = (job.id, attempt.number), self._clock.now()
        cached = self._known.get(key, AttemptCurves())
        if now < cached.until:
            if cached.error:
                raise cached.error
            return cached
        deadline.left()
        try:
            newest = self._read(job, attempt, cached._replace(error=None, doubted=False), deadline)
        except (Transient, Refused) as error:
            self._known[key] = cached._replace(until=now + RUNNING_TTL, error=error)
            raise
        settled = attempt.ended_at is not None and now - attempt.ended_at > FINAL_TTL
        newest = newest._replace(until=now + (FINAL_TTL if settled else RUNNING_TTL))
        self._known[key] = newest
        return newest

    def _read(
        self, job: Job, attempt: Attempt, newest: AttemptCurves, deadline: Deadline
    ) -> AttemptCurves:
        key = self._key(keys.of_attempt(job, attempt))
        workdir = job.workdir_of(attempt.number)
        own = paths.report_path(workdir, attempt.number, 0)
        for path in (own, paths.kept_report_path(workdir, attempt.number, 0)):
            body = self._body(path, max(0.1, deadline.remaining()))
            curves = read_curves(body, key) if body else None
            if body and curves is None:
                newest = newest._replace(doubted=True)
            if curves and curves.line and curves.number >= newest.number:
                newest = newest._replace(line=curves.line, number=curves.number)
            if curves and path == own:
                break
        return newest._replace(doubted=newest.doubted and not newest.line)

    def _body(self, path: str, left: float) -> bytes:
        """Return the object's body; empty: there is no such object."""
        try:
            return self._blobs.get(path, end=limits.MAX_BODY, timeout=left)
        except NotFound:
            return b""


def _charts(curves: Sequence[AttemptSeries], most: int) -> list[ChartView]:
    """Return the charts, those of well-known names first; each has about `most` points."""
    names = {name for curve in curves for name, points in curve.series.items() if points}
    order = [*(name for name in TITLES if name in names), *sorted(names - TITLES.keys())]
    charts: list[ChartView] = []
    for name in order[:CHARTS]:
        having = [curve for curve in curves if curve.series.get(name)]
        views = [_curve(curve, name, max(LEAST_POINTS, most // len(having))) for curve in having]
        charts.append(ChartView(name=name, title=TITLES.get(name, name), curves=views))
    return charts


def _curve(curve: AttemptSeries, name: str, limit: int) -> CurveView:
    attempt = curve.attempt
    bad = attempt.progress.nonfinite
    return CurveView(
        job=curve.job,
        attempt=attempt.number,
        began_at=rfc3339(curve.began_at),
        points=_points(curve.series[name], curve.began_at, limit),
        resumed_from=began_from(attempt) or None,
        kept=curve.kept,
        cause=attempt.cause and str(attempt.cause),
        nonfinite=bad.since if bad else None,
        checkpoint=attempt.progress.checkpoint,
    )


def _with_rates(series: dict[str, list[Point]]) -> tuple[dict[str, list[Point]], float]:
    """Return the series with that of steps per second, and the time of the first step."""
    buckets = series.pop("", [])
    began_at = buckets[0].at if buckets else 0.0
    return {**series, "steps/s": list(_rates(buckets))}, began_at


def _rates(buckets: Sequence[Point]) -> Iterator[Point]:
    """Yield steps per second, between moments that are far enough apart for a rate."""
    before: Point | None = None
    for bucket in buckets:
        if before and bucket.at - before.at >= 0.5 and bucket.step > before.step:
            rate = round((bucket.step - before.step) / (bucket.at - before.at), 4)
            yield Point(bucket.step, bucket.at, rate, rate, rate)
        if before is None or bucket.at - before.at >= 0.5:
            before = bucket


def _points(
    points: Sequence[Point], began_at: float, limit: int
) -> list[tuple[int, float, float, float, float]]:
    """Return at most `limit` points: neighbours are merged, with their least, greatest and last value."""
    size = -(-len(points) // limit)
    groups = [points[i : i + size] for i in range(0, len(points), size)]
    return [
        (
            group[-1].step,
            round(group[-1].at - began_at, 1),
            min(p.least for p in group),
            max(p.most for p in group),
            group[-1].last,
        )
        for group in groups
    ]
