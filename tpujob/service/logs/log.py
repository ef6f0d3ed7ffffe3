"""Queries on a job's log. Every answer takes bounded time and memory, and is read from the bucket alone."""

from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import islice
from threading import BoundedSemaphore

from tpujob.api import LogBlock, LogLine, LogMatches, LogPage, LogWindow, SearchQuery, WindowQuery
from tpujob.domain.model import Job
from tpujob.domain.text import many, rfc3339
from tpujob.errors import BadRequest, Busy, NotFound
from tpujob.lib.tries import Deadline
from tpujob.ports import Blobs
from tpujob.service.logs import notes, window
from tpujob.service.logs.lines import Cursor, StampedLine, read_cursor, text_of
from tpujob.service.logs.live_stream import NOTHING, LiveLogs, Tails
from tpujob.service.logs.live_tail import joined
from tpujob.service.logs.reader import HostLog, LogReader, Place
from tpujob.service.logs.search import LogPattern, Searches, matcher
from tpujob.service.logs.segment_reader import SegmentReader
from tpujob.service.logs.segments import LIST_TTL, SegmentLists, Segments

PAGE_BYTES, PAGE_LINES = 1024 * 1024, 5000
BLOCK_BYTES = 4 * 1024 * 1024
MATCHES, MAX_MATCHES = 100, 1000
#: seconds for an answer; a search that is not done by then says how far it came
ANSWER, SEARCH = 15.0, 6.0
#: searches at once: each holds a thread and a processor
SEARCHES = 4


class Logs:
    """The logs of all jobs, over one bucket. Threads may share it; which job a caller may read is decided before."""

    def __init__(
        self,
        blobs: Blobs,
        live: LiveLogs | None = None,
        *,
        fresh: float = LIST_TTL,
        answer: float = ANSWER,
        search: float = SEARCH,
    ) -> None:
        """`live`: what running hosts print that is not stored yet. `fresh`: seconds for which readers of a log that
        grows share a list. `answer`: seconds for one answer; `search`: for a search,
        and for the end of another one."""
        late, hint = "reading the log takes too long", "Try again, or ask for one host."
        self._deadline = partial(Deadline, answer, late=late, hint=hint)
        self._lists = SegmentLists(blobs, fresh)
        self._reader = SegmentReader(blobs)
        self._live, self._search = live, search
        self._searches = Searches(self._reader)
        self._seats = BoundedSemaphore(SEARCHES)

    def page(
        self,
        job: Job,
        *,
        host: int | None = None,
        attempt: int | None = None,
        cursor: str = "",
        tail: int | None = None,
        since: float | None = None,
    ) -> LogPage:
        """Return what `JobsApi.logs` documents. Raises BadRequest, NotFound, Transient."""
        if tail is not None and tail < 0:
            raise BadRequest(f"tail must not be negative, but is {tail}")
        if None not in (tail, since):
            raise BadRequest("tail and since do not go together", hint="Choose one.")
        at = _start(job, host, attempt, cursor)
        if at.attempt == 0:
            return LogPage(lines=[], cursor="", done=job.state.final, attempt=0)
        if since is not None and not cursor:
            at = self._at_time(job, host, attempt, since)
        if tail is not None and not cursor:
            log = self._open(job, at.attempt, host, self._deadline())
            back = log.read(log.end(), PAGE_BYTES, backward=True)
            lines = _fitting(back, PAGE_BYTES, min(tail, PAGE_LINES))[::-1]
            at, more = Cursor(at.attempt, log.end()), False
        else:
            lines, at, more = self._ahead(job, host, attempt, at, PAGE_BYTES, PAGE_LINES)
        shown = [
            LogLine(host=x.host, at=rfc3339(x.at), text=text_of(x.raw), line=x.number)
            for x in lines
        ]
        done = not more and _ended(job, attempt, at)
        return LogPage(lines=shown, cursor=str(at), done=done, attempt=at.attempt)

    def block(
        self, job: Job, *, host: int | None = None, attempt: int | None = None, cursor: str = ""
    ) -> LogBlock:
        """Return what `JobsApi.log_block` documents. Raises BadRequest, NotFound, Transient."""
        at = _start(job, host, attempt, cursor)
        if at.attempt == 0:
            return LogBlock(b"", "", done=job.state.final, more=False)
        lines, at, more = self._ahead(job, host, attempt, at, BLOCK_BYTES)
        data = b"".join([b"%d %.3f %b\n" % (x.host, x.at, x.raw) for x in lines])
        more = more or (bool(data) and _goes_on(job, attempt, at))
        done = not more and _ended(job, attempt, at)
        until = self._deadline()
        if done:
            log = self._open(job, at.attempt, host, until)
            note = " ".join(notes.unfinished(job, at.attempt, log, host))
        else:
            note = notes.slow(self._tails(job, at.attempt, until))
        return LogBlock(data, str(at), done=done, more=more, note=note)

    def _at_time(self, job: Job, host: int | None, attempt: int | None, since: float) -> Cursor:
        """Return the place before the first line from that time on, in the attempt that ran then."""
        began = (a.number for a in job.attempts if a.started_at <= since)
        number = attempt or max(began, default=1)
        log = self._open(job, number, host, self._deadline())
        return Cursor(number, log.at_time(since))

    def _ahead(
        self, job: Job, host: int | None, attempt: int | None, at: Cursor, size: int, limit: int = 0
    ) -> tuple[list[StampedLine], Cursor, bool]:
        """Return the lines behind the cursor, the cursor behind them, and whether there are more. `limit`: at most so
        many lines, and `size` bytes; 0: all that is read in one go, about `size` bytes."""
        until = self._deadline()
        while True:
            log = self._open(job, at.attempt, host, until, at.given)
            read = log.read(at.given, size, once=True)
            lines = _fitting(read, size, limit) if limit else list(read)
            at = Cursor(at.attempt, {**at.given, **{line.host: line.number for line in lines}})
            if lines or not _goes_on(job, attempt, at):
                more = any(of.last > at.given.get(of.host, 0) for of in log.logs.values())
                return lines, at, more and bool(lines)
            at = Cursor(at.attempt + 1)

    def window(self, job: Job, query: WindowQuery) -> LogWindow:
        """Return what `JobsApi.log_window` documents. Raises BadRequest, NotFound, Busy, Transient."""
        host, attempt = query.get("host"), query.get("attempt")
        number = _start(job, host, attempt, "").attempt
        if not number:
            return _nothing(job)
        until = self._deadline()
        every = self._open(job, number, None, until)
        log = every.of_host(host)
        limit = _within(query.get("lines", window.LINES), window.MAX_LINES)
        width = _within(query.get("width", window.WIDTH), window.MAX_WIDTH)
        placed = "line" in query or "part" in query
        side = query.get("side", "around" if placed else "before")
        place = _place(log, query, behind=side == "after") or log.end()
        lines, back = window.around(log, place, side, limit, width)
        if query.get("text") and lines:
            with self._seat():
                window.mark(lines, matcher(_query(query)).spans)
        before, total = log.lines_before(place) - back, log.lines
        last = before + len(lines) >= total
        return LogWindow(
            attempt=number,
            began_at=rfc3339(job.attempts[number - 1].started_at),
            lines=lines,
            before=before,
            total=total,
            hosts=[notes.of_host(host_log) for host_log in every.logs.values()],
            notes=self._notes(job, number, log, host, until),
            cursor=str(Cursor(number, log.end())) if last else "",
            done=last and _ended(job, attempt, Cursor(number)),
        )

    def search(self, job: Job, asked: SearchQuery) -> LogMatches:
        """Return what `JobsApi.log_search` documents. Raises BadRequest, NotFound, Busy, Transient."""
        query = _query(asked)
        number = _start(job, asked.get("host"), asked.get("attempt"), "").attempt
        until, time = self._deadline(), Deadline(self._search)
        log = (
            self._open(job, number, asked.get("host"), until)
            if number
            else LogReader({}, self._reader)
        )
        limit = _within(asked.get("limit", MATCHES), MAX_MATCHES)
        width = _within(asked.get("width", window.WIDTH), window.MAX_WIDTH)
        by = matcher(query)
        with self._seat():
            counted = self._searches.count(log, query, by, until, time)
            place = _place(log, asked, behind=asked.get("after", False)) or log.begin()
            matches = self._searches.after(log, place, counted, by, limit, until)
            before, previous = self._searches.before(log, place, counted, by, until)
            shown = [window.shown(line, width) for line in matches]
            lines = window.fitting(shown, window.ROOM) or shown[:1]
            window.mark(lines, by.spans)
        return LogMatches(
            matches=lines,
            first=before + 1,
            matching=sum(counted.counts.values()),
            previous=window.shown(previous, width) if previous else None,
            complete=counted.complete,
            searched=counted.searched,
            bytes=sum(host_log.size for host_log in log.logs.values()),
        )

    @contextmanager
    def _seat(self) -> Generator[None]:
        """Wait for the end of another search, if the limit is reached. Raises Busy."""
        if not self._seats.acquire(timeout=self._search):
            raise Busy(f"more than {SEARCHES} searches at once", retry_after=2)
        try:
            yield
        finally:
            self._seats.release()

    def _open(
        self,
        job: Job,
        attempt: int,
        host: int | None,
        until: Deadline,
        given: Mapping[int, int] = {},
    ) -> LogReader:
        """Return the stored lines and, behind them, those not stored yet. `given`: by host, the last line that the
        reader has; stored lines up to it may be left out."""
        tails = self._tails(job, attempt, until)  # before the list
        heard = {of: tail for of, tail in tails.of.items() if host in (None, of)}
        # the next page starts after the joined lines; at the end, lines found nowhere count as lost
        ends = {of: tail.end if tails.over else tail.base for of, tail in heard.items()}
        needed = {of: n for of, n in ends.items() if tails.over or n > given.get(of, 0)}
        stored: Segments = {}
        if needed or not tails.whole:
            stored = self._lists.find(
                job, attempt, host, until, ends=needed, settled_at=tails.settled_at,
                complete=tails.whole,
            )  # fmt: skip
        logs: dict[int, HostLog] = {}
        for of in sorted({*stored, *heard}):
            segments = [*stored.get(of, ())]
            if of in heard:
                segments += joined(of, segments, heard[of], given.get(of, 0), over=tails.over)
            if segments:
                logs[of] = HostLog(of, segments, self._reader, until)
        return LogReader(logs, self._reader)

    def _tails(self, job: Job, attempt: int, until: Deadline) -> Tails:
        return self._live.tails(job, attempt, until) if self._live else NOTHING

    def _notes(
        self, job: Job, attempt: int, log: LogReader, host: int | None, until: Deadline
    ) -> list[str]:
        remarks = notes.of_lines(log, host)
        remarks.append(notes.slow(self._tails(job, attempt, until)))
        remarks += notes.unfinished(job, attempt, log, host)
        return [note for note in remarks if note]


def hosts_up_to(count: int) -> str:
    return "host 0" if count == 1 else f"hosts 0 to {count - 1}"


def _start(job: Job, host: int | None, attempt: int | None, cursor: str) -> Cursor:
    """Return where a reader begins. Raises BadRequest for a group, NotFound for an attempt or a host that never was."""
    if job.spec.is_group:
        raise BadRequest(
            f"job {job.id} is a group: each of its jobs has a log", hint=f"tpujob logs {job.name}-0"
        )
    newest = len(job.attempts)
    if attempt is not None and not 1 <= attempt <= newest:
        raise NotFound(f"job {job.id} has {many(newest, 'attempt')}, no attempt {attempt}")
    hosts = max((len(s.endpoints) for s in job.slices), default=0)
    if host is not None and hosts and not 0 <= host < hosts:
        raise NotFound(f"job {job.id} has {hosts_up_to(hosts)}, no host {host}")
    if not cursor:
        return Cursor(attempt or newest)
    positions = read_cursor(cursor)
    if not 1 <= positions.attempt <= newest:
        raise BadRequest("this cursor belongs to another job", hint="Begin without a cursor.")
    return positions if attempt in (None, positions.attempt) else Cursor(attempt or newest)


def _goes_on(job: Job, attempt: int | None, at: Cursor) -> bool:
    """Return whether a reader continues with the next attempt."""
    return attempt is None and at.attempt < len(job.attempts)


def _ended(job: Job, attempt: int | None, at: Cursor) -> bool:
    """Return whether nothing more comes after the present end of that attempt's log."""
    return job.state.final if at.attempt == len(job.attempts) else attempt is not None


def _fitting(lines: Iterable[StampedLine], size: int, limit: int) -> list[StampedLine]:
    """Return the first lines, as many as there is room for, one at least."""
    taken: list[StampedLine] = []
    for line in islice(lines, limit):
        size -= len(line.raw)
        if taken and size < 0:
            break
        taken.append(line)
    return taken


def _place(log: LogReader, query: WindowQuery | SearchQuery, *, behind: bool) -> Place | None:
    """Return the place that the query names; None: it names none."""
    if "line" in query:
        host = query.get("of", query.get("host", 0))
        return log.at_line(host, query["line"], behind=behind)
    return log.at_part(query["part"]) if "part" in query else None


def _query(request: WindowQuery | SearchQuery) -> LogPattern:
    return LogPattern(
        request.get("text", ""),
        request.get("regexp", False),
        request.get("ignore_case", False),
        bool(request.get("traceback")),
    )


def _within(count: int, limit: int) -> int:
    return min(max(1, count), limit)


def _nothing(job: Job) -> LogWindow:
    return LogWindow(
        attempt=0, began_at="", lines=[], before=0, total=0, hosts=[], notes=[], cursor="",
        done=job.state.final,
    )  # fmt: skip
