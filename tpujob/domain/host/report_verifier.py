"""Decides which reports of hosts are believed. Pure.

Every program with write access to the bucket can write objects in the place of reports. An object is rejected and
counted if the attempt's key has not signed it, if it repeats an older report, or if it is about something else.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from tpujob.domain.host.reports import ReportObject, host_of, verified_report
from tpujob.domain.model import Ignored, Job
from tpujob.domain.observations import HostReport

#: maximum seconds between a report's creation and its upload; an object written later is rejected as replayed
ON_THE_WAY = 120.0
#: seconds for which a rejected object counts as a disturbance. Its host overwrites it each minute; an agent that writes
#: no report for so long counts as dead (`failures/stall.py`).
DISTURBS = 1800.0


@dataclass(frozen=True, slots=True)
class SignedReport:
    """The newest believable report of a host."""

    report: HostReport
    since: float  #: when the report was made, or first seen in the bucket, by the storage's clock
    path: str  #: path of the report's object


#: why an object is rejected. Unverified: not signed with the key, or about something else. Replayed: signed, but older
#: than the newest report, or uploaded by others
Fault = Literal["", "unverified", "replayed"]


@dataclass(frozen=True, slots=True)
class VerifiedReports:
    """The verified reports of one attempt. Kept in memory only; a new process reads the bucket again."""

    attempt: int = 0
    newest: Mapping[int, SignedReport] = field(default_factory=dict[int, SignedReport])  #: by host
    unverified: int = 0  #: number of objects rejected as unverified
    replayed: int = 0  #: number of objects rejected as replayed
    #: the judged generation of each path
    judged: Mapping[str, int] = field(default_factory=dict[str, int])
    #: the rejected generation of each path, and when it was written, by the storage's clock
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
        """Return the numbers of rejected objects so far; None: no object was rejected."""
        if not self.unverified + self.replayed:
            return None
        return Ignored(self.unverified, self.replayed, now)

    def is_disturbed(self, now: float) -> bool:
        """Return whether a young, rejected object lies in the place of a report."""
        return any(
            self.judged.get(path) == generation and now - written < DISTURBS
            for path, (generation, written) in self.rejected.items()
        )


def add_reports(
    verified: VerifiedReports, job: Job, blobs: Iterable[ReportObject], *, key: str
) -> VerifiedReports:
    """Return `verified` with the reports of these objects."""
    for blob in blobs:
        if not verified.is_new(blob):
            continue
        host = host_of(job, blob.path)
        if host is None:
            continue
        fresh, fault = judge(job, host, blob, verified.newest.get(host), key)
        rejected = {blob.path: (blob.generation, blob.updated)} if fault else {}
        verified = replace(
            verified,
            newest={**verified.newest, host: fresh} if fresh else verified.newest,
            unverified=verified.unverified + (fault == "unverified"),
            replayed=verified.replayed + (fault == "replayed"),
            judged={**verified.judged, blob.path: blob.generation},
            rejected={**verified.rejected, **rejected},
        )
    return verified


def judge(
    job: Job, host: int, blob: ReportObject, newest: SignedReport | None, key: str
) -> tuple[SignedReport | None, Fault]:
    """Return the report in an object, if newer than `newest`, and the fault of the object."""
    signed = verified_report(job, host, blob.metadata, key)
    if signed is None:
        return None, "unverified"
    report, made_at = signed
    since = blob.updated if made_at is None else min(made_at, blob.updated)
    fresh = SignedReport(report, since, blob.path)
    if newest is None or report.seq > newest.report.seq:
        return fresh, "replayed" if blob.updated - since > ON_THE_WAY else ""
    delay = blob.updated - (newest.since if made_at is None else since)
    repeated = report.seq == newest.report.seq and delay <= (0.0 if made_at is None else ON_THE_WAY)
    return None, "" if repeated else "replayed"
