"""The sentences about why a job waits in the queue. Pure."""

from datetime import UTC, datetime

from tpujob.domain.observations import Reason, ReasonKind
from tpujob.domain.text import many


def describe(reason: Reason) -> str:
    """Return the reason as one sentence without a full stop, for people."""
    named = ", ".join(reason.jobs[:3]) + (" ..." if reason.count > 3 else "")
    match reason.kind:
        case ReasonKind.DEPENDENCY:
            return f"waits for the {reason.what} of {named}"
        case ReasonKind.HELD:
            return f"held by {reason.what}" if reason.what else "held since its submission"
        case ReasonKind.NOT_BEFORE:
            return f"may not start before {_time(reason.until)}"
        case ReasonKind.RETRY:
            return f"its next request is at {_time(reason.until)}"
        case ReasonKind.GROUP:
            return f"{reason.count} of {reason.what} run, and at most {reason.limit} may at once"
        case ReasonKind.RUNNING:
            of = f" on {reason.what}" if reason.what else ""
            return (
                f"its owner runs {many(reason.count, 'job')}{of}, and the limit is {reason.limit}"
            )
        case ReasonKind.CHIPS:
            of = f" of {reason.what}" if reason.what else ""
            return f"its owner holds {reason.count} chips{of}, and the limit is {reason.limit}"
        case ReasonKind.QUOTA:
            return f"{reason.count} of {reason.limit} chips of {reason.what} are in use"
        case ReasonKind.RESERVED:
            return f"chips of {reason.what} are kept free for {named}, which needs more of them"
        case ReasonKind.ORDER:
            return f"waits behind {named} for the same hardware"
        case ReasonKind.REQUESTED:
            return f"{many(reason.count, 'request')} for {reason.what} wait in the cloud's queue: {named}"
        case ReasonKind.REFUSED:
            return f"the cloud has refused {reason.what}; next request at {_time(reason.until)}"
        case ReasonKind.HANDED_ON:
            return f"gets the slice of {named}, whose program has ended"


def _time(at: float | None) -> str:
    return datetime.fromtimestamp(at or 0.0, UTC).strftime("%Y-%m-%d %H:%M UTC")
