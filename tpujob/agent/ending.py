"""The end of an attempt: the host is released, and what is to outlive it is shipped to the bucket."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from typing import List, Optional

from tpujob.agent.attempt import HostAttempt
from tpujob.agent.base import read_json
from tpujob.agent.preflight import invalidate
from tpujob.agent.setup import unmount_all
from tpujob.agent.storage import StorageError
from tpujob.agent.upload import OUTPUTS_PATIENCE, first_lines, number, pick_lines
from tpujob.protocol import Phase, VerdictDocument
from tpujob.protocol.limits import MAX_VERDICT_TEXT
from workloads.contract import EVENTS, VERDICT, Exit

FINAL_PATIENCE = 600.0  #: seconds that the last report and the rest of the log are tried
OUTPUTS_DOOMED = 20.0  #: seconds that outputs are tried when the host is about to be taken away
FLUSH = 60.0  #: seconds that the last report waits for the log
FLUSH_DOOMED = 5.0  #: the same when the host is about to be taken away
MOMENT = 1.0  #: seconds that it waits for uploads, unless that is so: if they end by then, the log ends before it
MAX_EVENTS = 16 * 1024 * 1024  #: bytes of the end of `events.jsonl` that are kept
#: the exit codes of a program that found a non-finite number and judged it
JUDGED = (Exit.NONFINITE, Exit.DEVICE)


def blame_memory(attempt: HostAttempt, code: Optional[int], killed: int) -> None:
    """Note it if the kernel killed the program for want of memory. `killed`: how many processes it killed meanwhile."""
    if killed > 0 and code not in (None, Exit.DONE, Exit.INTERRUPTED) and attempt.grace is None:
        attempt.log.note("the kernel killed for want of memory, processes: %d" % killed)
        if code in (-signal.SIGKILL, 128 + signal.SIGKILL):
            attempt.state.update(error="killed for want of memory", cause="OOM_HOST")


def finish(attempt: HostAttempt, code: Optional[int]) -> None:
    """Release the host with that exit code (None: the program was not started), so that the next attempt can begin.
    Then ship the last report, the rest of the log and the program's files, or try for long enough."""
    attempt.state["exit_code"] = code
    attempt.phase(Phase.EXITED, report=False)
    if code in JUDGED:  # the verdict of a replay weighs more than a line of output
        attempt.state.update(cause=None, error="", verdict=_verdict(attempt))
    elif (
        code == Exit.DONE and attempt.state["cause"] == "NONFINITE"
    ):  # it ended by itself, before it could be killed
        attempt.state.update(cause=None, error="", verdict=None)
        attempt.discards = False
    keep_outputs(attempt, code)
    _release_host(attempt)
    # some programs end with 0 on SIGTERM, and sooner than the next look for a notice
    if code != 0 or attempt.warned:
        attempt.notices.ask()
    attempt.listen()
    attempt.save_if_possible()
    if _devices_suspect(attempt, code):
        invalidate()
    if attempt.state["error"]:
        attempt.log.note(attempt.state["error"])
    doomed, evidence = bool(attempt.state["notice"]), _evidence(attempt, code)
    uploads = [] if doomed else _uploads(attempt, code)
    whole = _report(attempt, evidence, goes_on=bool(uploads))
    for name in (EVENTS, VERDICT):
        _ship_file(attempt, name)
    for upload in _uploads(attempt, code) if doomed else uploads:
        upload.join(FINAL_PATIENCE)
    if not whole:
        attempt.log.finish(FINAL_PATIENCE)


def _verdict(attempt: HostAttempt) -> Optional[VerdictDocument]:
    """Return the program's verdict on a non-finite number, or None if it wrote none."""
    record = read_json(os.path.join(attempt.folder.out, VERDICT))
    if not record:
        return None
    step, host = number(record.get("step")), number(record.get("host"))
    device, blame, text = (
        attempt.redactor.redact_text(str(record.get(key, "")))[:MAX_VERDICT_TEXT]
        for key in ("device", "blame", "text")
    )
    return VerdictDocument(step=step, host=host, device=device, blame=blame, text=text)


def keep_outputs(attempt: HostAttempt, code: Optional[int]) -> None:
    """Bring what is left of the program's folders to the bucket, before the next attempt on this host fetches them. A
    success whose outputs cannot be kept is none."""
    outputs = attempt.outputs
    if outputs is None:
        return
    attempt.listen()  # to the last lines of output: they may name a checkpoint
    doomed = bool(attempt.state["notice"])
    failed: List[str] = []
    patience = OUTPUTS_DOOMED if doomed else OUTPUTS_PATIENCE
    thread = threading.Thread(target=lambda: failed.append(outputs.finish(patience)), daemon=True)
    thread.start()
    while thread.is_alive():
        attempt.wake.wait(0.2)
        attempt.listen()
    attempt.listen()
    if failed and failed[0] and code == 0 and not doomed:
        attempt.state.update(error=failed[0], cause="CRASH")


def _release_host(attempt: HostAttempt) -> None:
    """The next attempt need not wait for the rest; its host 0 listens on the same port."""
    if attempt.host_lock is not None and not attempt.state["notice"]:
        with contextlib.suppress(OSError):  # a full disk: the next attempt finds what is gone
            unmount_all(attempt.log.note)
    for close in attempt.closers:
        close()
    if attempt.host_lock is not None:
        os.close(attempt.host_lock)


def _devices_suspect(attempt: HostAttempt, code: Optional[int]) -> bool:
    """Whether the devices may be to blame, so that an earlier check of them no longer holds."""
    if attempt.supervision is not None and attempt.supervision.has_stalled:
        return True
    return code not in (Exit.DONE, Exit.INTERRUPTED) and not attempt.must_stop()


def _uploads(attempt: HostAttempt, code: Optional[int]) -> List[threading.Thread]:
    """What goes to the bucket for later hosts, and takes longer than a moment. It may note in the log how it ended."""
    started = [attempt.keeping]
    if attempt.compile_cache is not None and attempt.plan["host"] == 0:
        started.append(attempt.compile_cache.finish(whole=code == 0))
    found, until = [upload for upload in started if upload is not None], time.monotonic() + MOMENT
    for upload in found:
        upload.join(max(0.0, until - time.monotonic()))
    return [upload for upload in found if upload.is_alive()]


def _evidence(attempt: HostAttempt, code: Optional[int]) -> bytes:
    """The lines that show why the program ended badly. What uploads note is no part of that."""
    lines = b"" if code in (Exit.DONE, Exit.INTERRUPTED) else pick_lines(attempt.log.tail())
    if lines and attempt.supervision and attempt.supervision.stacks:
        lines = first_lines(attempt.supervision.stacks)  # it was ended as it hung
    return lines


def _report(attempt: HostAttempt, lines: bytes, *, goes_on: bool) -> bool:
    """Write the last report: after the log, unless the host is about to be taken away. Return whether the log has ended
    and is shipped; it has not ended while it `goes_on`."""
    state, doomed = attempt.reported_state(), bool(attempt.state["notice"])
    if doomed:
        attempt.reporter.attach(lines, state)
    ship = attempt.log.flush if goes_on else attempt.log.finish
    shipped = ship(FLUSH_DOOMED if doomed else FLUSH)
    attempt.reporter.finish(state, lines, FINAL_PATIENCE)
    return shipped and not goes_on


def _ship_file(attempt: HostAttempt, name: str) -> None:
    path = os.path.join(attempt.folder.out, name)
    with contextlib.suppress(OSError, StorageError), open(path, "rb") as file:
        file.seek(max(0, os.path.getsize(path) - MAX_EVENTS))
        content = attempt.redactor.redact(file.read(MAX_EVENTS))
        attempt.storage.put("%s/%s" % (attempt.shipped_to, name), content)
