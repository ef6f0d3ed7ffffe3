"""What can be asked of a job's log. Every answer is made within its time, in bounded memory, from the bucket alone."""

from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from threading import Condition

from tpujob.api import (
    LogBlock,
    LogLine,
    LogMatches,
    LogPage,
    LogWindow,
    SearchAsked,
    WindowAsked,
)
from tpujob.domain.model import Job
from tpujob.domain.text import many, rfc3339
from tpujob.errors import BadRequest, Busy, NotFound
from tpujob.ports import Blobs
from tpujob.service.logs import cursor as cursors
from tpujob.service.logs import notes, window
from tpujob.service.logs.bucket.pieces import FRESH, Pieces, Told, Until
from tpujob.service.logs.bucket.stored import Ordered
from tpujob.service.logs.cursor import BEGIN, Cursor, Place
from tpujob.service.logs.following.followed import Tails
from tpujob.service.logs.following.live import NOTHING, Live
from tpujob.service.logs.following.tail import joined
from tpujob.service.logs.forward import Forward, Segments
from tpujob.service.logs.hosts import HostLog, HostLogs
from tpujob.service.logs.index import Indexes
from tpujob.service.logs.lines import text_of
from tpujob.service.logs.query import Query, matcher
from tpujob.service.logs.search import Searches
from tpujob.service.logs.window import Spot

PAGE_BYTES, PAGE_LINES = 1024 * 1024, 5000
BLOCK_BYTES = 4 * 1024 * 1024
MATCHES, MOST_MATCHES = 100, 1000
#: seconds for an answer; a search that is not done by then says how far it came
ANSWER, SEARCH = 15.0, 6.0
#: searches at once, and of one caller: each holds a thread, and for a pattern a process
SEARCHES, SEARCHES_EACH = 4, 2


class Logs:
    """The logs of all jobs, over one bucket. Threads may share it; which job a caller may read is decided before."""

    def __init__(
        self,
        blobs: Blobs,
        live: Live | None = None,
        *,
        fresh: float = FRESH,
        answer: float = ANSWER,
    ) -> None:
        """`live`: what running hosts say that is not stored yet. `fresh`: seconds for which readers of a log that grows
        share a look at it. `answer`: seconds for one."""
        self._pieces, self._answer = Pieces(blobs, fresh), answer
        self._live, self._asking = live, notes.Asking(blobs)
        self._indexes = Indexes(self._pieces)
        self._searches = Searches(self._pieces)
        self._seats = _Seats()

    def page(
        self,
        job: Job,
        *,
        host: int | None = None,
        attempt: int | None = None,
        cursor: str = "",
        tail: int | None = None,
    ) -> LogPage:
        """As `JobsApi.logs`. Raises BadRequest, NotFound, Transient."""
        if tail is not None and tail < 0:
            raise BadRequest(f"tail must not be negative, but is {tail}")
        at = _start(job, host, attempt, cursor)
        if at.attempt == 0:
            return LogPage(lines=[], cursor="", done=job.state.final, attempt=0)
        until = Until(self._answer)
        forward = Forward(self._pieces, until)
        if tail is not None and not cursor:
            hosts = self._hosts(job, at.attempt, host, until)
            page = forward.last(hosts, at.attempt, min(tail, PAGE_LINES), PAGE_BYTES)
        else:
            page = forward.page(self._ahead(job, host, at, until), at, PAGE_BYTES, PAGE_LINES)
            while not page.lines and not page.more and _goes_on(job, attempt, page.cursor):
                at = Cursor(page.cursor.attempt + 1)
                page = forward.page(self._ahead(job, host, at, until), at, PAGE_BYTES, PAGE_LINES)
        lines = [
            LogLine(host=x.host, at=rfc3339(x.at), text=text_of(x.raw), line=x.number)
            for x in page.lines
        ]
        done = not page.more and _ended(job, attempt, page.cursor)
        return LogPage(lines=lines, cursor=str(page.cursor), done=done, attempt=page.cursor.attempt)

    def block(
        self, job: Job, *, host: int | None = None, attempt: int | None = None, cursor: str = ""
    ) -> LogBlock:
        """As `JobsApi.log_block`. Raises BadRequest, NotFound, Transient."""
        at = _start(job, host, attempt, cursor)
        if at.attempt == 0:
            return LogBlock(b"", "", done=job.state.final, more=False)
        until = Until(self._answer)
        forward = Forward(self._pieces, until)
        block = forward.block(self._ahead(job, host, at, until), at, BLOCK_BYTES)
        while not block.data and not block.more and _goes_on(job, attempt, block.cursor):
            at = Cursor(block.cursor.attempt + 1)
            block = forward.block(self._ahead(job, host, at, until), at, BLOCK_BYTES)
        more = block.more or (bool(block.data) and _goes_on(job, attempt, block.cursor))
        done = not more and _ended(job, attempt, block.cursor)
        number = block.cursor.attempt
        note = notes.slow(self._tails(job, number, until)) if not done else ""
        if done:
            stored = self._segments(job, number, host, until, {})
            note = " ".join(notes.unfinished(job, number, stored, host))
        return LogBlock(block.data, str(block.cursor), done=done, more=more, note=note)

    def window(self, job: Job, asked: WindowAsked, who: str = "") -> LogWindow:
        """As `JobsApi.log_window`. `who`: for whom. Raises BadRequest, NotFound, Busy, Transient."""
        host, attempt = asked.get("host"), asked.get("attempt")
        number = _start(job, host, attempt, "").attempt
        if not number:
            return _nothing(job)
        until = Until(self._answer)
        every = self._hosts(job, number, None, until)
        hosts = every.alone(host)
        most = _within(asked.get("lines", window.LINES), window.MOST_LINES)
        width = _within(asked.get("width", window.WIDTH), window.MOST_WIDTH)
        placed = "line" in asked or "part" in asked
        side = asked.get("side", "around" if placed else "before")
        spot = _spot(hosts, asked, behind=side == "after") or window.end(hosts)
        lines, back = window.around(hosts, spot, side, most, width)
        if asked.get("text") and lines:
            with self._seats.taken(who), matcher(_query(asked)) as by:
                window.mark(lines, by.spans)
        before, total = spot.before - back, sum(log.lines for log in hosts.values())
        last = before + len(lines) >= total
        return LogWindow(
            attempt=number,
            began_at=rfc3339(job.attempts[number - 1].started_at),
            lines=lines,
            before=before,
            total=total,
            hosts=[notes.of_host(log) for _, log in sorted(every.items())],
            notes=self._notes(job, number, hosts, host, until),
            cursor=str(self._after(hosts, number)) if last else "",
            done=last and _ended(job, attempt, Cursor(number)),
        )

    def search(self, job: Job, asked: SearchAsked, who: str = "") -> LogMatches:
        """As `JobsApi.log_search`. `who`: for whom. Raises BadRequest, NotFound, Busy, Transient."""
        query = _query(asked)
        number = _start(job, asked.get("host"), asked.get("attempt"), "").attempt
        until, time = Until(self._answer), Until(min(SEARCH, self._answer))
        hosts = (
            self._hosts(job, number, asked.get("host"), until)
            if number
            else HostLogs((), self._pieces)
        )
        limit = _within(asked.get("limit", MATCHES), MOST_MATCHES)
        width = _within(asked.get("width", window.WIDTH), window.MOST_WIDTH)
        with self._seats.taken(who), matcher(query) as by:
            counted = self._searches.count(hosts, query, by, until, time)
            spot = _spot(hosts, asked, behind=asked.get("after", False)) or window.begin(hosts)
            found = self._searches.after(hosts, spot, counted, by, limit, until)
            before, previous = self._searches.before(hosts, spot, counted, by, until)
            shown = [window.shown(line, width) for line in found]
            lines = window.fitting(shown, window.ROOM) or shown[:1]
            window.mark(lines, by.spans)
        return LogMatches(
            matches=lines,
            first=before + 1,
            matching=sum(counted.counts.values()),
            previous=window.shown(previous, width) if previous else None,
            complete=counted.complete,
            searched=counted.searched,
            bytes=sum(log.size for log in hosts.values()),
        )

    def _ahead(self, job: Job, host: int | None, at: Cursor, until: Until) -> Segments:
        return self._segments(job, at.attempt, host, until, at.places)

    def _hosts(self, job: Job, attempt: int, host: int | None, until: Until) -> HostLogs:
        found = self._segments(job, attempt, host, until, {})
        logs = (HostLog(h, each, self._pieces, self._indexes, until) for h, each in found.items())
        return HostLogs(logs, self._pieces)

    def _segments(
        self, job: Job, attempt: int, host: int | None, until: Until, since: Mapping[int, Place]
    ) -> dict[int, Ordered]:
        """What is stored and, behind it, what is not stored yet."""
        tails = self._tails(job, attempt, until)  # before the list
        heard = {of: tail for of, tail in tails.of.items() if host in (None, of)}
        seen = {of: since.get(of, BEGIN).given for of in heard}
        # a reader goes on behind what is joined: what is stored before that has to be in the list
        ends = {of: tail.end if tails.over else tail.base for of, tail in heard.items()}
        needed = {of: end for of, end in ends.items() if end > seen[of]}
        told = Told(needed, tails.settled_at, tails.whole)
        found = self._pieces.segments(job, attempt, host, until, since, told)
        stored: Segments = found
        if tails.over:  # what is lost is what is nowhere
            told = Told(ends, tails.settled_at, whole=True)
            stored = self._pieces.segments(job, attempt, host, until, {}, told)
        for of, tail in heard.items():
            segment = joined(of, stored.get(of, []), tail, seen[of], over=tails.over)
            if segment:
                found.setdefault(of, Ordered()).append(segment)
        return found

    def _tails(self, job: Job, attempt: int, until: Until) -> Tails:
        found = self._live.tails(job, attempt, until) if self._live else NOTHING
        if notes.slow(found):
            self._asking.ask(job, attempt)
        return found

    def _notes(
        self, job: Job, attempt: int, hosts: HostLogs, host: int | None, until: Until
    ) -> list[str]:
        said = [note for _, log in sorted(hosts.items()) for note in notes.of_lines(log)]
        said.append(notes.slow(self._tails(job, attempt, until)))
        said += notes.unfinished(job, attempt, {h: log.segments for h, log in hosts.items()}, host)
        return [note for note in said if note]

    def _after(self, hosts: Mapping[int, HostLog], attempt: int) -> Cursor:
        """Behind what there is."""
        places: dict[int, Place] = {}
        for host, log in hosts.items():
            if log.segments:
                place, newest = log.stored_end, log.segments[-1]
                seen = log.first[-1] + log.starts[-1] - log.starts[-2] - 1
                places[host] = place if newest.data is None else place._replace(seen=seen)
        return Cursor(attempt, places)


class _Seats:
    """Who may search now: one caller cannot take all the seats."""

    def __init__(self) -> None:
        self._change = Condition()
        self._by = Counter[str]()

    @contextmanager
    def taken(self, who: str) -> Generator[None]:
        """Waits for a seat. Raises Busy."""
        with self._change:
            if not self._change.wait_for(lambda: self._free(who), SEARCH):
                most = SEARCHES_EACH if self._by[who] >= SEARCHES_EACH else SEARCHES
                whose = " of yours" if most == SEARCHES_EACH else ""
                raise Busy(f"more than {most} searches{whose} at once", retry_after=2)
            self._by[who] += 1
        try:
            yield
        finally:
            with self._change:
                self._by[who] -= 1
                self._by += Counter()  # forgets who has none
                self._change.notify_all()

    def _free(self, who: str) -> bool:
        return self._by[who] < SEARCHES_EACH and self._by.total() < SEARCHES


def hosts_up_to(count: int) -> str:
    return "host 0" if count == 1 else f"hosts 0 to {count - 1}"


def _start(job: Job, host: int | None, attempt: int | None, cursor: str) -> Cursor:
    """Where a reader begins. Raises BadRequest, and NotFound for an attempt or a host that the job never had: its log
    would just look empty."""
    newest = len(job.attempts)
    if attempt is not None and not 1 <= attempt <= newest:
        raise NotFound(f"job {job.id} has {many(newest, 'attempt')}, no attempt {attempt}")
    most = max((len(s.endpoints) for s in job.slices), default=0)
    if host is not None and most and not 0 <= host < most:
        raise NotFound(f"job {job.id} has {hosts_up_to(most)}, no host {host}")
    if not cursor:
        return Cursor(attempt or newest)
    given = cursors.read(cursor)
    if not 1 <= given.attempt <= newest:
        raise BadRequest("this cursor belongs to another job", hint="Begin without a cursor.")
    return given if attempt in (None, given.attempt) else Cursor(attempt or newest)


def _goes_on(job: Job, attempt: int | None, at: Cursor) -> bool:
    """Whether a reader goes on to the next attempt."""
    return attempt is None and at.attempt < len(job.attempts)


def _ended(job: Job, attempt: int | None, at: Cursor) -> bool:
    """Whether nothing more comes after what there is of that attempt."""
    return job.state.final if at.attempt == len(job.attempts) else attempt is not None


def _spot(hosts: HostLogs, asked: WindowAsked | SearchAsked, *, behind: bool) -> Spot | None:
    """The place that is asked for; None: none is."""
    if "line" in asked:
        of = asked.get("of", asked.get("host", 0))
        if of not in hosts:
            return window.begin(hosts)
        position = hosts[of].position(asked["line"])
        return window.spot_of(hosts, of, position, behind=behind)
    if "part" in asked:
        return window.spot_at(hosts, asked["part"])
    return None


def _query(asked: WindowAsked | SearchAsked) -> Query:
    return Query(
        asked.get("text", ""),
        asked.get("regexp", False),
        asked.get("ignore_case", False),
        bool(asked.get("traceback")),
    )


def _within(wanted: int, most: int) -> int:
    return min(max(1, wanted), most)


def _nothing(job: Job) -> LogWindow:
    return LogWindow(
        attempt=0, began_at="", lines=[], before=0, total=0, hosts=[], notes=[], cursor="",
        done=job.state.final,
    )  # fmt: skip
