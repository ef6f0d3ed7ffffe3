"""The end of an attempt: the host is let go of, and all that is to outlive it goes to the bucket."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Optional

from tpujob.agent.attempt import Attempt
from tpujob.agent.base import Record, read_json
from tpujob.agent.preflight.cache import doubt
from tpujob.agent.setup.mounts import unmount_all
from tpujob.agent.ship.evidence import evidence, first_lines
from tpujob.agent.ship.reports import number
from tpujob.agent.storage import StorageError
from workloads.contract import EVENTS, VERDICT, Exit

FINAL_PATIENCE = 600.0  #: seconds that the last report and the rest of the log are tried
FLUSH = 60.0  #: seconds that the last report waits for the log
FLUSH_DOOMED = 5.0  #: the same when the host is about to be taken away
MAX_EVENTS = 16 * 1024 * 1024  #: bytes of the end of `events.jsonl` that are kept
#: the exit codes of a program that found a non-finite number and judged it
JUDGED = (Exit.NONFINITE, Exit.DEVICE)


def blame_memory(attempt: Attempt, code: Optional[int], killed: int) -> None:
    """The record says so if the kernel killed for want of memory; `killed`: how many processes, meanwhile."""
    if killed > 0 and code not in (None, Exit.DONE, Exit.INTERRUPTED) and attempt.grace is None:
        attempt.log.note("the kernel killed for want of memory, processes: %d" % killed)
        if code in (-signal.SIGKILL, 128 + signal.SIGKILL):
            attempt.state.update(error="killed for want of memory", cause="OOM_HOST")


def finish(attempt: Attempt, code: Optional[int]) -> None:
    """The attempt has exited with that code (None: its program was not started) and the next may begin; then what it
    has to say is in the bucket, or was tried for long enough."""
    attempt.state["exit_code"] = code
    attempt.phase("exited", said=False)
    if code in JUDGED:  # what a replay says weighs more than a line of output
        attempt.state.update(cause=None, error="", verdict=_verdict(attempt))
    _let_go(attempt)
    if code != 0:
        attempt.notices.ask()
    attempt.listen()
    attempt.save_if_possible()
    if _doubtful(attempt, code):
        doubt()
    if attempt.state["error"]:
        attempt.log.note(attempt.state["error"])
    flushed = _report(attempt, code)
    for name in (EVENTS, VERDICT):
        _ship_file(attempt, name)
    if attempt.compiled is not None and attempt.plan["host"] == 0:
        attempt.compiled.finish(whole=code == 0)
    if attempt.keeping is not None:
        attempt.keeping.join(FINAL_PATIENCE)
    if not flushed:
        attempt.log.finish(FINAL_PATIENCE)


def _verdict(attempt: Attempt) -> Optional[Record]:
    """Where the program says that a non-finite number came from; None: it does not say."""
    said = read_json(os.path.join(attempt.out, VERDICT))
    if not said:
        return None
    numbers = {key: number(said.get(key)) for key in ("step", "host")}
    texts = {key: str(said.get(key, ""))[:300] for key in ("device", "blame", "text")}
    return dict(numbers, **texts)


def _let_go(attempt: Attempt) -> None:
    """The next attempt need not wait for the rest."""
    if attempt.host_lock is None:
        return
    if not attempt.state["notice"]:
        with contextlib.suppress(OSError):  # a full disk: the next attempt finds what is gone
            unmount_all(attempt.log.note)
    os.close(attempt.host_lock)


def _doubtful(attempt: Attempt, code: Optional[int]) -> bool:
    """Whether the devices may be to blame."""
    if attempt.supervision is not None and attempt.supervision.has_stalled:
        return True
    return code not in (Exit.DONE, Exit.INTERRUPTED) and not attempt.told()


def _report(attempt: Attempt, code: Optional[int]) -> bool:
    """The last report, behind the log unless the host is about to be taken away. Whether all of the log is shipped."""
    last_words = b"" if code in (Exit.DONE, Exit.INTERRUPTED) else evidence(attempt.log.tail())
    if last_words and attempt.supervision and attempt.supervision.stacks:
        last_words = first_lines(attempt.supervision.stacks)  # it was ended as it hung
    said, doomed = attempt.said(), bool(attempt.state["notice"])
    if doomed:
        attempt.reporter.hurry(said, last_words)
    flushed = attempt.log.finish(FLUSH_DOOMED if doomed else FLUSH)
    attempt.reporter.finish(said, last_words, FINAL_PATIENCE)
    return flushed


def _ship_file(attempt: Attempt, name: str) -> None:
    path = os.path.join(attempt.out, name)
    with contextlib.suppress(OSError, StorageError), open(path, "rb") as file:
        file.seek(max(0, os.path.getsize(path) - MAX_EVENTS))
        attempt.storage.put("%s/%s" % (attempt.shipped_to, name), file.read(MAX_EVENTS))
