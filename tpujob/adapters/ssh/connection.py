"""One SSH connection to one host, made by Fabric and made safe: pinned host key, no agent, no ssh_config, deadlines,
bounded output. Vendor errors end here; what is raised is Transient, HostKeyChanged or Refused.

Fabric's `run()` is not used: it keeps all output, joins it again for every chunk, and its `env=` does not quote.
"""

# fabric and paramiko carry no types
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import contextlib
import functools
import io
import logging
import secrets
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tpujob.adapters.ssh.host_keys import Known
from tpujob.adapters.ssh.keys import host_label
from tpujob.adapters.ssh.transport import IAP_HINT, Line, Tunnel
from tpujob.errors import Refused, TpujobError, Transient

if TYPE_CHECKING:
    import paramiko

CONNECT_TIMEOUT = (
    10.0  #: seconds for each of TCP, banner and login; a dropped SYN would hang for minutes
)
TUNNEL_TIMEOUT = 30.0  #: the same through IAP: a program has to start, and to get a token
KEEPALIVE = 15  #: seconds; paramiko sends none unless told to
THREAD_PATIENCE = 5.0  #: seconds; a thread whose socket is closed ends at once
MAX_OUTPUT = 64 * 1024  #: bytes kept of a command's output, from its end
MAX_FLOOD = 16 * 1024 * 1024  #: bytes after which a command is given up

logging.getLogger("paramiko").addHandler(logging.NullHandler())  # its tracebacks are not for people


@dataclass(frozen=True, slots=True)
class Target:
    """A host and how to get in."""

    address: str
    port: int
    user: str
    key: str = field(repr=False)  #: the private half, as OpenSSH writes it
    tunnel: Tunnel | None = None  #: None: by TCP


@dataclass(frozen=True, slots=True)
class Output:
    code: int
    text: str  #: stdout and stderr as they came, the last 64 KiB


class NoLogin(Transient):
    """The host does not accept the key."""


class Deadline:
    """A moment on the monotonic clock."""

    def __init__(self, seconds: float) -> None:
        self._at = time.monotonic() + seconds

    def left(self) -> float:
        return self._at - time.monotonic()

    def at_most(self, seconds: float) -> float:
        """What a single step may take. Raises Transient when there is nothing left."""
        if self.left() <= 0:
            raise Transient("no answer in time")
        return min(seconds, self.left())


class Link:
    """A connection that is made by `open`. `abort` may be called from any thread, and ends whatever another one waits
    for; afterwards it may be opened again."""

    def __init__(self, target: Target, known: Known) -> None:
        """Nothing is sent yet."""
        self.target = target
        self._known = known
        self._connection: Any = None  # a fabric.Connection, whose inferred types are wrong
        self._line: Line | None = None

    def open(self, deadline: Deadline) -> None:
        """Connected and logged in afterwards, the host key compared before. Raises Transient, HostKeyChanged."""
        if self._connection is not None:
            return
        most = CONNECT_TIMEOUT if self.target.tunnel is None else TUNNEL_TIMEOUT
        patience = max(1.0, deadline.at_most(most))
        with self._translated():
            target = self.target
            self._line = line = Line(target.address, target.port, target.tunnel, patience)
            # named here as well: another thread may abort, which takes them from us
            self._connection = connection = _connection(target, line, self._known, patience)
            connection.open()
            self.transport.set_keepalive(KEEPALIVE)

    @property
    def transport(self) -> paramiko.Transport:
        transport = self._connection.client.get_transport() if self._connection else None
        if transport is None:
            raise Transient("the connection is closed")
        return transport

    def run(self, command: str, deadline: Deadline, *, stdin: bytes = b"") -> Output:
        """Run one line of shell, in the home folder, with that input. Raises Transient when the connection breaks, the
        command is killed, or the deadline passes (the command may then live on)."""
        with self._translated(), contextlib.closing(self.session(deadline)) as channel:
            channel.set_combine_stderr(True)
            channel.exec_command(command)
            if stdin:
                channel.settimeout(deadline.at_most(3600))
                channel.sendall(stdin)
            channel.shutdown_write()
            text = _bounded(channel, deadline)
            code = channel.recv_exit_status()
        if code < 0:
            raise Transient("the connection broke, or the command was killed")
        return Output(code, text)

    def session(self, deadline: Deadline) -> paramiko.Channel:
        return self.transport.open_session(timeout=deadline.at_most(CONNECT_TIMEOUT))

    def put(self, path: str, data: bytes, deadline: Deadline) -> None:
        """Write a file of mode 0600, whole or not at all; a relative path is below the home folder. Raises Refused
        when the host cannot take it."""
        import paramiko

        temporary = f"{path}.{secrets.token_hex(6)}.tmp"
        with self._translated(sftp=True), contextlib.closing(self.session(deadline)) as channel:
            channel.settimeout(max(0.1, deadline.left()))
            channel.invoke_subsystem("sftp")
            with contextlib.closing(paramiko.SFTPClient(channel)) as client:
                with client.open(temporary, "wb") as file:
                    file.chmod(0o600)  # before there is anything to read
                    file.set_pipelined(True)
                    file.write(data)
                client.posix_rename(temporary, path)

    def abort(self) -> None:
        """Close, whatever state it is in. Safe to repeat."""
        connection, line = self._connection, self._line
        self._connection = self._line = None
        if line is not None:
            line.hang_up()  # else paramiko's thread would sleep on, up to 0.1 s
        if connection is not None:
            _close(connection)
        if line is not None:
            line.close()

    @contextlib.contextmanager
    def _translated(self, *, sftp: bool = False) -> Generator[None]:
        try:
            yield
        except TpujobError:
            self.abort()
            raise
        except Exception as error:
            ours = _explained(error, self._line, sftp=sftp and self._is_well())
            self.abort()
            raise ours from error

    def _is_well(self) -> bool:
        transport = self._connection.client.get_transport() if self._connection else None
        return transport is not None and transport.is_active()


def _close(connection: Any) -> None:
    """Its thread is gone afterwards too."""
    transport = connection.client.get_transport()
    with contextlib.suppress(Exception):
        connection.client.close()
    if transport is not None and transport is not threading.current_thread():
        transport.join(THREAD_PATIENCE)


def _connection(target: Target, line: Line, known: Known, patience: float) -> Any:
    import fabric

    connection: Any = fabric.Connection(
        target.address,
        user=target.user,
        port=target.port,
        config=_config(),
        forward_agent=False,
        connect_kwargs={
            "pkey": _private_key(target.key),
            "allow_agent": False,
            "look_for_keys": False,
            "sock": line.socket,
            "banner_timeout": patience,
            "auth_timeout": patience,
            "channel_timeout": patience,
        },
    )
    connection.connect_timeout = patience
    connection.client.set_missing_host_key_policy(_policy(target, known))
    return connection


def _config() -> Any:
    """An explicit, empty ssh_config keeps the user's and the system's out: they can name proxies and other keys; lazy
    keeps fabric.yml out as well. One for each connection: making a connection changes its config for a moment, and two
    threads that share one meet it half made."""
    import fabric
    from paramiko import SSHConfig

    return fabric.Config(ssh_config=SSHConfig(), lazy=True)


@functools.lru_cache(maxsize=8)
def _private_key(text: str) -> Any:
    import paramiko

    return paramiko.Ed25519Key.from_private_key(io.StringIO(text))


def _policy(target: Target, known: Known) -> Any:
    """Asked about every host key, as the client itself is told of none; raises unless the key is believed."""
    import paramiko

    class Believe(paramiko.MissingHostKeyPolicy):
        def missing_host_key(self, client: Any, hostname: str, key: paramiko.PKey) -> None:  # noqa: ARG002
            label = host_label(target.address, target.port)
            known.check(label, (key.get_name(), key.get_base64()))

    return Believe()


def _bounded(channel: paramiko.Channel, deadline: Deadline) -> str:
    kept, total = b"", 0
    while True:
        channel.settimeout(deadline.at_most(3600))
        data = channel.recv(32 * 1024)
        if not data:
            return kept.decode(errors="replace")
        kept, total = (kept + data)[-MAX_OUTPUT:], total + len(data)
        if total > MAX_FLOOD:
            raise Transient("a command that should answer in one line printed without end")


def _explained(error: Exception, line: Line | None, *, sftp: bool) -> TpujobError:
    """The vendor's error in our words. `sftp`: it came from a file operation while the connection was well."""
    import paramiko

    if isinstance(error, paramiko.AuthenticationException):
        return NoLogin("the host does not accept the key of the slice")
    said = line.last_words() if line is not None else ""
    if said:
        return Transient(f"the tunnel through IAP does not come about: {said}", hint=IAP_HINT)
    if isinstance(error, TimeoutError):
        return Transient("no answer in time")
    if isinstance(error, ConnectionRefusedError):
        return Transient("connection refused")
    if sftp and isinstance(error, (OSError, paramiko.SFTPError)):
        return Refused(f"cannot write to the host: {error}", cause="SETUP")
    if isinstance(error, OSError) and error.strerror:
        return Transient(error.strerror)
    return Transient(str(error) or "the connection broke")
