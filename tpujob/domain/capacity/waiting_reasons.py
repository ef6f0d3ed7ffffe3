"""The sentences about why a job waits in the queue. Pure."""

from collections.abc import Mapping

from tpujob.domain.model import Cause
from tpujob.domain.observations import PER_OWNER, Reason, ReasonKind
from tpujob.domain.text import duration, many, utc

_SENTENCES: Mapping[ReasonKind, str] = {
    ReasonKind.DEPENDENCY: "waits for the {what} of {jobs}",
    ReasonKind.HELD: "held{by}",
    ReasonKind.NOT_BEFORE: "may not start before {until}",
    ReasonKind.RETRY: "its next request is at {until}",
    ReasonKind.GROUP: "{count} of {what} {are} running, and the limit is {limit}",
    ReasonKind.RUNNING: "its owner runs {running}{on}, and the limit is {limit}",
    ReasonKind.CHIPS: "its owner holds {chips}{of}, and the limit is {limit}",
    ReasonKind.QUOTA: "{count} of {limit} chips of {what} {are} in use{free}",
    ReasonKind.RESERVED: "chips of {what} are kept free for {jobs}, which should start at {until}; this job may "
    "take {takes}",
    ReasonKind.ORDER: "waits behind {jobs} for the same hardware",
    ReasonKind.REQUESTED: "{requests} for {what} {are} in the cloud's queue: {jobs}",
    ReasonKind.REFUSED: "the cloud has refused {what} {times} since {since}, for want of {lack}; the next "
    "request for as much or more is at {until}",
    ReasonKind.TOO_BIG: "it needs {chips} of {what}, and {limited}",
    ReasonKind.HANDED_ON: "gets the slice of {jobs}, whose program has ended",
    ReasonKind.LARGER: "waits for a larger slice, {what}, until {until}; then it may take {how}",
    ReasonKind.GIVEN_WAY: "gets the chips of {jobs}, which {give} way to it",
}


def describe(reason: Reason) -> str:
    """Return the reason as one sentence without a full stop, for people."""
    subject = reason.what
    return _SENTENCES[reason.kind].format(
        jobs=", ".join(reason.jobs[:3]) + (" ..." if reason.count > 3 else ""),
        count=reason.count,
        running=many(reason.count, "job"),
        requests=many(reason.count, "request"),
        chips=many(reason.count, "chip"),
        are="is" if reason.count == 1 else "are",
        give="gives" if reason.count == 1 else "give",
        limit=reason.limit,
        times=many(reason.count, "time"),
        until=_clock(reason.until),
        since=_clock(reason.since),
        lack="capacity" if reason.how == Cause.STOCKOUT else "quota",
        limited=_limited(reason),
        takes=duration(reason.limit),
        free=_free(reason),
        what=subject,
        how=reason.how,
        by=f" by {subject}" if subject else " since its submission",
        of=f" of {subject}" if subject else "",
        on=f" on {subject}" if subject else "",
    )


def _free(reason: Reason) -> str:
    """Say when enough chips of a quota should be free; empty: another job comes first."""
    if reason.until is None:
        return ""
    text = f"; enough should be free at {_clock(reason.until)}"
    if reason.since is None:
        return text
    return f"{text}; from {_clock(reason.since)} on, no job that takes longer passes it"


def _limited(reason: Reason) -> str:
    """Say which limit a job exceeds, and how that is known."""
    if reason.how == PER_OWNER:
        return f"the limit of each owner is {reason.limit}"
    if reason.since is None:
        return f"the settings of the queue give the project {reason.limit}"
    known = f"the project has {reason.limit}, by the cloud's answer of {_clock(reason.since)}"
    return f"{known}; the next request is at {_clock(reason.until)}"


def _clock(at: float | None) -> str:
    return utc(at or 0.0)
