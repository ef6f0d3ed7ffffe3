"""Whether a backend does its work: what of it is bad, since when, and what to do. Pure.

The loop and the store are looked at in `itself.py`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tpujob.api import TroubleView
from tpujob.domain.text import duration, many
from tpujob.engine import Pulse

#: seconds after which the last pass is too old: three times as long as a pass may take to come
LATE, LATE_CALLED = 90.0, 180.0
#: seconds after which a tick is strange: a copy, or a program's grace, may take minutes
LONG_TICK = 900.0
#: seconds of a cheap read of the store after which it slows everything down
SLOW_READ = 1.0
#: seconds after which a message is late: its channel fails, or no process sends it
OVERDUE = 300.0


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """What its wiring knows of a backend's process."""

    context: str = ""
    store: str = ""  #: where jobs are kept: `sqlite` or `firestore`
    started_at: float = 0.0
    channels_file: str = ""  #: of the local stack: where its notification channels are configured
    called: bool = False  #: it only works while it is called
    schemas: dict[str, int] = field(default_factory=dict[str, int])  #: versions of what it stores


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen at once."""

    now: float
    pulse: Pulse
    read_s: float | None = None  #: how long a cheap read of the store took; None: it failed
    store_error: str = ""
    overdue: int = 0  #: messages that were not delivered for too long


def is_late(process: ProcessFacts, pulse: Pulse, now: float) -> bool:
    """Whether the last pass is older than it can be where jobs are looked after."""
    if process.called:
        began, most = process.started_at, LATE_CALLED
    elif pulse.started_at is not None:
        began, most = pulse.started_at, LATE
    else:  # its loop was not started: it only answers
        return False
    return now - max(began, pulse.passed_at or 0.0) > most


def troubles(process: ProcessFacts, look: Look) -> Iterator[TroubleView]:
    """The worst first."""
    pulse, now = look.pulse, look.now
    if look.read_s is None:
        yield TroubleView(
            about="store",
            text=f"the store cannot be read: {look.store_error}",
            hint="No job is looked after until it can. `tpujob doctor` checks what it needs.",
        )
    elif look.read_s > SLOW_READ:
        yield TroubleView(
            about="store",
            text=f"a read of the store takes {duration(look.read_s)}, where milliseconds are usual",
            hint="Everything waits for it: see how busy the disk, or the database, is.",
        )
    if is_late(process, pulse, now):
        ago = "never" if pulse.passed_at is None else f"{duration(now - pulse.passed_at)} ago"
        yield TroubleView(about="loop", text=f"the last pass over the jobs was {ago}", hint=_cure(process))  # fmt: skip
    if pulse.longest_s > LONG_TICK:
        yield TroubleView(
            about="loop",
            text=f"the tick of a job has gone on for {duration(pulse.longest_s)}",
            hint="The others go on. The log says which job it is, and what it last did.",
        )
    if look.overdue:
        yield TroubleView(
            about="notifications",
            text=f"{many(look.overdue, 'message')} not delivered for more than {duration(OVERDUE)}",
            hint="`tpujob notifications` shows what each channel answers.",
        )


def _cure(process: ProcessFacts) -> str:
    if process.called:
        return (
            "No process looks after the jobs. Cloud Scheduler calls the backend once a minute: see whether its job is "
            "paused, and what its calls are answered: `gcloud scheduler jobs describe`."
        )
    return (
        "No process looks after the jobs; their programs go on. Restart the backend, `tpujob down` and then "
        "`tpujob up` on this machine: it goes on where it was."
    )
