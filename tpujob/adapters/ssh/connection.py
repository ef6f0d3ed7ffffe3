"""One SSH connection to one host through Fabric: pinned host key, no agent, no ssh_config, deadlines, bounded output.

The vendor's errors become Transient or HostKeyChanged. Fabric's `run()` is not used: it stores all output, joins it
again for every chunk, and its `env=` does not quote.
"""
# fabric and paramiko carry no types
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import contextlib
import io
import logging
import threading
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tpujob.adapters.calling import Deadline
from tpujob.adapters.ssh.host_keys import HostKeys
from tpujob.adapters.ssh.keys import host_label
from tpujob.adapters.ssh.transport import IAP_HINT, Transport, Tunnel
from tpujob.errors import TpujobError, Transient

if TYPE_CHECKING:
    import paramiko

#: seconds for each of TCP, banner and login; by default a dropped SYN takes minutes
CONNECT_TIMEOUT = 10.0
TUNNEL_TIMEOUT = 30.0  #: the same through IAP, where a program has to start and to get a token
KEEPALIVE = 15  #: seconds between two keep-alive messages; paramiko sends none by default
THREAD_PATIENCE = 5.0  #: seconds to wait for a thread whose socket was closed
MAX_OUTPUT = 64 * 1024  #: bytes of a command's output that are returned, from its end
MAX_FLOOD = 16 * 1024 * 1024  #: bytes after which a command is given up

logging.getLogger("paramiko").addHandler(logging.NullHandler())  # hide its tracebacks


@dataclass(frozen=True, slots=True)
class Login:
    """The address of a host and the key for it."""

    address: str
    port: int
    user: str
    key: str = field(repr=False)  #: private key in the format of OpenSSH
    tunnel: Tunnel | None = None  #: None: a direct connection


@dataclass(frozen=True, slots=True)
class Output:
    code: int
    text: str  #: stdout and stderr in their order, the last MAX_OUTPUT bytes


class NoLogin(Transient):
    """The host does not accept the key."""


class Connection:
    """A connection to a host, which `open` opens, also after `abort`. Any thread may `abort`: calls of others end."""

    def __init__(self, login: Login, host_keys: HostKeys) -> None:
        self.login = login
        self._host_keys = host_keys
        self._fabric: Any = None  # a fabric.Connection, whose annotations are wrong
        self._transport: Transport | None = None

    def open(self, deadline: Deadline) -> None:
        """Connect, check the host key, log in. Raises Transient, HostKeyChanged."""
        if self._fabric is not None:
            return
        limit = CONNECT_TIMEOUT if self.login.tunnel is None else TUNNEL_TIMEOUT
        patience = max(1.0, deadline.left(limit))
        with self._translated():
            # local variables, because `abort` in another thread clears the attributes
            login, host_keys = self.login, self._host_keys
            transport = Transport(login.address, login.port, login.tunnel, patience)
            self._transport = transport
            self._fabric = connection = _fabric_connection(login, transport, host_keys, patience)
            connection.open()
            self._ssh.set_keepalive(KEEPALIVE)

    @property
    def _ssh(self) -> paramiko.Transport:
        ssh = self._fabric.client.get_transport() if self._fabric else None
        if ssh is None:
            raise Transient("the connection is closed")
        return ssh

    def run(self, command: str, deadline: Deadline, *, stdin: bytes = b"") -> Output:
        """Run one line of shell in the home folder, with this input. Raises Transient when the connection breaks, the
        command is killed, or the deadline passes, after which the command may still run."""
        with self._translated(), contextlib.closing(self._channel(deadline)) as channel:
            channel.set_combine_stderr(True)
            # callers quote the arguments
            channel.exec_command(command)  # nosec B601
            if stdin:
                channel.settimeout(deadline.left(3600))
                channel.sendall(stdin)
            channel.shutdown_write()
            text = _read_output(channel, deadline)
            code = channel.recv_exit_status()
        if code < 0:
            raise Transient("the connection broke, or the command was killed")
        return Output(code, text)

    def stream(self, command: str, deadline: Deadline, *, silence: float) -> Iterator[bytes]:
        """Yield the output of one line of shell as it arrives, until its end or `abort`; its input stays open. Raises
        Transient when the connection breaks, or nothing arrives for `silence` seconds."""
        with self._translated(), contextlib.closing(self._channel(deadline)) as channel:
            channel.set_combine_stderr(True)
            channel.settimeout(silence)
            # callers quote the arguments
            channel.exec_command(command)  # nosec B601
            while data := channel.recv(256 * 1024):
                yield data

    def _channel(self, deadline: Deadline) -> paramiko.Channel:
        return self._ssh.open_session(timeout=deadline.left(CONNECT_TIMEOUT))

    def abort(self) -> None:
        """Close the connection, in any state. Safe to repeat."""
        connection, transport = self._fabric, self._transport
        self._fabric = None
        self._transport = None
        if transport is not None:
            transport.hang_up()  # wakes paramiko's thread, which else sleeps for up to 0.1 s
        if connection is not None:
            _close(connection)
        if transport is not None:
            transport.close()

    @contextlib.contextmanager
    def _translated(self) -> Generator[None]:
        """Abort after any error, and translate the vendor's errors to ours."""
        try:
            yield
        except TpujobError:
            self.abort()
            raise
        except Exception as error:
            ours = _translate(error, self._transport)
            self.abort()
            raise ours from error


def _close(connection: Any) -> None:
    """Close a connection and wait for the end of its thread."""
    transport = connection.client.get_transport()
    with contextlib.suppress(Exception):
        connection.client.close()
    if transport is not None and transport is not threading.current_thread():
        transport.join(THREAD_PATIENCE)


def _fabric_connection(
    login: Login, transport: Transport, host_keys: HostKeys, patience: float
) -> Any:
    import fabric
    from paramiko import Ed25519Key, SSHConfig

    # An empty ssh_config replaces the user's and the system's, which can name proxies and other keys; `lazy` excludes
    # fabric.yml. Each connection needs its own: Fabric changes the config while it connects, visibly to other threads.
    config: Any = fabric.Config(ssh_config=SSHConfig(), lazy=True)
    connection: Any = fabric.Connection(
        login.address,
        user=login.user,
        port=login.port,
        config=config,
        forward_agent=False,
        connect_kwargs={
            "pkey": Ed25519Key.from_private_key(io.StringIO(login.key)),
            "allow_agent": False,
            "look_for_keys": False,
            "sock": transport.socket,
            "banner_timeout": patience,
            "auth_timeout": patience,
            "channel_timeout": patience,
        },
    )
    connection.connect_timeout = patience
    connection.client.set_missing_host_key_policy(_policy(login, host_keys))
    return connection


def _policy(login: Login, host_keys: HostKeys) -> Any:
    """Return a policy that checks every host key, as the client has none, and raises unless the key is trusted."""
    import paramiko

    class Check(paramiko.MissingHostKeyPolicy):
        def missing_host_key(self, client: Any, hostname: str, key: paramiko.PKey) -> None:  # noqa: ARG002
            label = host_label(login.address, login.port)
            host_keys.check(label, (key.get_name(), key.get_base64()))

    return Check()


def _read_output(channel: paramiko.Channel, deadline: Deadline) -> str:
    """Return the end of a command's output. Raises Transient when the command prints too much."""
    tail, total = b"", 0
    while True:
        channel.settimeout(deadline.left(3600))
        data = channel.recv(32 * 1024)
        if not data:
            return tail.decode(errors="replace")
        tail = (tail + data)[-MAX_OUTPUT:]
        total += len(data)
        if total > MAX_FLOOD:
            raise Transient(f"the command printed more than {MAX_FLOOD >> 20} MiB")


def _translate(error: Exception, transport: Transport | None) -> TpujobError:
    """Return our error for one of the vendor."""
    import paramiko

    if isinstance(error, paramiko.AuthenticationException):
        return NoLogin("the host does not accept the key of the slice")
    reason = transport.last_words() if transport is not None else ""
    if reason:
        return Transient(f"the tunnel through IAP failed: {reason}", hint=IAP_HINT)
    if isinstance(error, TimeoutError):
        return Transient("no answer in time")
    if isinstance(error, ConnectionRefusedError):
        return Transient("connection refused")
    if isinstance(error, OSError) and error.strerror:
        return Transient(error.strerror)
    return Transient(str(error) or "the connection broke")
