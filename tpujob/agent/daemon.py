"""The detached process of one attempt: how it is started, the steps from the plan to the last report, and
what is shipped to the bucket at the end.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
import traceback
from typing import List, Optional

from tpujob.agent.attempt import HostAttempt
from tpujob.agent.base import Failure, LaunchSecrets, Stopped, read_json, remove_file, take_lock
from tpujob.agent.commands import run_program
from tpujob.agent.folders import AttemptFolder
from tpujob.agent.processes import end_all, family, free_devices, kernel_kills
from tpujob.agent.setup import fetch_bundle, steps, unmount_all
from tpujob.agent.setup.preflight import invalidate
from tpujob.agent.storage import StorageError
from tpujob.agent.upload import OUTPUTS_PATIENCE, first_lines, number, pick_lines
from tpujob.protocol import Phase, Plan, VerdictDocument
from tpujob.protocol.limits import MAX_VERDICT_TEXT
from workloads.contract import EVENTS, VERDICT, Exit

# How it is started ---------------------------------------------------------------------------------------------------


def spawn(plan: Plan, folder: AttemptFolder, launch: LaunchSecrets) -> int:
    """Start the attempt's daemon. Return its pid once it has its lock and its record. Raise Failure if it does not."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        code = 1
        try:
            os.setsid()
            if os.fork() == 0:
                _be_daemon(plan, folder, launch, writer)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writer)
    os.wait()
    with open(reader, "rb") as pipe:
        answer = pipe.readline()  # empty: it has ended
    if not answer.strip().isdigit():
        error = answer.decode("utf-8", "replace").strip() or "it did not come up"
        raise Failure("the agent's daemon: %s" % error)
    return int(answer)


def _be_daemon(plan: Plan, folder: AttemptFolder, launch: LaunchSecrets, answer: int) -> None:
    """Run the attempt in the detached process. Write its pid, or an error, to `answer` first."""
    try:
        os.makedirs(folder.path, mode=0o700, exist_ok=True)
        remove_file(folder.stop)
        _detach(folder.agent_log, answer)
        lock = take_lock(folder.lock, 10)
        if lock is None:
            raise OSError("%s is in use" % folder.path)
        attempt = HostAttempt(plan, folder, launch)
        attempt.save()
        os.write(answer, b"%d\n" % os.getpid())
    except OSError as error:
        os.write(answer, ("%s\n" % error).encode())
        return
    os.close(answer)
    run(attempt)


def _detach(log: str, keep: int) -> None:
    """Close what belongs to the session that started this process."""
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDONLY)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for descriptor, standard in ((null, 0), (file, 1), (file, 2)):
        os.dup2(descriptor, standard)
    for descriptor in [int(name) for name in os.listdir("/proc/self/fd")]:
        if descriptor > 2 and descriptor != keep:
            with contextlib.suppress(OSError):
                os.close(descriptor)


# The steps -----------------------------------------------------------------------------------------------------------


def run(attempt: HostAttempt) -> None:
    """Go through the attempt to its end, whatever happens."""
    attempt.open()
    kills = kernel_kills()
    code = _exit_code(attempt)
    killed = kernel_kills() - kills
    if killed > 0 and code not in (None, Exit.DONE, Exit.INTERRUPTED) and attempt.grace is None:
        attempt.log.note("the kernel killed for want of memory, processes: %d" % killed)
        if code in (-signal.SIGKILL, 128 + signal.SIGKILL):
            attempt.state.update(error="killed for want of memory", cause="OOM_HOST")
    finish(attempt, code)


def _exit_code(attempt: HostAttempt) -> Optional[int]:
    """Return the program's exit code; None: it was not started, and the record says why. Raises nothing."""
    try:
        return _run_steps(attempt)
    except Stopped:
        return -signal.SIGTERM
    except Failure as failure:
        attempt.fail(failure)
    except Exception as error:  # a mistake here must not leave a program without its keeper
        traceback.print_exc()
        end_all(lambda: family(attempt.folder.path), attempt.plan["grace"])
        attempt.fail(Failure("the agent failed: %r" % error, "CRASH"))
    return None


def _run_steps(attempt: HostAttempt) -> int:
    """Every step up to the program's end; returns its exit code. Raises Failure, Stopped."""
    plan = attempt.plan
    os.makedirs(attempt.folder.out, exist_ok=True)
    attempt.aside(lambda: steps.check_machine(attempt))
    attempt.aside(lambda: steps.take_over_host(attempt), whole=True)
    bundles = attempt.aside(lambda: [fetch_bundle(attempt.storage, b) for b in plan["bundles"]])
    steps.prepare_environment(attempt, bundles)
    steps.stage_data(attempt)
    steps.prepare_folder(attempt, bundles)
    steps.restore_outputs(attempt)
    attempt.phase(Phase.CLEARING)
    attempt.aside(lambda: free_devices(plan["grace"]), whole=True)
    steps.run_preflight(attempt)
    steps.fetch_compile_cache(attempt)
    return run_program(attempt)


# The end -------------------------------------------------------------------------------------------------------------


FINAL_PATIENCE = 600.0  #: seconds that the last report and the rest of the log are tried
OUTPUTS_DOOMED = 20.0  #: seconds that outputs are tried when the host is about to be taken away
FLUSH = 60.0  #: seconds that the last report waits for the log
FLUSH_DOOMED = 5.0  #: the same when the host is about to be taken away
MOMENT = 1.0  #: seconds that it waits for uploads, unless that is so: what they note later is in `agent.log`
MAX_EVENTS = 16 * 1024 * 1024  #: bytes of the end of `events.jsonl` that are kept
#: the exit codes of a program that found a non-finite number and judged it
JUDGED = (Exit.NONFINITE, Exit.DEVICE)


def finish(attempt: HostAttempt, code: Optional[int]) -> None:
    """Release the host with that exit code (None: the program was not started), so that the next attempt can begin.
    Then ship the last report, the rest of the log and the program's files, or try for long enough."""
    attempt.state["exit_code"] = code
    attempt.phase(Phase.EXITED, report=False)
    if code in JUDGED:  # the verdict of a replay weighs more than a line of output
        attempt.state.update(cause=None, error="", verdict=_verdict(attempt))
    elif code == Exit.DONE and attempt.state["cause"] == "NONFINITE":
        # it ended by itself, before it could be killed
        attempt.state.update(cause=None, error="", verdict=None)
        attempt.discards = False
    keep_outputs(attempt, code)
    _release_host(attempt)
    # some programs end with 0 on SIGTERM, and sooner than the next look for a notice
    if code != 0 or attempt.warned:
        attempt.notices.ask()
    attempt.listen()
    attempt.save_if_possible()
    stalled = attempt.supervision is not None and attempt.supervision.has_stalled
    failed = code not in (Exit.DONE, Exit.INTERRUPTED) and not attempt.must_stop()
    if stalled or failed:  # devices may be to blame: an earlier check of them no longer holds
        invalidate()
    if attempt.state["error"]:
        attempt.log.note(attempt.state["error"])
    doomed, evidence = bool(attempt.state["notice"]), _evidence(attempt, code)
    uploads = [] if doomed else _uploads(attempt, code)
    shipped = _report(attempt, evidence)
    for name in (EVENTS, VERDICT):
        _ship_file(attempt, name)
    for upload in _uploads(attempt, code) if doomed else uploads:
        upload.join(FINAL_PATIENCE)
    if not shipped:
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
    """Copy what is left in the program's folders to the bucket, before the next attempt on this host fetches it. A
    success whose outputs cannot be kept does not count as one."""
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
    """Release the host, so that the next attempt need not wait for the rest; its host 0 listens on the same port."""
    if attempt.host_lock is not None and not attempt.state["notice"]:
        with contextlib.suppress(OSError):  # a full disk: the next attempt finds what is gone
            unmount_all(attempt.log.note)
    for close in attempt.closers:
        close()
    if attempt.host_lock is not None:
        os.close(attempt.host_lock)


def _uploads(attempt: HostAttempt, code: Optional[int]) -> List[threading.Thread]:
    """What goes to the bucket for later hosts, after a moment in which it may note in the log how it ended."""
    started = [attempt.keeping]
    if attempt.compile_cache is not None and attempt.plan["host"] == 0:
        started.append(attempt.compile_cache.finish(whole=code == 0))
    found, until = [upload for upload in started if upload is not None], time.monotonic() + MOMENT
    for upload in found:
        upload.join(max(0.0, until - time.monotonic()))
    return found


def _evidence(attempt: HostAttempt, code: Optional[int]) -> bytes:
    """Return the lines that show why the program ended badly, without what uploads note."""
    lines = b"" if code in (Exit.DONE, Exit.INTERRUPTED) else pick_lines(attempt.log.tail())
    if lines and attempt.supervision and attempt.supervision.stacks:
        lines = first_lines(attempt.supervision.stacks)  # it was ended as it hung
    return lines


def _report(attempt: HostAttempt, lines: bytes) -> bool:
    """Write the last report: after the log, unless the host is about to be taken away. Return whether the log is
    shipped."""
    state, doomed = attempt.reported_state(), bool(attempt.state["notice"])
    if doomed:
        attempt.reporter.update(state, lines)
    shipped = attempt.log.finish(FLUSH_DOOMED if doomed else FLUSH)
    attempt.reporter.finish(state, lines, FINAL_PATIENCE)
    return shipped


def _ship_file(attempt: HostAttempt, name: str) -> None:
    path = os.path.join(attempt.folder.out, name)
    with contextlib.suppress(OSError, StorageError), open(path, "rb") as file:
        file.seek(max(0, os.path.getsize(path) - MAX_EVENTS))
        content = attempt.redactor.redact(file.read(MAX_EVENTS))
        attempt.storage.put("%s/%s" % (attempt.shipped_to, name), content)
