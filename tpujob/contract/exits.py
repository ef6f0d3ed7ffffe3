"""The exit codes of a program."""

from enum import IntEnum


class Exit(IntEnum):
    """tpujob decides by these and never by a line of log."""

    DONE = 0  #: finished, on every host; after a notice only with the event `events.DONE`
    #: NaN or Inf, and a replay says that the model or the data made it; or `verdict.json` says that it is unknown which
    NONFINITE = 65
    ERROR = 70  #: any other error
    DEVICE = 71  #: NaN or Inf, and a replay says that a device made it; `verdict.json` names it
    INTERRUPTED = 75  #: stopped by SIGTERM; a checkpoint is committed; run me again
    PEER = 76  #: another host died; look there for the cause
    CONFIG = 78  #: bad configuration; running it again cannot help
