"""Decides which reports of hosts are believed. Pure.

Anybody who can write to the bucket can put anything where reports lie. What the key of the attempt has not signed, what
was reported before, and what is about something else is rejected, and counted.

An object of an agent of before has the reports of many hosts (`protocol/old_slice_report.py`), so that several objects
may have reports of one host: the one with the highest number counts.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, cast

from tpujob.domain.host.reports import ReportObject, host_of, report_of, verified_report
from tpujob.domain.model import Ignored, Job
from tpujob.domain.observations import HostReport
from tpujob.protocol import old_slice_report

#: seconds, at most, from the making of a report to its place in the bucket: a later one was put there by others
ON_THE_WAY = 120.0
#: seconds for which it matters that others have written an object: its host writes there each minute, and after so long
#: without a report its agent is gone (`failures/stall.py`)
DISTURBS = 1800.0


@dataclass(frozen=True, slots=True)
class SignedReport:
    """The newest believable report of a host."""

    report: HostReport
    since: float  #: when it was made, or first seen in the bucket, by the storage's clock
    path: str  #: of the object that has it


#: what is wrong with an object. Unverified: it is not signed with the key, or is about something else. Replayed: it is
#: signed, and is older than what is known, or was put there by others
Fault = Literal["", "unverified", "replayed"]


@dataclass(frozen=True, slots=True)
class VerifiedReports:
    """What is known of one attempt. Lost with its process, and read again from the bucket."""

    attempt: int = 0
    newest: Mapping[int, SignedReport] = field(default_factory=dict[int, SignedReport])  #: by host
    unverified: int = 0  #: objects that were rejected as such
    replayed: int = 0
    #: path -> generation that was judged
    judged: Mapping[str, int] = field(default_factory=dict[str, int])
    #: path -> generation that was rejected, and when it was written, by the storage's clock
    rejected: Mapping[str, tuple[int, float]] = field(default_factory=dict[str, tuple[int, float]])

    def is_new(self, blob: ReportObject) -> bool:
        return self.judged.get(blob.path) != blob.generation

    def reports(self, now: float) -> tuple[HostReport, ...]:
        """Return the newest report of each host, by host, with its age at `now` by the storage's clock."""
        return tuple(
            replace(signed.report, age=max(0.0, now - signed.since))
            for _, signed in sorted(self.newest.items())
        )

    def ignored(self, now: float) -> Ignored | None:
        """Return what was rejected so far; None: nothing."""
        if not self.unverified + self.replayed:
            return None
        return Ignored(self.unverified, self.replayed, now)

    def is_disturbed(self, now: float) -> bool:
        """Return whether an object that was rejected, and is young, lies where hosts report."""
        return any(
            self.judged.get(path) == generation and now - written < DISTURBS
            for path, (generation, written) in self.rejected.items()
        )


def add_reports(
    known: VerifiedReports,
    job: Job,
    blobs: Iterable[ReportObject],
    *,
    key: str,
    bodies: Mapping[str, bytes] | None = None,
) -> VerifiedReports:
    """Return `known` with what these objects say. `bodies`: of objects with the reports of many hosts, by path; without
    its body such an object is left for the next time."""
    for blob in blobs:
        if not known.is_new(blob):
            continue
        host = host_of(job, blob.path)
        if host is None:
            continue
        if not old_slice_report.is_slice_report(blob.metadata):
            fresh, fault = judge(job, host, blob, known.newest.get(host), key)
        elif bodies is not None and blob.path in bodies:
            fresh, fault = judge_slice(job, blob, bodies[blob.path], known.newest, key)
        else:
            continue
        rejected = {blob.path: (blob.generation, blob.updated)} if fault else {}
        known = replace(
            known,
            newest={**known.newest, **{signed.report.host: signed for signed in fresh}},
            unverified=known.unverified + (fault == "unverified"),
            replayed=known.replayed + (fault == "replayed"),
            judged={**known.judged, blob.path: blob.generation},
            rejected={**known.rejected, **rejected},
        )
    return known


def judge(
    job: Job, host: int, blob: ReportObject, newest: SignedReport | None, key: str
) -> tuple[Sequence[SignedReport], Fault]:
    """Return the report in an object, if it is newer than `newest`, and what is wrong with the object."""
    signed = verified_report(job, host, blob.metadata, key)
    if signed is None:
        return (), "unverified"
    report, at = signed
    since = blob.updated if at is None else min(at, blob.updated)
    made = SignedReport(report, since, blob.path)
    if newest is None or report.seq > newest.report.seq:
        return (made,), "replayed" if blob.updated - since > ON_THE_WAY else ""
    late = blob.updated - (newest.since if at is None else since)
    again = report.seq == newest.report.seq and late <= (0.0 if at is None else ON_THE_WAY)
    return (), "" if again else "replayed"


def judge_slice(
    job: Job, blob: ReportObject, body: bytes, newest: Mapping[int, SignedReport], key: str
) -> tuple[Sequence[SignedReport], Fault]:
    """The same for an object with the reports of many hosts, by its body, which may be newer than the rest."""
    content = old_slice_report.read_slice_report(body, key)
    if content is None:
        return (), "unverified"
    written = blob.updated if content.at is None else min(content.at, blob.updated)
    fresh: list[SignedReport] = []
    old = 0
    for one in content.reports:
        report = report_of(job, one.host, cast(dict[str, object], one.document))
        if report is None:
            return (), "unverified"
        known = newest.get(one.host)
        if known is None or report.seq > known.report.seq:
            fresh.append(SignedReport(report, written - one.age, blob.path))
        old += known is not None and known.path == blob.path and report.seq < known.report.seq
    late = blob.updated - written > ON_THE_WAY
    return fresh, "replayed" if late or (old and not fresh) else ""
