"""The detached process of one attempt: how it is started, and the steps from the plan to the last report."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import traceback
from typing import Optional

from tpujob.agent.attempt import HostAttempt
from tpujob.agent.base import Failure, LaunchSecrets, Stopped, remove_file, take_lock
from tpujob.agent.commands import run_program
from tpujob.agent.ending import blame_memory, finish
from tpujob.agent.folders import AttemptFolder
from tpujob.agent.processes import end_all, family, free_devices, kernel_kills
from tpujob.agent.setup import fetch_bundle, steps
from tpujob.protocol import Phase, Plan

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
    answer = b""
    while select.select([reader], [], [], 30)[0]:
        data = os.read(reader, 4096)
        answer += data
        if not data or answer.endswith(b"\n"):
            break
    os.close(reader)
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
    """Leave nothing open of the session that started it."""
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDONLY)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for descriptor, number in ((null, 0), (file, 1), (file, 2)):
        os.dup2(descriptor, number)
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
    blame_memory(attempt, code, kernel_kills() - kills)
    finish(attempt, code)


def _exit_code(attempt: HostAttempt) -> Optional[int]:
    """Of the program; None: it was not started, and the record says why. Raises nothing."""
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
