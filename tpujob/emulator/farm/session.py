"""One session on an emulated host: a command or a shell, on pipes or on a terminal. A process outlives its client
unless it has a terminal; a session ends when its output ends, not before."""

# asyncssh leaves some of its own parameters untyped
# pyright: reportUnknownMemberType=false

import asyncio
import contextlib
import fcntl
import os
import signal
import struct
import subprocess
import termios
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncssh

CHUNK = 64 * 1024
SHELL = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
#: a session leader without a terminal gets the first terminal that it opens
_TAKE_TERMINAL = 'tty="$1"; shift; exec "$@" <>"$tty" >&0 2>&1'

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
        child, streams = await (_on_terminal if session.term_type else _on_pipes)(session, login)
    except OSError as error:
        session.stderr.write(f"cannot start: {error}\n".encode())
        session.exit(126)
        return
    ended = asyncio.create_task(_wait_for(child))
    feed = asyncio.create_task(streams.feed)
    left = asyncio.create_task(session.channel.wait_closed())
    finished = asyncio.gather(ended, *streams.outputs, return_exceptions=True)
    if streams.terminal:
        ended.add_done_callback(lambda _: streams.end_soon())
    await asyncio.wait({finished, left}, return_when=asyncio.FIRST_COMPLETED)
    if left.done():
        streams.cancel()
    else:
        await _send_exit(session, child.returncode)
    feed.cancel()
    left.cancel()
    streams.close()
    await asyncio.gather(finished, feed, left, return_exceptions=True)


async def _send_exit(session: _Session, code: int | None) -> None:
    with contextlib.suppress(OSError, asyncssh.Error):
        # all output before the status: a client may stop reading once it has the status
        session.channel.set_write_buffer_limits(0)
        await session.stdout.drain()
        session.stdout.write_eof()
        if code is not None and code < 0:
            name = signal.Signals(-code).name.removeprefix("SIG")
            session.exit_with_signal(name)
        else:
            session.exit(code or 0)


@dataclass
class _Streams:
    outputs: list[asyncio.Task[None]]
    feed: Coroutine[Any, Any, None]
    transports: list[asyncio.BaseTransport]
    terminal: bool = False

    def end_soon(self) -> None:
        """End the session's output soon: background processes of an ended shell do not keep a terminal open."""
        asyncio.get_running_loop().call_later(1.0, self.cancel)

    def cancel(self) -> None:
        for task in self.outputs:
            task.cancel()

    def close(self) -> None:
        for transport in self.transports:
            transport.close()


async def _on_pipes(session: _Session, login: HostUser) -> tuple[subprocess.Popen[bytes], _Streams]:
    stdin, stdout, stderr = os.pipe(), os.pipe(), os.pipe()
    try:
        child = _spawn(session, login, [], stdin[0], stdout[1], stderr[1])
    except OSError:
        for fd in (stdin[1], stdout[0], stderr[0]):
            os.close(fd)
        raise
    finally:
        for fd in (stdin[0], stdout[1], stderr[1]):
            os.close(fd)
    out, out_transport = await _reader(stdout[0])
    err, err_transport = await _reader(stderr[0])
    sink, sink_transport = await _writer(stdin[1])
    pumps = [_pump(out, session.stdout, out_transport), _pump(err, session.stderr, err_transport)]
    feed = _feed(session, sink, child, terminal=None)
    transports = [out_transport, err_transport, sink_transport]
    return child, _Streams([asyncio.create_task(p) for p in pumps], feed, transports)


async def _on_terminal(
    session: _Session, login: HostUser
) -> tuple[subprocess.Popen[bytes], _Streams]:
    master, slave = os.openpty()
    try:
        _resize(master, session.term_size)
        prefix = ["/bin/sh", "-c", _TAKE_TERMINAL, "sh", os.ttyname(slave)]
        child = _spawn(session, login, prefix, slave, slave, slave)
    except OSError:
        os.close(master)
        raise
    finally:
        os.close(slave)
    sink, sink_transport = await _writer(os.dup(master))
    out, out_transport = await _reader(master)
    pump = asyncio.create_task(_pump(out, session.stdout, out_transport))
    feed = _feed(session, sink, child, terminal=master)
    return child, _Streams([pump], feed, [out_transport, sink_transport], terminal=True)


def _spawn(
    session: _Session, login: HostUser, prefix: list[str], stdin: int, stdout: int, stderr: int
) -> subprocess.Popen[bytes]:
    command = os.fsdecode(session.command) if session.command is not None else None
    argv = [SHELL, "-c", command] if command is not None else [SHELL, "-l"]
    env = {**login.env, **({"TERM": session.term_type} if session.term_type else {})}
    return subprocess.Popen(
        [*prefix, *argv],
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
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


async def _pump(
    source: asyncio.StreamReader, sink: asyncssh.SSHWriter[bytes], pipe: asyncio.BaseTransport
) -> None:
    """Copy output until it ends. When the client has left, close the pipe, so that the writer notices."""
    try:
        while data := await source.read(CHUNK):
            sink.write(data)
            await sink.drain()
    except (OSError, asyncssh.Error):
        pass  # EIO at a terminal's end; a broken pipe when the client left
    finally:
        pipe.close()


async def _feed(
    session: _Session,
    sink: asyncio.StreamWriter,
    child: subprocess.Popen[bytes],
    terminal: int | None,
) -> None:
    """Copy input, and pass on signals and window sizes, which come in the same stream."""
    while True:
        try:
            data = await session.stdin.read(CHUNK)
        except asyncssh.TerminalSizeChanged as change:
            if terminal is not None:
                _resize(terminal, change.term_size)
            continue
        except asyncssh.SignalReceived as received:
            _forward_signal(child, received.signal)
            continue
        except asyncssh.BreakReceived:
            continue
        except (OSError, asyncssh.Error):
            return
        if not data:
            break
        with contextlib.suppress(OSError):  # the program closed its input: drop the rest
            sink.write(data)
            await sink.drain()
    if terminal is None:
        sink.close()
    else:
        sink.write(b"\x04")  # what a person types to end a terminal's input


def _forward_signal(child: subprocess.Popen[bytes], name: str) -> None:
    number = getattr(signal, f"SIG{name}", None)
    if isinstance(number, signal.Signals) and child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)


def _resize(terminal: int, size: tuple[int, ...]) -> None:
    columns, rows, width, height = size
    packed = struct.pack("HHHH", rows, columns, width, height)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, packed)


async def _reader(fd: int) -> tuple[asyncio.StreamReader, asyncio.BaseTransport]:
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(limit=CHUNK)
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await loop.connect_read_pipe(lambda: protocol, os.fdopen(fd, "rb", 0))
    return reader, transport


async def _writer(fd: int) -> tuple[asyncio.StreamWriter, asyncio.BaseTransport]:
    loop, protocol = asyncio.get_running_loop(), asyncio.streams.FlowControlMixin()
    transport, _ = await loop.connect_write_pipe(lambda: protocol, os.fdopen(fd, "wb", 0))
    return asyncio.StreamWriter(transport, protocol, None, loop), transport
