"""Runs the commands of an attempt: sets their variables, waits for their end, passes signals on."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from typing import Dict, List, Optional, Set, Union

from tpujob.agent import program
from tpujob.agent.attempt import HostAttempt
from tpujob.agent.base import remove_file
from tpujob.agent.folders import IMPORTABLE, on_this_host
from tpujob.agent.processes import Find, attempt_processes, end_all
from tpujob.agent.runtimes import Runtime
from tpujob.agent.supervision import Supervision
from tpujob.agent.upload import Log
from tpujob.contract import OUT, PREFIX, REPLAY, VERDICT
from tpujob.contract.faults import VARIABLE
from tpujob.protocol import Phase, Plan

QUIET = 5.0  #: seconds without output after the end of a command
STEP_PATIENCE = 3600.0  #: seconds for one command that builds an environment


def run_program(attempt: HostAttempt) -> int:
    """Run the program and return its exit code. The record of the start, made first, prevents a second start."""
    attempt.set_phase(Phase.RUNNING)
    for path in (attempt.folder.end, attempt.folder.end + ".error"):
        remove_file(path)
    attempt.state.update(program=True, began=time.monotonic())
    attempt.save()
    _supervise(attempt)
    variables = dict(_program_variables(attempt), **attempt.secrets)
    argv, work = attempt.plan["argv"], attempt.folder.work
    try:
        return _run(attempt, argv, b"", float("inf"), attempt.runtime, work, variables)
    finally:
        attempt.state["ran"] = round(time.monotonic() - attempt.state["began"], 1)


def take_over_program(attempt: HostAttempt) -> int:
    """Supervise the program of a killed agent to its end, which may have been before, and return its exit code. Raises
    OSError."""
    left = program.LeftProgram(attempt.folder, attempt.state["launcher"])
    attempt.set_phase(Phase.RUNNING)
    attempt.log.note("the agent was killed; this one has taken over the program")
    supervision = _supervise(attempt)
    while attempt.progress.look():
        pass
    saved = left.rest()
    if saved is not None:
        attempt.log.read_pipe(saved, b"", supervision.add_lines).join()
    environment = _environment(attempt.runtime, _program_variables(attempt))
    _follow(attempt, left, left.output, b"", attempt.runtime, float("inf"), environment)
    attempt.state["ran"] = round((left.ended_at or time.monotonic()) - attempt.state["began"], 1)
    return left.returncode or 0


def _supervise(attempt: HostAttempt) -> Supervision:
    attempt.supervision = Supervision(
        attempt.plan,
        attempt.log,
        attempt.reporter,
        attempt.progress,
        attempt.wake,
        attempt.folder.work,
        time.time() - (time.monotonic() - attempt.state["began"]),
    )
    return attempt.supervision


def run_before_program(
    attempt: HostAttempt,
    argv: List[str],
    tag: bytes,
    patience: float,
    secrets: Optional[Dict[str, str]] = None,
) -> int:
    """Run a command of set-up or preflight in the program's runtime, folder and variables, and return its exit code.
    The command gets only the secrets in `secrets`. Raises Stopped."""
    variables = dict(_program_variables(attempt), **(secrets or {}))
    code = _run(attempt, argv, tag, patience, attempt.runtime, attempt.folder.work, variables)
    attempt.check_stop()
    return code


def run_on_host(attempt: HostAttempt, argv: List[str], cwd: str, variables: Dict[str, str]) -> int:
    """Run a command that builds an environment and return its exit code. It runs on the host itself, without the
    program's variables, which could change its result. Raises Stopped."""
    variables = dict(_marker_variables(attempt), **variables)
    code = _run(attempt, argv, b"[env] ", STEP_PATIENCE, Runtime(), cwd, variables)
    attempt.check_stop()
    return code


# Variables -----------------------------------------------------------------------------------------------------------


def injected_fault(plan: Plan) -> str:
    """Return the value of `TPUJOB_FAULT`: the job's fault, else the host's; empty: none."""
    fault = plan["context"].get("fault") or plan["env"].get(VARIABLE)
    return str(fault or os.environ.get(VARIABLE, ""))


def _marker_variables(attempt: HostAttempt) -> Dict[str, str]:
    """Return the variables that mark every process of this attempt."""
    return {"PYTHONUNBUFFERED": "1", OUT: attempt.folder.out}


def _program_variables(attempt: HostAttempt) -> Dict[str, str]:
    """Return the variables that the program gets besides the host's, without secrets. Creates the cache folder."""
    context = {k: os.path.expanduser(str(v)) for k, v in attempt.plan["context"].items()}
    variables: Dict[str, str] = dict(_marker_variables(attempt), **attempt.plan["env"])
    if attempt.compile_cache is not None:
        context["cache"] = attempt.compile_cache.folder
        if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
            variables.setdefault("JAX_COMPILATION_CACHE_DIR", attempt.compile_cache.folder)
    if context.get("cache"):
        os.makedirs(context["cache"], exist_ok=True)
    context.update(out=attempt.folder.out, fault=injected_fault(attempt.plan))
    variables.update({PREFIX + k.upper(): v for k, v in context.items()})
    folders = attempt.plan.get("folders") or {}
    variables.update({name: on_this_host(path) for name, path in folders.items()})
    python_path = variables.get("PYTHONPATH") or os.environ.get("PYTHONPATH", "")
    paths = filter(None, (attempt.folder.work, python_path, IMPORTABLE))
    variables["PYTHONPATH"] = os.pathsep.join(paths)
    return variables


# Start and end -------------------------------------------------------------------------------------------------------


def _run(
    attempt: HostAttempt,
    argv: List[str],
    tag: bytes,
    patience: float,
    runtime: Runtime,
    cwd: str,
    variables: Dict[str, str],
) -> int:
    """Run a command to its end, then end its remaining processes. Return its exit code, or a shell's exit code if it
    cannot be started. After `patience` seconds it is killed. `variables` are added to the host's."""
    environment = _environment(runtime, variables)
    argv = runtime.command(argv, variables, cwd)
    is_program, output = attempt.supervision is not None, ""
    if is_program:
        argv, output = program.launched(argv, attempt.folder), attempt.folder.output
    try:
        child, reader = program.start(argv, cwd, environment, output)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        attempt.log.note("cannot start %s: %s" % (argv[0], reason))
        return 127 if isinstance(error, FileNotFoundError) else 126
    if is_program:
        attempt.state["launcher"] = child.pid
        attempt.save_if_possible()
    _follow(attempt, child, reader, tag, runtime, time.monotonic() + patience, environment)
    return child.returncode


def _environment(runtime: Runtime, variables: Dict[str, str]) -> Dict[str, str]:
    environment = dict(os.environ, **variables)
    if "PYTHONPATH" not in variables:  # the host's is for programs alone
        environment.pop("PYTHONPATH", None)
    runtime.set_variables(environment)
    return environment


Child = Union["subprocess.Popen[bytes]", program.LeftProgram]


def _follow(
    attempt: HostAttempt,
    child: Child,
    output: int,
    tag: bytes,
    runtime: Runtime,
    until: float,
    environment: Dict[str, str],
) -> None:
    """Follow a command to its end, then end its remaining processes."""
    supervision = attempt.supervision  # None before the program
    launcher: Set[int] = {child.pid} if supervision is not None else set()

    def find() -> Set[int]:
        return attempt_processes(attempt.folder.path, child.pid) - launcher

    if supervision is not None:
        supervision.follow(find, environment.get("PATH", os.defpath))
    pump = attempt.log.read_pipe(output, tag, supervision.add_lines if supervision else None)
    _wait_for(attempt, child, find, runtime, until)
    end_all(find, 0 if attempt.discards else 2)
    runtime.clear()
    wait_until_read(pump, attempt.log)
    if supervision is not None:
        remove_file(attempt.folder.output)
        error = program.start_error(attempt.folder)
        if error:  # the reason of the attempt's end
            attempt.state.update(error=error, cause="SETUP")
    if child.returncode != 0:  # the last lines may have a non-finite number
        attempt.poll()
        attempt.note_nonfinite()


def wait_until_read(pump: threading.Thread, log: Log) -> None:
    """Wait until the log has what the ended command has printed, however slow this host is. Another process may hold
    the pipe open and print nothing, or print on for ever: then wait for QUIET seconds, or for what the pipe can hold.
    """
    enough = log.read + 2 * program.PIPE  # with what was read from it just before
    before = -1
    while pump.is_alive() and before < log.read < enough:
        before = log.read
        pump.join(QUIET)


def _wait_for(
    attempt: HostAttempt, child: Child, find: Find, runtime: Runtime, until: float
) -> None:
    """Wait for the child, and signal its processes when the attempt has to stop. After a non-finite number they get no
    SIGTERM, as that would make the program save."""
    passed_on, kill_at, kills = False, 0.0, False
    while child.poll() is None:
        attempt.poll()
        attempt.note_nonfinite()
        if attempt.discards and not kills:
            # a program that replays the step may still write its verdict
            replays = attempt.progress.facts.get("program_phase") == REPLAY
            replays = replays or os.path.exists(os.path.join(attempt.folder.out, VERDICT))
            kills = True
            kill_at = time.monotonic() + (attempt.plan["grace"] if replays else 0.0)
            attempt.set_phase(Phase.STOPPING)
        elif attempt.grace is not None and not kill_at:
            kill_at = time.monotonic() + attempt.grace
            attempt.set_phase(Phase.STOPPING)
            runtime.send(find(), signal.SIGTERM)
        elif attempt.warned and not passed_on and not kill_at:
            passed_on = True
            reason = attempt.notices.newest or "this host sent it"
            attempt.log.note("passing SIGTERM on: %s" % reason)
            runtime.send(find(), signal.SIGTERM)
        if kill_at or passed_on:
            attempt.state["signalled"] = True
        if time.monotonic() >= min(kill_at or until, until):
            runtime.send(find(), signal.SIGKILL)
        pause = 0.1 if kill_at or passed_on else min(1.0, max(0, until - time.monotonic()))
        attempt.wake.wait(pause)
    attempt.poll()
    if attempt.warned:  # a host that shuts down signals the program, too
        attempt.state["signalled"] = True
