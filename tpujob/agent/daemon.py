"""The daemon: the detached process of one attempt, from its start through all steps to the last upload."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
import traceback
from typing import List, Optional

from tpujob.agent.attempt import HostAttempt
from tpujob.agent.attempts import AttemptState
from tpujob.agent.base import Failure, LaunchSecrets, Stopped, read_json, remove_file, take_lock
from tpujob.agent.commands import run_program, take_over_program
from tpujob.agent.folders import AttemptFolder
from tpujob.agent.processes import attempt_processes, end_all, free_devices, kernel_kills
from tpujob.agent.setup import fetch_bundle, steps, unmount_all
from tpujob.agent.setup.preflight import invalidate
from tpujob.agent.setup.shared_ports import warn_of_shared_ports
from tpujob.agent.storage import StorageError
from tpujob.agent.upload import OUTPUTS_PATIENCE, error_at_end, first_lines, number, pick_lines
from tpujob.contract import EVENTS, VERDICT, Exit
from tpujob.protocol import Phase, Plan, VerdictDocument
from tpujob.protocol.limits import MAX_VERDICT_TEXT

# Start ---------------------------------------------------------------------------------------------------------------


def spawn(
    plan: Plan, folder: AttemptFolder, launch: LaunchSecrets, earlier: Optional[AttemptState]
) -> int:
    """Start the attempt's daemon, and return its pid once its record is saved. `earlier`: the record of a killed
    daemon, whose program it takes over. Raises Failure."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        code = 1
        try:
            os.setsid()
            if os.fork() == 0:
                _run_daemon(plan, folder, launch, earlier, writer)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writer)
    os.wait()
    with open(reader, "rb") as pipe:
        answer = pipe.readline()  # empty: the daemon has ended
    if not answer.strip().isdigit():
        error = answer.decode("utf-8", "replace").strip() or "it did not come up"
        raise Failure("the agent's daemon: %s" % error)
    return int(answer)


def _run_daemon(
    plan: Plan,
    folder: AttemptFolder,
    launch: LaunchSecrets,
    earlier: Optional[AttemptState],
    answer: int,
) -> None:
    """Write the pid, or an error, to the pipe `answer`, then run the attempt."""
    try:
        os.makedirs(folder.path, mode=0o700, exist_ok=True)
        remove_file(folder.stop)
        _detach(folder.agent_log, answer)
        lock = take_lock(folder.lock, 10)
        if lock is None:
            raise OSError("%s is in use" % folder.path)
        attempt = HostAttempt(plan, folder, launch)
        if earlier:
            attempt.take_over(earlier)
        attempt.save()
        os.write(answer, b"%d\n" % os.getpid())
    except OSError as error:
        os.write(answer, ("%s\n" % error).encode())
        return
    os.close(answer)
    run(attempt)


def _detach(log: str, keep: int) -> None:
    """Leave the session that started this process: redirect output to `log`, and close all descriptors but `keep`."""
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
    """Run the attempt to its end, whatever fails."""
    attempt.open()
    kills_before = kernel_kills()
    code = _run_to_exit_code(attempt)
    attempt.ended_at = time.time()
    killed = kernel_kills() - kills_before
    if killed > 0 and code not in (None, Exit.DONE, Exit.INTERRUPTED) and attempt.grace is None:
        attempt.state["kernel_kills"] = killed
        attempt.log.note("the kernel killed for want of memory, processes: %d" % killed)
        if code in (-signal.SIGKILL, 128 + signal.SIGKILL):
            attempt.state.update(error="killed for want of memory", cause="OOM_HOST")
    finish(attempt, code)


def _run_to_exit_code(attempt: HostAttempt) -> Optional[int]:
    """Run all steps, and return the program's exit code; None after a failure, which is recorded; as for SIGTERM if the
    attempt was stopped before the program."""
    try:
        return _run_steps(attempt)
    except Stopped:
        return -signal.SIGTERM
    except Failure as failure:
        attempt.record_failure(failure)
    except Exception as error:  # a bug must not leave a program without its daemon
        traceback.print_exc()
        end_all(lambda: attempt_processes(attempt.folder.path), attempt.plan["grace"])
        attempt.record_failure(Failure("the agent failed: %r" % error, "CRASH"))
    return None


def _run_steps(attempt: HostAttempt) -> int:
    """Run every step up to the program's end, and return its exit code. Raises Failure, Stopped."""
    plan = attempt.plan
    if attempt.takes_over:
        with contextlib.suppress(Stopped):  # the program runs already, and is stopped below
            attempt.run_aside(lambda: steps.take_lock_of_host(attempt), whole=True)
        steps.continue_environment(attempt)
        steps.keep_outputs_from_now_on(attempt, restore=False)
        return take_over_program(attempt)
    os.makedirs(attempt.folder.out, exist_ok=True)
    attempt.run_aside(lambda: steps.check_machine(attempt))
    attempt.run_aside(lambda: steps.take_over_host(attempt), whole=True)
    bundles = attempt.run_aside(lambda: [fetch_bundle(attempt.storage, b) for b in plan["bundles"]])
    steps.prepare_environment(attempt, bundles)
    steps.stage_data(attempt)
    steps.prepare_folder(attempt, bundles)
    steps.keep_outputs_from_now_on(attempt)
    attempt.set_phase(Phase.CLEARING)
    attempt.run_aside(lambda: free_devices(plan["grace"]), whole=True)
    steps.run_preflight(attempt)
    steps.fetch_compile_cache(attempt)
    warn_of_shared_ports(attempt.log.note)
    return run_program(attempt)


# The end -------------------------------------------------------------------------------------------------------------


FINAL_PATIENCE = 600.0  #: seconds of retries for the last report and the rest of the log
OUTPUTS_AFTER_NOTICE = 20.0  #: seconds of retries for outputs after a notice
FLUSH = 60.0  #: seconds that the last report waits for the log
FLUSH_AFTER_NOTICE = 5.0  #: seconds that the last report waits for the log after a notice
#: seconds that the last report waits for uploads to later hosts, so that the log has their notes; none after a notice
MOMENT = 1.0
MAX_EVENTS = 16 * 1024 * 1024  #: bytes from the end of `events.jsonl` that are uploaded
#: the exit codes of a program that found a non-finite number and judged it
JUDGED = (Exit.NONFINITE, Exit.DEVICE)


def finish(attempt: HostAttempt, code: Optional[int]) -> None:
    """Release the host for the next attempt, then upload the last report, the rest of the log and the program's files.
    Report and log are retried for at most FINAL_PATIENCE each. `code`: None if the program was not started."""
    attempt.state["exit_code"] = code
    attempt.set_phase(Phase.EXITED, report=False)
    if code in JUDGED:  # the verdict of a replay outweighs a line of output
        attempt.state.update(cause=None, error="", verdict=_read_verdict(attempt))
    elif code == Exit.DONE and attempt.state["cause"] == "NONFINITE":
        # the program succeeded before the agent could kill it
        attempt.state.update(cause=None, error="", verdict=None)
        attempt.discards = False
    keep_outputs(attempt, code)
    _release_host(attempt)
    # some programs exit with 0 on SIGTERM, before the next poll for a notice
    if code != 0 or attempt.warned:
        attempt.notices.poll()
    attempt.poll()
    attempt.save_if_possible()
    stalled = attempt.supervision is not None and attempt.supervision.has_stalled
    failed = code not in (Exit.DONE, Exit.INTERRUPTED) and not attempt.must_stop()
    if stalled or failed:  # devices may be to blame: the next attempt must check them
        invalidate()
    if attempt.state["error"] and not attempt.state["verdict"]:  # the log has a verdict already
        attempt.log.note(attempt.state["error"])
    if code == Exit.DONE:
        attempt.state["last_error"] = error_at_end(attempt.log.tail())
    evidence = _evidence(attempt, code)
    has_notice = bool(attempt.state["notice"])
    uploads = [] if has_notice else _start_uploads(attempt, code)
    log_complete = _send_last_report(attempt, evidence)
    for name in (EVENTS, VERDICT):
        _upload_file(attempt, name)
    for upload in _start_uploads(attempt, code) if has_notice else uploads:
        upload.join(FINAL_PATIENCE)
    if not log_complete:
        attempt.log.finish(FINAL_PATIENCE)


def _read_verdict(attempt: HostAttempt) -> Optional[VerdictDocument]:
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


def keep_outputs(
    attempt: HostAttempt,
    code: Optional[int],
    patience: float = OUTPUTS_PATIENCE,
    after_notice: float = OUTPUTS_AFTER_NOTICE,
) -> None:
    """Upload the remaining outputs before the host is released. Without a notice, failure makes success an end with the
    cause OUTPUTS."""
    outputs = attempt.outputs
    if outputs is None:
        return
    attempt.poll()  # the last lines of output may name a checkpoint
    has_notice = bool(attempt.state["notice"])
    errors: List[str] = []
    patience = after_notice if has_notice else patience
    complete = code in (Exit.DONE, Exit.INTERRUPTED)
    thread = threading.Thread(
        target=lambda: errors.append(outputs.finish(patience, complete)), daemon=True
    )
    thread.start()
    while thread.is_alive():
        attempt.wake.wait(0.2)
        attempt.poll()
    attempt.poll()
    if errors and errors[0] and code == 0 and not has_notice:
        error = "the program ended with 0, but %s" % errors[0]
        attempt.state.update(error=error, cause="OUTPUTS")


def _release_host(attempt: HostAttempt) -> None:
    """Unmount buckets, free the ports and release the host's lock, so that the next attempt can start."""
    if attempt.host_lock is not None and not attempt.state["notice"]:
        with contextlib.suppress(OSError):  # full disk: the next attempt drops stale records
            unmount_all(attempt.log.note)
    for close in attempt.closers:
        close()
    if attempt.host_lock is not None:
        os.close(attempt.host_lock)


def _start_uploads(attempt: HostAttempt, code: Optional[int]) -> List[threading.Thread]:
    """Start the uploads for later hosts, wait MOMENT for their notes in the log, and return their threads."""
    threads = [attempt.environment_upload]
    if attempt.compile_cache is not None and attempt.plan["host"] == 0:
        threads.append(attempt.compile_cache.finish(whole=code == 0))
    uploads = [thread for thread in threads if thread is not None]
    until = time.monotonic() + MOMENT
    for upload in uploads:
        upload.join(max(0.0, until - time.monotonic()))
    return uploads


def _evidence(attempt: HostAttempt, code: Optional[int]) -> bytes:
    """Return the lines of output, or the stacks of a hang, that show why the program ended badly."""
    lines = b""
    if code not in (Exit.DONE, Exit.INTERRUPTED):
        stepped, ran = attempt.progress.stepped_at, attempt.state["program"]
        lines = pick_lines(attempt.log.tail(), attempt.ended_at, stepped, ran=ran)
    if lines and attempt.supervision and attempt.supervision.stacks:
        return first_lines(attempt.supervision.stacks)
    return lines


def _send_last_report(attempt: HostAttempt, evidence: bytes) -> bool:
    """Write the last report after the log; after a notice also before it. Return whether the log is in the bucket."""
    state = attempt.reported_state()
    has_notice = bool(attempt.state["notice"])
    if has_notice:
        attempt.reporter.update(state, evidence)
    log_complete = attempt.log.finish(FLUSH_AFTER_NOTICE if has_notice else FLUSH)
    attempt.reporter.finish(state, evidence, FINAL_PATIENCE)
    return log_complete


def _upload_file(attempt: HostAttempt, name: str) -> None:
    path = os.path.join(attempt.folder.out, name)
    with contextlib.suppress(OSError, StorageError), open(path, "rb") as file:
        file.seek(max(0, os.path.getsize(path) - MAX_EVENTS))
        content = attempt.redactor.redact(file.read(MAX_EVENTS))
        attempt.storage.put("%s/%s" % (attempt.bucket_folder, name), content)
