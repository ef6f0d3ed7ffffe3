"""Runs the commands of an attempt: with what variables, to their end, and how they are stopped."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import signal
import subprocess
import time
from typing import Dict, List, Optional, Tuple

from tpujob.agent.attempt import HostAttempt
from tpujob.agent.folders import on_this_host
from tpujob.agent.processes import Find, end_all, family
from tpujob.agent.runtimes import Runtime
from tpujob.agent.supervision import Supervision
from tpujob.protocol import Phase, Plan
from workloads.contract import OUT, PREFIX, REPLAY, VERDICT
from workloads.contract.faults import VARIABLE

PIPE = 1024 * 1024  #: bytes that wait in a command's output while the agent is busy
STEP_PATIENCE = 3600.0  #: seconds for one step on the way to an environment


def run_program(attempt: HostAttempt) -> int:
    """Run the program; it is never started again. Returns its exit code."""
    attempt.phase(Phase.RUNNING)
    attempt.state["program"] = True
    attempt.save()
    parts = (attempt.plan, attempt.log, attempt.reporter, attempt.progress, attempt.wake)
    attempt.supervision = Supervision(*parts)
    own, work = dict(_variables(attempt), **attempt.secrets), attempt.folder.work
    began = time.monotonic()
    code = _follow(attempt, attempt.plan["argv"], b"", float("inf"), attempt.runtime, work, own)
    attempt.state["ran"] = round(time.monotonic() - began, 1)
    return code


def run_before(
    attempt: HostAttempt,
    argv: List[str],
    tag: bytes,
    patience: float,
    secrets: Optional[Dict[str, str]] = None,
) -> int:
    """The same for a command that comes before the program and runs as the program will, but for its secrets, which
    it gets only if they are given. Raises Stopped."""
    own = dict(_variables(attempt), **(secrets or {}))
    code = _follow(attempt, argv, tag, patience, attempt.runtime, attempt.folder.work, own)
    attempt.check_stop()
    return code


def run_bare(attempt: HostAttempt, argv: List[str], cwd: str, more: Dict[str, str]) -> int:
    """The same for a step on the way to an environment: on the host itself, with `more` variables instead of the
    program's, which must not change what this does. Raises Stopped."""
    own = dict(_stamp(attempt), **more)
    code = _follow(attempt, argv, b"[env] ", STEP_PATIENCE, Runtime(), cwd, own)
    attempt.check_stop()
    return code


# What it is started with ---------------------------------------------------------------------------------------------


def injected_fault(plan: Plan) -> str:
    """Return the value of `TPUJOB_FAULT`: the job's fault, else that of the host; empty: none."""
    asked = plan["context"].get("fault") or plan["env"].get(VARIABLE)
    return str(asked or os.environ.get(VARIABLE, ""))


def _stamp(attempt: HostAttempt) -> Dict[str, str]:
    """Return the variables that mark every process of this attempt."""
    return {"PYTHONUNBUFFERED": "1", OUT: attempt.folder.out}


def _variables(attempt: HostAttempt) -> Dict[str, str]:
    """The program's variables that are neither the host's nor secrets."""
    context = {k: os.path.expanduser(str(v)) for k, v in attempt.plan["context"].items()}
    given: Dict[str, str] = dict(_stamp(attempt), **attempt.plan["env"])
    if attempt.compile_cache is not None:
        context["cache"] = attempt.compile_cache.folder
        if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
            given.setdefault("JAX_COMPILATION_CACHE_DIR", attempt.compile_cache.folder)
    if context.get("cache"):
        os.makedirs(context["cache"], exist_ok=True)
    context.update(out=attempt.folder.out, fault=injected_fault(attempt.plan))
    given.update({PREFIX + k.upper(): v for k, v in context.items()})
    folders = attempt.plan.get("folders") or {}
    given.update({name: on_this_host(path) for name, path in folders.items()})
    path = (attempt.folder.work, given.get("PYTHONPATH") or os.environ.get("PYTHONPATH", ""))
    given["PYTHONPATH"] = os.pathsep.join(p for p in path if p)
    return given


# To its end ----------------------------------------------------------------------------------------------------------


def _follow(
    attempt: HostAttempt,
    argv: List[str],
    tag: bytes,
    patience: float,
    runtime: Runtime,
    cwd: str,
    own: Dict[str, str],
) -> int:
    """Start a command, follow it to its end, end what is left of it. One that cannot be started gets the exit code that
    a shell gives; after `patience` seconds it is killed. `own`: its variables that are not the host's."""
    environment = dict(os.environ, **own)
    if "PYTHONPATH" not in own:  # the host's is for programs alone
        environment.pop("PYTHONPATH", None)
    runtime.set_variables(environment)
    argv = runtime.command(argv, own, cwd)
    try:
        child, output = _start(argv, cwd, environment)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        attempt.log.note("cannot start %s: %s" % (argv[0], why))
        return 127 if isinstance(error, FileNotFoundError) else 126
    find = functools.partial(family, attempt.folder.path, child.pid)
    supervision = attempt.supervision  # none before the program
    if supervision is not None:
        supervision.follow(find, environment.get("PATH", os.defpath))
    pump = attempt.log.follow(output, tag, supervision.hear if supervision else None)
    _attend(attempt, child, find, runtime, time.monotonic() + patience)
    end_all(find, 0 if attempt.discards else 2)
    runtime.clear()
    pump.join(5)
    if child.returncode != 0:  # its last lines may say why
        attempt.listen()
        attempt.note_nonfinite()
    return child.returncode


def _start(
    argv: List[str], cwd: str, environment: Dict[str, str]
) -> Tuple[subprocess.Popen[bytes], int]:
    """The child, and the pipe that its output comes out of. Raises OSError, ValueError."""
    reader, writer = os.pipe()
    with contextlib.suppress(OSError):
        fcntl.fcntl(writer, 1031, PIPE)  # F_SETPIPE_SZ: a burst does not wait for us
    try:
        child = subprocess.Popen(
            argv,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=writer,
            stderr=writer,
            start_new_session=True,
        )
    except (OSError, ValueError):
        os.close(reader)
        raise
    finally:
        os.close(writer)
    return child, reader


def _attend(
    attempt: HostAttempt, child: subprocess.Popen[bytes], find: Find, runtime: Runtime, until: float
) -> None:
    """Wait for the child, and pass signals on to its processes. After a number that is not finite it gets no
    SIGTERM, which would make it save."""
    passed_on, kill_at, kills = False, 0.0, False
    while child.poll() is None:
        attempt.listen()
        attempt.note_nonfinite()
        if attempt.discards and not kills:
            # one that replays the step may still write its verdict
            judges = attempt.progress.facts.get("program_phase") == REPLAY
            judges = judges or os.path.exists(os.path.join(attempt.folder.out, VERDICT))
            kills, kill_at = True, time.monotonic() + (attempt.plan["grace"] if judges else 0.0)
            attempt.phase(Phase.STOPPING)
        elif attempt.grace is not None and not kill_at:
            kill_at = time.monotonic() + attempt.grace
            attempt.phase(Phase.STOPPING)
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
    attempt.listen()
    if attempt.warned:  # a host that shuts down signals the program, too
        attempt.state["signalled"] = True
