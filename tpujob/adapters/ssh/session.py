"""`tpujob ssh`: a person's shell on a host, or one command with unchanged streams of any size.

The host key must be pinned already: a person never makes the first contact. The key is the person's own, made for this
session; the slice's key stays with the backend.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import shlex
import signal
import struct
import termios
import threading
import tty
from collections.abc import Generator, Sequence
from types import FrameType
from typing import TYPE_CHECKING

from tpujob.adapters.calling import Deadline
from tpujob.adapters.ssh.connection import Connection, Login, NoLogin
from tpujob.adapters.ssh.host_keys import HostKeys
from tpujob.adapters.ssh.keys import read_pins
from tpujob.adapters.ssh.transport import Tunnel
from tpujob.api import HostAccess
from tpujob.errors import TpujobError, Transient

if TYPE_CHECKING:
    import paramiko

CHUNK = 32 * 1024
CONNECT_SECONDS = 60.0
_NO_LOGIN = (
    "Hosts accept certificates from the first attempt on that this version of tpujob has started, and while "
    "their clock and the backend's differ by less than five minutes."
)
UNKNOWN_END = 255  #: the exit code for a command that a signal ended, as OpenSSH's client gives it
#: the exit code when no program reads our output any more, as a shell gives it
NO_READER = 141


def open_session(
    access: HostAccess,
    key: str,
    command: list[str] | None,
    *,
    stdin: int = 0,
    stdout: int = 1,
    stderr: int = 2,
    term: str = "xterm-256color",
    tunnel: Sequence[str] = ("gcloud",),
) -> int:
    """Run `command`, with its arguments unchanged, or a shell; returns the exit code. A shell gets a terminal when
    `stdin` is one. `key` is the private half of the one that `access` was given for; `tunnel` is the program for hosts
    behind IAP. Raises Transient when the host cannot be reached or disconnects, HostKeyChanged."""
    pins = read_pins("\n".join(access["host_keys"]))
    if not pins:
        raise TpujobError(
            f"no host key is pinned for host {access['host']}",
            hint="The backend pins it when it first reaches the host; `tpujob show JOB` says how far it is.",
        )
    host_keys = HostKeys(pins, hosts=1, trust_new=False)
    connection = Connection(_login(access, key, tunnel), host_keys)
    deadline = Deadline(CONNECT_SECONDS)
    where = f"host {access['host']} ({access['address']}): "
    try:
        connection.open(deadline)
        channel = connection.channel(deadline)
        terminal = command is None and os.isatty(stdin)
        if terminal:
            columns, rows = _window(stdin)
            channel.get_pty(term, columns, rows)
        if command is None:
            channel.invoke_shell()
        else:
            channel.exec_command(shlex.join(command))  # nosec B601
        with _raw(stdin) if terminal else contextlib.nullcontext(), _fed(channel, stdin):
            code = _carry_output(channel, stdin if terminal else None, stdout, stderr)
        if code < 0 and not connection.is_active():
            raise Transient("the connection broke")
        return code if code >= 0 else UNKNOWN_END
    except BrokenPipeError:
        return NO_READER
    except NoLogin as error:
        raise Transient(f"{where}it does not accept the certificate", hint=_NO_LOGIN) from error
    except Transient as error:
        raise Transient(f"{where}{error.message}", hint=error.hint) from error
    except (OSError, EOFError) as error:
        raise Transient(f"{where}{error}") from error
    finally:
        connection.abort()


def _login(access: HostAccess, key: str, tunnel: Sequence[str]) -> Login:
    through = None
    if access["instance"]:
        through = Tunnel(access["instance"], access["zone"], access["project"], tuple(tunnel))
    where = (access["address"], access["port"], access["user"])
    return Login(*where, key, through, access["certificate"])


def _carry_output(channel: paramiko.Channel, terminal: int | None, stdout: int, stderr: int) -> int:
    """Returns when the command has ended and all its output is written. Reads only what it can write at once, so that
    the SSH window slows the host down and memory stays small."""
    with _resized(terminal) as resized:
        while True:
            # before looking for data: what arrives in between is found in the next round
            over = channel.closed or (channel.eof_received and channel.exit_status_ready())
            if channel.recv_ready():
                _write(stdout, channel.recv(CHUNK))
            elif channel.recv_stderr_ready():
                _write(stderr, channel.recv_stderr(CHUNK))
            elif over:
                return channel.recv_exit_status()
            elif _wait(channel, resized) and terminal is not None:
                os.read(resized, CHUNK)
                columns, rows = _window(terminal)
                channel.resize_pty(columns, rows)


def _wait(channel: paramiko.Channel, resized: int) -> bool:
    """Returns when there may be something to do; True: the window has another size."""
    poll = select.poll()
    poll.register(resized, select.POLLIN)
    if channel.eof_received:  # its descriptor stays readable; only the exit code is missing
        return bool(poll.poll(100))
    poll.register(channel.fileno(), select.POLLIN)
    return resized in {fd for fd, _ in poll.poll(1000)}


@contextlib.contextmanager
def _fed(channel: paramiko.Channel, stdin: int) -> Generator[None]:
    """Send input from another thread: output must go on while the host accepts no input."""
    stopped, stop = os.pipe()
    thread = threading.Thread(target=_feed, args=(channel, stdin, stopped), daemon=True)
    thread.start()
    try:
        yield
    finally:
        os.write(stop, b".")
        channel.close()  # ends a write that waits for the host
        thread.join()
        os.close(stop)
        os.close(stopped)


def _feed(channel: paramiko.Channel, stdin: int, stopped: int) -> None:
    with contextlib.suppress(OSError, EOFError):  # the command is gone: it needs no input
        while True:
            poll = select.poll()
            poll.register(stdin, select.POLLIN)
            poll.register(stopped, select.POLLIN)
            if stopped in {fd for fd, _ in poll.poll()}:
                return
            data = os.read(stdin, CHUNK)
            if not data:
                channel.shutdown_write()
                return
            channel.sendall(data)


@contextlib.contextmanager
def _raw(terminal: int) -> Generator[None]:
    """Every key goes to the host, Ctrl-C as well."""
    before = termios.tcgetattr(terminal)
    tty.setraw(terminal, termios.TCSADRAIN)  # keeps what was typed while connecting
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


@contextlib.contextmanager
def _resized(terminal: int | None) -> Generator[int]:
    """A descriptor that becomes readable when the window has another size. The signal handler itself must not use the
    connection: it may interrupt code that holds the connection's locks."""
    changed, change = os.pipe()

    def note(_number: int, _frame: FrameType | None) -> None:
        os.write(change, b".")

    main = threading.current_thread() is threading.main_thread()
    watched = terminal is not None and main
    before = signal.signal(signal.SIGWINCH, note) if watched else None
    try:
        yield changed
    finally:
        if watched:
            signal.signal(signal.SIGWINCH, before)
        os.close(changed)
        os.close(change)


def _window(terminal: int) -> tuple[int, int]:
    size = fcntl.ioctl(terminal, termios.TIOCGWINSZ, b"\0" * 8)
    rows, columns, _, _ = struct.unpack("HHHH", size)
    return columns or 80, rows or 24


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
