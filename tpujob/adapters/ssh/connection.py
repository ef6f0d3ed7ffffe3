"""One SSH connection to one host through Fabric: pinned host key, no agent, no ssh_config, deadlines, bounded output.

The vendor's errors become Transient or HostKeyChanged. Imported at the first connection: Fabric takes half a second.
"""
# fabric and paramiko carry no types
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportUntypedBaseClass=false, reportMissingTypeStubs=false

import contextlib
import io
import logging
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

import fabric
import paramiko
from fabric.runners import Remote
from invoke.exceptions import CommandTimedOut, ThreadException

from tpujob.adapters.ssh.host_keys import HostKeys
from tpujob.adapters.ssh.keys import host_label
from tpujob.adapters.ssh.transport import IAP_HINT, Login, NoLogin, Transport
from tpujob.errors import TpujobError, Transient
from tpujob.lib.tries import Deadline

#: seconds for each of TCP, banner and login; by default a dropped SYN takes minutes
CONNECT_TIMEOUT = 10.0
TUNNEL_TIMEOUT = 30.0  #: the same through IAP, where a program has to start and to get a token
KEEPALIVE = 15  #: seconds between two keep-alive messages; paramiko sends none by default
THREAD_PATIENCE = 5.0  #: seconds to wait for a thread whose socket was closed
MAX_OUTPUT = 64 * 1024  #: bytes of a command's output that are returned, from its end
MAX_FLOOD = 16 * 1024 * 1024  #: bytes after which a command is given up
_TIMEOUTS = ("timeout", "banner_timeout", "auth_timeout", "channel_timeout")
_BYTES = "latin-1"  #: one character for each byte

logging.getLogger("paramiko").addHandler(logging.NullHandler())  # hide its tracebacks


@dataclass(frozen=True, slots=True)
class Output:
    code: int
    text: str  #: stdout, then stderr: the last MAX_OUTPUT bytes of each


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
        login = self.login
        limit = CONNECT_TIMEOUT if login.tunnel is None else TUNNEL_TIMEOUT
        patience = max(1.0, deadline.left(limit))
        with self._translated():
            # local variables, because `abort` in another thread clears the attributes
            self._transport = transport = Transport(login, patience)
            self._fabric = connection = _fabric_connection(
                login, transport, self._host_keys, patience
            )
            connection.open()
            connection.transport.set_keepalive(KEEPALIVE)

    def run(self, command: str, deadline: Deadline, *, stdin: bytes = b"") -> Output:
        """Run one line of shell in the home folder, with this input. Raises Transient when the connection breaks, the
        command is killed, or the deadline passes, after which the command may still run."""
        with self._translated():
            result = self._connected().run(
                command,
                in_stream=io.BytesIO(stdin),
                hide=True,
                warn=True,
                encoding=_BYTES,
                timeout=deadline.left(3600),
            )
            if result.exited < 0:
                deadline.left()  # raises if this is its end
                raise Transient("the connection broke, or the command was killed")
        printed = (result.stdout + result.stderr).encode(_BYTES)
        return Output(result.exited, printed.decode(errors="replace"))

    def stream(self, command: str, deadline: Deadline, *, silence: float) -> Iterator[bytes]:
        """Yield the output of one line of shell as it arrives, until its end or `abort`; its input stays open. Raises
        Transient when the connection breaks, or nothing arrives for `silence` seconds."""
        with self._translated():
            ssh = self._connected().transport
            with ssh.open_session(timeout=deadline.left(CONNECT_TIMEOUT)) as channel:
                channel.set_combine_stderr(True)
                channel.settimeout(silence)
                # callers quote the arguments
                channel.exec_command(command)  # nosec B601
                while data := channel.recv(256 * 1024):
                    yield data

    def _connected(self) -> Any:
        """Return Fabric's connection while it is open: Fabric would connect again."""
        connection = self._fabric
        if connection is None or not connection.is_connected:
            raise Transient("the connection is closed")
        return connection

    def abort(self) -> None:
        """Close the connection, in any state. Safe to repeat."""
        connection, transport = self._fabric, self._transport
        self._fabric = self._transport = None
        if transport is None:
            return
        transport.hang_up()  # wakes paramiko's thread, which else sleeps for up to 0.1 s
        if connection is not None and (ssh := connection.client.get_transport()) is not None:
            with contextlib.suppress(Exception):
                connection.client.close()
            ssh.join(THREAD_PATIENCE)
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


def _fabric_connection(
    login: Login, transport: Transport, host_keys: HostKeys, patience: float
) -> Any:
    # An empty ssh_config replaces the user's and the system's, which can name proxies and other keys; `lazy` excludes
    # fabric.yml. Each connection needs its own: Fabric changes the config while it connects, visibly to other threads.
    overrides = {"runners": {"remote": _Command}}
    config = fabric.Config(overrides=overrides, ssh_config=paramiko.SSHConfig(), lazy=True)
    connection: Any = fabric.Connection(
        login.address,
        user=login.user,
        port=login.port,
        config=config,
        forward_agent=False,
        connect_kwargs={
            "pkey": paramiko.Ed25519Key.from_private_key(io.StringIO(login.key)),
            "allow_agent": False,
            "look_for_keys": False,
            "sock": transport.socket,
            **dict.fromkeys(_TIMEOUTS, patience),
        },
    )
    connection.client.set_missing_host_key_policy(_HostKeyCheck(login, host_keys))
    return connection


class _HostKeyCheck(paramiko.MissingHostKeyPolicy):
    """Checks every host key, as the client has none, and raises unless the key is trusted."""

    def __init__(self, login: Login, host_keys: HostKeys) -> None:
        self._label, self._host_keys = host_label(login.address, login.port), host_keys

    def missing_host_key(self, client: Any, hostname: str, key: paramiko.PKey) -> None:  # noqa: ARG002
        self._host_keys.check(self._label, (key.get_name(), key.get_base64()))


class _Command(Remote):
    """Fabric's runner of one command, with bounded output and without polling."""

    read_chunk_size = 32 * 1024
    _size = 0  #: bytes printed so far

    def handle_stdin(self, input_: Any, output: Any, echo: bool = False) -> None:  # noqa: ARG002
        """Write all input at once: Fabric would write a byte every 10 ms."""
        with contextlib.suppress(OSError):  # a command that ends early says why
            self.channel.sendall(input_.getvalue())
            self.channel.shutdown_write()

    def respond(self, buffer_: list[str]) -> None:
        """Drop what is in excess after each chunk of output. Raises Transient when the command prints too much."""
        self._size += len(buffer_[-1])
        if self._size > MAX_FLOOD:
            self.kill()
            raise Transient(f"the command printed more than {MAX_FLOOD >> 20} MiB")
        buffer_[:] = ["".join(buffer_)[-MAX_OUTPUT:]]

    def kill(self) -> None:
        with contextlib.suppress(EOFError):  # the connection has ended meanwhile
            super().kill()

    def wait(self) -> None:
        """Wait for the exit code, or the end of the connection."""
        self.channel.status_event.wait()


def _translate(error: Exception, transport: Transport | None) -> TpujobError:
    """Return our error for one of the vendor."""
    if isinstance(error, ThreadException):
        error = error.exceptions[0].value
    if isinstance(error, TpujobError):
        return error
    if isinstance(error, paramiko.AuthenticationException):
        return NoLogin("the host does not accept the key of the slice")
    reason = transport.last_words() if transport is not None else ""
    if reason:
        return Transient(f"the tunnel through IAP failed: {reason}", hint=IAP_HINT)
    if isinstance(error, TimeoutError | CommandTimedOut):
        return Transient("no answer in time")
    if isinstance(error, OSError) and error.strerror:
        return Transient(error.strerror.lower())
    return Transient(str(error) or "the connection broke")
