"""The program of an attempt below its launcher: its start, and its takeover after the agent was killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pkgutil
import signal
import subprocess
import sys
from typing import Dict, List, Optional, Tuple

from tpujob.agent.base import remove_file
from tpujob.agent.folders import AttemptFolder
from tpujob.agent.processes import in_attempt

PIPE = 1024 * 1024  #: bytes of the pipe that buffers a command's output


def launched(argv: List[str], folder: AttemptFolder) -> List[str]:
    """Return the command line that runs `argv` below a launcher."""
    text = (pkgutil.get_data("tpujob.agent.program", "launcher.py") or b"").decode()
    python = [sys.executable, "-E", "-S", "-c", text]
    return [*python, folder.end, folder.output, folder.lock, *argv]


def start_error(folder: AttemptFolder) -> str:
    """Return why the launcher could not start the program; empty: it has started it."""
    with contextlib.suppress(OSError), open(folder.end + ".error", errors="replace") as file:
        return file.read()
    return ""


def start(
    argv: List[str], cwd: str, environment: Dict[str, str], output: str = ""
) -> Tuple[subprocess.Popen[bytes], int]:
    """Return the child, and the read end of its output's pipe, which is at the path `output` if that is given. Raises
    OSError, ValueError."""
    reader, writer = _make_pipe(output) if output else os.pipe()
    with contextlib.suppress(OSError):
        fcntl.fcntl(writer, 1031, PIPE)  # F_SETPIPE_SZ: a burst does not wait for the agent
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


def _make_pipe(path: str) -> Tuple[int, int]:
    remove_file(path)
    os.mkfifo(path, 0o600)
    reader = _open_pipe(path)
    return reader, os.open(path, os.O_WRONLY)


def _open_pipe(path: str) -> int:
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # does not wait for a writer
    os.set_blocking(reader, True)
    return reader


class LeftProgram:
    """The program of a killed agent."""

    def __init__(self, folder: AttemptFolder, launcher: int) -> None:
        """`launcher`: pid of its launcher."""
        self._folder, self.pid = folder, launcher
        self.returncode: Optional[int] = None  #: as that of `subprocess.Popen`
        self.ended_at: Optional[float] = None  #: monotonic
        try:
            self.output = _open_pipe(folder.output)
        except FileNotFoundError:  # the output was read to its end
            self.output = os.open(os.devnull, os.O_RDONLY)

    def poll(self) -> Optional[int]:
        """Return the exit code; None while it runs. A launcher that left no record was killed, and the program too."""
        lives = in_attempt(self.pid, self._folder.path)
        with contextlib.suppress(OSError, ValueError), open(self._folder.end) as file:
            code, ended_at = file.read().split()
            self.returncode, self.ended_at = int(code), float(ended_at)
        if self.returncode is None and not lives:
            self.returncode = -signal.SIGKILL
        return self.returncode

    def rest(self) -> Optional[int]:
        """Return a descriptor of the output that the launcher has saved, and delete the file, which may have secrets in
        it; None: it has saved none."""
        path = self._folder.output + ".rest"
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY)
            os.unlink(path)
            return descriptor
        return None
