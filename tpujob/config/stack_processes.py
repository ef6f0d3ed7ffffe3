"""Starts, finds and stops the processes of the local stack.

Every command calls `ensure_backend`, so that reads only two small files and checks one process. Imports for starting
and stopping are inside functions, and records are tuples, which are quick to declare.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from tpujob.config.settings import REPLACE_STORE, Settings, for_processes, prepare
from tpujob.errors import BackendGone, StoreError

if TYPE_CHECKING:
    import subprocess


START = 60.0  #: seconds for one process to come up; a cold start on a busy machine takes ten
STOP = 20.0  #: seconds for one process to end by itself; the farm ends its hosts meanwhile
DYING = 5.0  #: seconds for which a killed process is waited for; on a busy machine it takes a tenth
LAST_LINES = 15  #: number of a log's last lines that are shown if its process does not come up


class Access(NamedTuple):
    """The address and the process of the backend on this machine."""

    url: str
    pid: int
    page: str = ""  #: the address of its page on this machine; empty: it shows none
    page_needs_code: bool = False  #: a browser there needs a one-time code
    shared: bool = False  #: `tpujob serve`: for all users of this machine


class StackProcess(NamedTuple):
    """One process of the stack. `command` has the path of the ready file that the process writes."""

    name: str
    command: tuple[str, ...]


class Status(NamedTuple):
    """The current state of a process."""

    name: str
    pid: int | None  #: None: it does not run
    #: the content of its ready file; None: it is not up
    ready: dict[str, Any] | None
    log: Path


def parts(settings: Settings) -> tuple[StackProcess, ...]:
    """Return the processes of the stack in the order of their dependencies; for a cloud context only the backend."""

    def module(name: str, python: str, state: Path, *options: str) -> StackProcess:
        ready = str(settings.ready_file(name))
        return StackProcess(
            name, (sys.executable, "-m", python, "--ready", ready, "--state", str(state), *options)
        )

    backend = module("backend", "tpujob.web", settings.state, "--context", settings.context)
    if not settings.local:
        return (backend,)
    return (
        module("farm", "tpujob.emulator.farm", settings.farm_state),
        module(
            "emulator",
            "tpujob.emulator",
            settings.emulator_state,
            "--farm-ready",
            str(settings.ready_file("farm")),
        ),
        backend,
    )


# Find ----------------------------------------------------------------------------------------------------------------


def ensure_backend(settings: Settings, stack: Sequence[StackProcess] | None = None) -> Access:
    """Return the backend on this machine, and start it if it does not run. Raise BackendGone if it does not come up."""
    backend = running_backend(settings)
    if backend is None:
        up(settings, stack)
        backend = running_backend(settings)
    if backend is None:
        raise BackendGone(
            "the backend ended as soon as it was up", hint=_log_hint(settings, "backend")
        )
    return backend


def backend_after(
    settings: Settings, refused: Access, stack: Sequence[StackProcess] | None = None
) -> Access | None:
    """Return the backend on this machine after `refused` refused a connection, and start it if it does not run. Return
    None if `refused` still runs: a killed process lives a moment longer than its socket. Raise BackendGone as
    `ensure_backend` does."""
    end = time.monotonic() + DYING
    while (backend := running_backend(settings)) == refused and time.monotonic() < end:
        time.sleep(0.02)
    return None if backend == refused else backend or ensure_backend(settings, stack)


def running_backend(settings: Settings) -> Access | None:
    """Return the backend on this machine if it is up and has read the current context file; start nothing."""
    ready = _ready(settings, "backend")
    if ready is None or _outdated(settings, ready):
        return None
    return Access(
        str(ready.get("url")),
        ready["pid"],
        str(ready.get("page", "")),
        bool(ready.get("page_needs_code")),
        bool(ready.get("shared")),
    )


def status(settings: Settings, stack: Sequence[StackProcess] | None = None) -> list[Status]:
    """Return the state of every process of the stack, in the order of their start."""
    return [
        Status(
            part.name,
            _running(settings, part.name),
            _ready(settings, part.name),
            settings.log_file(part.name),
        )
        for part in stack or parts(settings)
    ]


# Start and stop ------------------------------------------------------------------------------------------------------


def up(
    settings: Settings, stack: Sequence[StackProcess] | None = None, *, deadline: float = START
) -> None:
    """Start every process that is not up. Safe to call at any time, also from two terminals at once. A process that
    depends on a started one is restarted, as it has the old addresses. Raise BackendGone, with the last lines of the
    log, if a process does not come up within `deadline` seconds; BadRequest if this Python lacks packages for it."""
    stack = stack or parts(settings)
    if settings.local:
        from tpujob.config import packages

        if lacks := packages.missing("emulator"):
            raise packages.lacking("the local stack runs on this machine", lacks)
    prepare(settings)
    with _stack_lock(settings):
        for place, part in enumerate(stack):
            ready = _ready(settings, part.name)
            if ready is not None and not _outdated(settings, ready):
                continue
            if ready is not None:
                _stop(settings, part.name)  # loses nothing: the next one finds everything again
            for dependent in reversed(stack[place + 1 :]):
                _stop(settings, dependent.name)
            if _running(settings, part.name) is None:
                _start(settings, part)
            _wait_until_up(settings, part.name, deadline)


def down(
    settings: Settings, stack: Sequence[StackProcess] | None = None, *, grace: float = STOP
) -> list[str]:
    """Stop every process of the stack and return the names of those that ran. Processes that do not end within `grace`
    seconds are killed. Only processes that `note` recorded are touched."""
    if not settings.run.exists():
        return []
    with _stack_lock(settings):
        return [
            part.name
            for part in reversed(stack or parts(settings))
            if _stop(settings, part.name, grace)
        ]


#: child processes, which outlive this one; referenced, as Python warns of a forgotten child
_children: list[subprocess.Popen[bytes]] = []


def _start(settings: Settings, part: StackProcess) -> None:
    import subprocess

    settings.ready_file(part.name).unlink(missing_ok=True)
    log = settings.log_file(part.name)
    with contextlib.suppress(FileNotFoundError):
        log.replace(log.with_suffix(".log.1"))
    with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "wb") as output:
        child = subprocess.Popen(
            part.command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            env=for_processes() | {REPLACE_STORE: settings.replace_store},
            start_new_session=True,  # outlives the terminal, and its Ctrl-C
        )
    _children.append(child)
    note(settings.process_file(part.name), child.pid)


def _wait_until_up(settings: Settings, name: str, deadline: float) -> None:
    end = time.monotonic() + deadline
    while _ready(settings, name) is None:
        running = _running(settings, name) is not None
        if running and time.monotonic() < end:
            time.sleep(0.02)
            continue
        _stop(settings, name)
        failure = f"did not come up within {deadline:.0f} s" if running else "ended at once"
        raise BackendGone(
            f"the {name} {failure}{_last_lines(settings, name)}", hint=_log_hint(settings, name)
        )


def _stop(settings: Settings, name: str, grace: float = STOP) -> bool:
    """Stop the process; return whether it ran."""
    pid = _running(settings, name)
    if pid is not None:
        for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, STOP)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            end = time.monotonic() + patience
            while _running(settings, name) is not None and time.monotonic() < end:
                time.sleep(0.02)
            if _running(settings, name) is None:
                break
    settings.ready_file(name).unlink(missing_ok=True)
    settings.process_file(name).unlink(missing_ok=True)
    return pid is not None


def _ready(settings: Settings, name: str) -> dict[str, Any] | None:
    """Return the content of a process's ready file; None: it is not up."""
    ready = read(settings.ready_file(name))
    return ready if ready and ready["pid"] == _running(settings, name) else None


def _outdated(settings: Settings, ready: dict[str, Any]) -> bool:
    """Return whether a process has read an older text of the context's file."""
    if ready.get("shared"):
        return False  # it is a service of its own, which its owner ends
    return ready.get("context", settings.context_stamp()) != settings.context_stamp()


def _running(settings: Settings, name: str) -> int | None:
    for child in _children:
        child.poll()  # a child that has ended is a zombie until it is polled
    return find(settings.process_file(name))


def claim_service(settings: Settings) -> bool:
    """Return whether this process alone may serve all users from now on, also after `exec`, until it ends."""
    import fcntl

    prepare(settings)
    lock = os.open(settings.run / "serve.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return False
    os.set_inheritable(lock, True)
    return True


@contextlib.contextmanager
def _stack_lock(settings: Settings) -> Generator[None]:
    """Hold the lock for starting and stopping the stack. The kernel releases it when its holder ends."""
    import fcntl

    path = settings.run / "stack.lock"
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StoreError(
            f"cannot write to {settings.run}: {error.strerror}",
            hint="tpujob must be able to write there; or set TPUJOB_STATE to a folder where it can",
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _last_lines(settings: Settings, name: str) -> str:
    try:
        text = settings.log_file(name).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    lines = text.splitlines()[-LAST_LINES:]
    listed = "".join(f"\n  {line}" for line in lines)
    return f". The end of its log:{listed}" if lines else ", and its log is empty"


def _log_hint(settings: Settings, name: str) -> str:
    return f"its log is {settings.log_file(name)}"


# Processes -----------------------------------------------------------------------------------------------------------


def note(path: Path, pid: int) -> None:
    """Record a process that was just started, so that `find` recognises it."""
    path.write_text(json.dumps({"pid": pid, "start": _start_stamp(pid)}), encoding="utf-8")


def find(noted: Path) -> int | None:
    """Return the pid of the recorded process; None if it has ended."""
    record = read(noted)
    alive = record and record.get("start") and record["start"] == _start_stamp(record["pid"])
    return record["pid"] if record and alive else None


def read(path: Path) -> dict[str, Any] | None:
    """Return the JSON object with a `pid` in the file; None without a valid one."""
    try:
        content: object = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(content, dict):
        return None
    record = cast("dict[str, Any]", content)
    return record if isinstance(record.get("pid"), int) else None


def _start_stamp(pid: int) -> str:
    """Return boot id and start time of a process, which no other process shares; empty if it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    fields = text.rpartition(")")[2].split()  # the name before it may hold anything
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return "" if fields[0] in "ZX" else f"{boot}/{fields[19]}"
