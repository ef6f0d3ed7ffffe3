"""Starts the program as its parent, and keeps its end where the next agent finds it if this agent is killed meanwhile.

`process.py` runs the text of this file with `python -c`, so it imports nothing of the agent. Its standard output is a
named pipe that the agent reads. It ends as the program does: with the same exit code, or by the same signal.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import resource
import signal
import sys
import termios
import time
from typing import List

#: signals that may be meant for all processes of the program, and which this one outlives
OUTLIVED = (
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2,
)  # fmt: skip


DRAIN_TIMEOUT = 5.0  #: seconds for the agent to read the rest: other processes may write on


def main(end: str, output: str, lock: str, argv: List[str]) -> None:
    """Run the program. `end`: file that gets its exit code, or the negative number of its signal, and the time; beside
    it, in `.error`, why it could not be started. `output`: the named pipe. `lock`: file that the agent has locked while
    it lives."""
    for number in OUTLIVED:  # a handler: the program would inherit that a signal is ignored
        signal.signal(number, _outlive)
    # the pipe has a reader until the end: without an agent a full pipe blocks the program, and no write fails
    reader = os.open(output, os.O_RDONLY | os.O_NONBLOCK)
    pid = os.fork()
    if pid == 0:
        _become(argv, end + ".error")
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (1, 2):
        os.dup2(null, descriptor)
    _, status = os.waitpid(pid, 0)
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
    with contextlib.suppress(OSError):  # on a full disk only the agent learns of the end
        with open(end + ".new", "w") as file:
            file.write("%d %f" % (code, time.monotonic()))
        os.replace(end + ".new", end)
        _wait_until_read(reader, lock, output + ".rest")
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _outlive(number: int, frame: object) -> None:
    """Do nothing: the program gets the signal, too."""


def _become(argv: List[str], failed: str) -> None:
    """Replace this process by the program, in a process group of its own. The file `failed` gets the reason if that
    fails."""
    try:
        os.setpgid(0, 0)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
            signal.signal(number, signal.SIG_DFL)
        os.execvp(argv[0], argv)  # noqa: S606, the user's command
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        with contextlib.suppress(OSError), open(failed, "w", errors="replace") as file:
            file.write("cannot start %s: %s" % (argv[0], reason))
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def _is_locked(lock: str) -> bool:
    with open(lock) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def _wait_until_read(reader: int, lock: str, path: str) -> None:
    """Wait until the agent has read the pipe. Without an agent write the rest to the file `path`: it is lost once no
    process has the pipe open."""
    until = time.monotonic() + DRAIN_TIMEOUT
    while time.monotonic() < until and _unread_bytes(reader):
        if not _is_locked(lock):
            _save_rest(reader, path)
        time.sleep(0.02)


def _unread_bytes(reader: int) -> int:
    count = array.array("i", [0])
    fcntl.ioctl(reader, termios.FIONREAD, count)
    return count[0]


def _save_rest(reader: int, path: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with open(descriptor, "wb") as file, contextlib.suppress(BlockingIOError):
        while True:
            data = os.read(reader, 64 * 1024)
            if not data:
                break
            file.write(data)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
