"""Remarks for the reader of a log, as sentences."""

from collections.abc import Sequence

from tpujob.api import LogGap, LogHost
from tpujob.domain.model import Cause, Job, Outcome
from tpujob.domain.text import many, rfc3339
from tpujob.service.logs.live_stream import Tails
from tpujob.service.logs.reader import HostLog, LogReader
from tpujob.service.logs.segments import MAX_SEGMENTS


def slow(tails: Tails) -> str:
    """Return why lines come late; empty: they do not."""
    if tails.whole or tails.over or not tails.trouble:
        return ""
    return (
        f"Lines come up to five minutes late: the hosts cannot be followed over SSH ({tails.trouble}), so that what"
        " they print is read from the bucket."
    )


def unfinished(job: Job, attempt: int, log: LogReader, host: int | None = None) -> list[str]:
    """Return what is missing at the end of a log whose slice is gone. `host`: only of that host."""
    record = job.attempts[attempt - 1]
    slice = next((s for s in job.slices if s.name == record.slice), None)
    if slice is None or slice.gone_at is None or record.ended_at is None:
        return []
    open_ones = {
        of: newest.last
        for of, host_log in log.logs.items()
        if (newest := host_log.segments[-1]).facts.open and newest.data is None
    }
    remarks: list[str] = []
    if open_ones:
        of, line = next(iter(open_ones.items()))
        remarks.append(
            f"What {_named([*open_ones])} printed last, before {rfc3339(record.ended_at)[:19]}Z, may be missing: it"
            f" ended before its agent had stored the rest; line {line:,} of host {of} is the last one that reached the"
            " bucket."
        )
    hosts = range(len(slice.endpoints)) if host is None else [host]
    without = [of for of in hosts if of not in log.logs]
    taken = record.outcome is Outcome.INTERRUPTED and record.cause not in _UNHURRIED
    if without and taken and record.running_at is not None:
        remarks.append(
            f"Nothing that {_named(without)} printed is in the bucket: it printed nothing, or ended before its agent"
            " had stored any of it."
        )
    return remarks


#: causes of interruptions that leave the agent time to store the log
_UNHURRIED = (Cause.CANCELLED, Cause.RESTART, Cause.GAVE_WAY)


def _named(hosts: Sequence[int]) -> str:
    others = f" and {many(len(hosts) - 1, 'other host')}" if len(hosts) > 1 else ""
    return f"host {hosts[0]}{others}"


def of_host(log: HostLog) -> LogHost:
    gaps = [LogGap(line=line, lines=lines) for line, lines in log.missing]
    return LogHost(host=log.host, lines=log.lines, bytes=log.size, missing=gaps)


def of_lines(log: LogReader, host: int | None) -> list[str]:
    """Return which lines are not shown, and why."""
    remarks = [
        f"Host {host_log.host}: {many(lines, 'line')} from line {line:,} on {'is' if lines == 1 else 'are'} missing:"
        " the log is longer than what is kept of one, or its agent was restarted before it had stored them."
        for host_log in log.logs.values()
        for line, lines in host_log.missing
    ]
    if host is None and sum(len(x.segments) for x in log.logs.values()) >= MAX_SEGMENTS:
        remarks.insert(
            0,
            f"Only the first {MAX_SEGMENTS:,} pieces of the log are shown;"
            " `tpujob logs --host K` shows all of one host.",
        )
    return remarks
