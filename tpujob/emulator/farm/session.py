"""One session on an emulated host: a command or a shell, on pipes or on a terminal. A process outlives its client
unless it has a terminal; a session ends when its output ends, not before."""

# asyncssh leaves some of its own parameters untyped
# pyright: reportUnknownMemberType=false

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import asyncssh

SHELL = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
#: a session leader without a terminal gets the first terminal that it opens
_TAKE_TERMINAL = 'tty="$1"; shift; exec "$@" <>"$tty" >&0 2>&1'
_CHUNK = 64 * 1024
_LAST_WORDS_S = 1.0  #: for a terminal's output after the end of its shell

_Session = asyncssh.SSHServerProcess[bytes]


@dataclass(frozen=True)
class HostUser:
    """The user of a host, and the environment of sessions. Every login calls `keys`: metadata may change."""

    user: str
    keys: Callable[[], str]  #: lines of `user:key`, the `ssh-keys` of the metadata
    home: Path
    env: Mapping[str, str]


async def serve(session: _Session, login: HostUser) -> None:
    """Run the client's command until it ends; if the client leaves first, wait for the process only."""
    try:
        child = await (_on_terminal if session.term_type else _on_pipes)(session, login)
    except OSError as error:
        session.stderr.write(f"cannot start: {error}\n".encode())
        session.exit(126)
    else:
        await _wait_for(child)
        with contextlib.suppress(OSError, asyncssh.Error):  # the client leaves
            await _drain(session)
            if not session.is_closing():
                await _send_exit(session, child.returncode)
    await session.wait_closed()


async def _on_pipes(session: _Session, login: HostUser) -> subprocess.Popen[bytes]:
    child = _spawn(session, login, [], subprocess.PIPE, subprocess.PIPE)
    await session.redirect(stdout=child.stdout, stderr=child.stderr, send_eof=False)
    assert child.stdin is not None
    # not by `redirect`: its transport loses data that it gets with the end of the input (`_write_ready` of CPython)
    loop, protocol = asyncio.get_running_loop(), asyncio.streams.FlowControlMixin()
    transport, _ = await loop.connect_write_pipe(lambda: protocol, child.stdin)
    sink = asyncio.StreamWriter(transport, protocol, None, loop)
    session.add_cleanup_task(asyncio.create_task(_feed(session, sink)))
    return child


async def _feed(session: _Session, sink: asyncio.StreamWriter) -> None:
    """Copy the input to a program until it ends; drop the rest once the program has closed its input."""
    with contextlib.closing(sink), contextlib.suppress(OSError, asyncssh.Error):
        while True:
            try:
                data = await session.stdin.read(_CHUNK)
            except (asyncssh.BreakReceived, asyncssh.SignalReceived):  # from none of our clients
                continue
            if not data:
                return
            if not sink.is_closing():
                with contextlib.suppress(OSError):
                    sink.write(data)
                    await sink.drain()


async def _on_terminal(session: _Session, login: HostUser) -> subprocess.Popen[bytes]:
    master, slave = os.openpty()
    try:
        # first, as the terminal gets its size here
        await session.redirect(os.dup(master), master, send_eof=False)
        prefix = ["/bin/sh", "-c", _TAKE_TERMINAL, "sh", os.ttyname(slave)]
        return _spawn(session, login, prefix, slave, slave)
    finally:
        os.close(slave)


def _spawn(
    session: _Session, login: HostUser, prefix: list[str], stdin: int, output: int
) -> subprocess.Popen[bytes]:
    command = os.fsdecode(session.command) if session.command is not None else None
    argv = [SHELL, "-c", command] if command is not None else [SHELL, "-l"]
    env = {**login.env, **({"TERM": session.term_type} if session.term_type else {})}
    return subprocess.Popen(
        [*prefix, *argv],
        stdin=stdin,
        stdout=output,
        stderr=output,
        env=env,
        cwd=login.home,
        start_new_session=True,
    )


async def _wait_for(child: subprocess.Popen[bytes]) -> None:
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    fd = os.pidfd_open(child.pid)
    loop.add_reader(fd, done.set)
    try:
        await done.wait()
    finally:
        loop.remove_reader(fd)
        os.close(fd)
    child.wait()


async def _drain(session: _Session) -> None:
    """Wait for the end of the output. Background processes of an ended shell do not keep a terminal open."""
    try:
        async with asyncio.timeout(_LAST_WORDS_S if session.term_type else None):
            await session.stdout.drain()
            await session.stderr.drain()
    except TimeoutError:
        await session.redirect_stdout(asyncssh.PIPE)


async def _send_exit(session: _Session, code: int) -> None:
    # all output before the status: a client may stop reading once it has the status
    session.channel.set_write_buffer_limits(0)
    await session.stdout.drain()
    session.stdout.write_eof()
    if code < 0:
        session.exit_with_signal(signal.Signals(-code).name.removeprefix("SIG"))
    else:
        session.exit(code)
