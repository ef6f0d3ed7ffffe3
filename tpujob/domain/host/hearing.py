"""Which reports of hosts are believed. Whoever can write to the bucket can put anything where reports lie: what the key
of the attempt has not signed, what was said before, and what speaks of something else is passed over, and counted.

One object has the words of many hosts (`protocol/slice_report.py`), and several objects may have words of the same
host, as another host spoke for it before: the one with the highest number counts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from tpujob.domain.host.reports import ReportObject, host_of, read_signed, report_of
from tpujob.domain.model import Ignored, Job
from tpujob.domain.observations import Report
from tpujob.protocol import Phase, slice_report

#: seconds, at most, from the making of an object to its place in the bucket: a later one was put there by others
ON_THE_WAY = 120.0
#: a host that was silent for so long when the word of all was written may speak for itself elsewhere, in seconds
SILENT = 30.0
#: seconds that the next word may be late: it is looked at every ten
LATE = 20.0
#: seconds for which it matters that somebody else has written an object: whichever host writes there does so each
#: minute, and after so long without a word of it its agent is gone (`failures/stall.py`)
DISTURBS = 1800.0
#: times that a body is read which its hosts have not signed
TRIES = 3


@dataclass(frozen=True, slots=True)
class Word:
    """The newest report of a host."""

    report: Report
    since: float  #: when it was said, or first seen in the bucket, by the storage's clock
    path: str  #: of the object that has it
    written: float  #: when that was written, by the storage's clock


@dataclass(frozen=True, slots=True)
class Known:
    """The objects that say all that there is to know of an attempt, as far as they tell."""

    paths: frozenset[str] = frozenset()
    until: float = 0.0  #: by the storage's clock; from then on another host may have come to speak


@dataclass(slots=True)
class Hearing:
    """What was heard of one attempt. Lost with its process, and heard again: how old a word is, is signed with it."""

    attempt: int
    words: dict[int, Word] = field(default_factory=dict[int, Word])
    unverified: int = 0  #: objects that were not signed with the key, or speak of something else
    replayed: int = 0  #: objects that were signed, and are older than what was heard
    #: objects that have more to say than their metadata, which cannot be understood without it
    unread: list[ReportObject] = field(default_factory=list[ReportObject])
    disturbed: bool = False  #: in the last look there was something young that was not believed
    _done: dict[str, int] = field(
        default_factory=dict[str, int]
    )  #: path -> generation that is known
    _passed_over: dict[str, int] = field(default_factory=dict[str, int])  #: the same, not believed
    _newest: dict[str, int] = field(
        default_factory=dict[str, int]
    )  #: path -> highest number of a word in it
    #: path -> generation, and how often a body of it was read that is not signed
    _tried: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    #: of the object of a host, the hash of what only its body has, and that
    _left: dict[str, tuple[str, slice_report.Body]] = field(
        default_factory=dict[str, tuple[str, slice_report.Body]]
    )

    def hear(
        self, job: Job, blobs: Iterable[ReportObject], *, key: str | None, now: float
    ) -> tuple[Report, ...]:
        """The newest believable report of each host, by host; of one whose object is passed over, the one before.
        `key`: None for an attempt of an agent that does not sign. `now`: the storage's own time. Afterwards `unread`
        has the objects whose body is to be given to `read`."""
        self.unread, self.disturbed = [], False
        for blob in blobs:
            host = host_of(job, blob.path)
            if host is None:
                continue
            if self._done.get(blob.path) != blob.generation:
                self._hear(job, host, blob, key)
            passed_over = self._passed_over.get(blob.path) == blob.generation
            self.disturbed |= passed_over and now - blob.updated < DISTURBS
        return self.reports(now)

    def reports(self, now: float) -> tuple[Report, ...]:
        """Of each host that was heard, by host."""
        return tuple(
            replace(word.report, age=max(0.0, now - word.since))
            for _, word in sorted(self.words.items())
        )

    def ignored(self, now: float) -> Ignored | None:
        """What was not believed so far; None: everything was."""
        if not self.unverified + self.replayed:
            return None
        return Ignored(self.unverified, self.replayed, now)

    def known(self, job: Job, every: float) -> Known:
        """Until when it is enough to look at the objects that have the newest words: while every host has one, none
        that goes on was silent when it was written, and the next one is not overdue. `every`: seconds between two
        reports."""
        going = [w for w in self.words.values() if w.report.phase != Phase.EXITED]
        whole = len(self.words) >= job.hosts and self.attempt == (
            job.attempt and job.attempt.number
        )
        # an age is told in whole seconds
        if not whole or not going or any(round(w.written - w.since) >= SILENT for w in going):
            return Known()
        until = min(w.written for w in going) + every + LATE
        return Known(frozenset(w.path for w in self.words.values()), until)

    def read(self, job: Job, blob: ReportObject, body: bytes, *, key: str) -> None:
        """Take in the body of an object of `unread`. It may be newer than that."""
        found = slice_report.read_body(body, key)
        summary = slice_report.read_summary(blob.metadata, key)
        if found is None or summary is None:
            return self._broken(blob)
        if [w.said.get("seq") for w in found.words] == [w.said.get("seq") for w in summary.words]:
            self._left[blob.path] = summary.left, found
        self._done[blob.path] = blob.generation
        return self._take_all(job, blob, found.words, found.at)

    def _hear(self, job: Job, host: int, blob: ReportObject, key: str | None) -> None:
        if key is not None and slice_report.is_slice(blob.metadata):
            return self._hear_slice(job, blob, key)
        self._done[blob.path] = blob.generation
        report = read_signed(job, host, blob.metadata, key)
        if report is None:
            return self._doubt(blob)
        known = self.words.get(host)
        if key is None or known is None or report.seq > known.report.seq:
            self.words[host] = Word(report, blob.updated, blob.path, blob.updated)
        elif report.seq < known.report.seq or blob.updated > known.since:
            self.replayed += 1
            self._passed_over[blob.path] = blob.generation
        return None

    def _hear_slice(self, job: Job, blob: ReportObject, key: str) -> None:
        summary = slice_report.read_summary(blob.metadata, key)
        if summary is None:
            self._done[blob.path] = blob.generation
            return self._doubt(blob)
        words: Sequence[slice_report.Word] = summary.words
        if summary.left:
            known = self._left.get(blob.path)
            if known is None or known[0] != summary.left:
                self.unread.append(blob)
                return None
            words = slice_report.completed(summary, known[1])
        self._done[blob.path] = blob.generation
        return self._take_all(job, blob, words, summary.at)

    def _take_all(
        self,
        job: Job,
        blob: ReportObject,
        words: Sequence[slice_report.Word],
        at: float | None,
    ) -> None:
        found = [(w, report_of(job, w.host, cast(dict[str, object], w.said))) for w in words]
        known = [(word, report) for word, report in found if report is not None]
        if len(known) < len(found):
            return self._doubt(blob)
        written = blob.updated if at is None else min(at, blob.updated)
        for word, report in known:
            last = self.words.get(word.host)
            if last is None or report.seq > last.report.seq:
                self.words[word.host] = Word(report, written - word.age, blob.path, written)
        newest = max((report.seq for _, report in known), default=0)
        if newest < self._newest.get(blob.path, 0) or blob.updated - written > ON_THE_WAY:
            self.replayed += 1
            self._passed_over[blob.path] = blob.generation
        self._newest[blob.path] = max(newest, self._newest.get(blob.path, 0))
        return None

    def _broken(self, blob: ReportObject) -> None:
        """Its body is not what its hosts have signed. That may be a newer object's, or come of a fault, so it is read
        again; each time costs up to a whole body."""
        generation, times = self._tried.get(blob.path, (blob.generation, 0))
        times = times + 1 if generation == blob.generation else 1
        self._tried[blob.path] = blob.generation, times
        if times >= TRIES:
            self._done[blob.path] = blob.generation
            self._doubt(blob)

    def _doubt(self, blob: ReportObject) -> None:
        self.unverified += 1
        self._passed_over[blob.path] = blob.generation
