"""One SSH connection to one host, made by Fabric and made safe: pinned host key, no agent, no ssh_config, deadlines,
bounded output. Vendor errors end here; what is raised is Transient, HostKeyChanged or Refused.

Fabric's `run()` is not used: it keeps all output, joins it again for every chunk, and its `env=` does not quote.
"""

# fabric and paramiko carry no types
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import contextlib
import logging
import secrets
import shlex
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpujob.adapters.ssh_keys import host_label, pin
from tpujob.errors import HostKeyChanged, Refused, TpujobError, Transient

if TYPE_CHECKING:
    import paramiko

CONNECT_TIMEOUT = (
    10.0  #: seconds for each of TCP, banner and login; a dropped SYN would hang for minutes
)
KEEPALIVE = 15  #: seconds; paramiko sends none unless told to
MAX_OUTPUT = 64 * 1024  #: bytes kept of a command's output, from its end
MAX_FLOOD = 16 * 1024 * 1024  #: bytes after which a command is given up

logging.getLogger("paramiko").addHandler(logging.NullHandler())  # its tracebacks are not for people


@dataclass(frozen=True, slots=True)
class Target:
    """A host and how to get in."""

    address: str
    port: int
    user: str
    key_file: Path
    known_hosts_file: Path


@dataclass(frozen=True, slots=True)
class Output:
    code: int
    text: str  #: stdout and stderr as they came, the last 64 KiB


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
    """A connection. `abort` may be called from any thread, and ends whatever another one waits for."""

    def __init__(self, target: Target, *, first_contact: bool) -> None:
        """Nothing is sent yet. `first_contact`: a host without a pinned key gets its key pinned; else it is refused."""
        self.target = target
        self._connection = _connection(target)
        client = self._connection.client
        client.set_missing_host_key_policy(_policy(target, first_contact))
        if target.known_hosts_file.exists():
            client.load_host_keys(str(target.known_hosts_file))

    def open(self, deadline: Deadline) -> None:
        """Connect, compare the host key, log in. Raises Transient, HostKeyChanged."""
        patience = max(1.0, deadline.at_most(CONNECT_TIMEOUT))
        self._connection.connect_timeout = patience
        for name in ("banner_timeout", "auth_timeout", "channel_timeout"):
            self._connection.connect_kwargs[name] = patience
        with self._translated():
            self._connection.open()
            self.transport.set_keepalive(KEEPALIVE)

    @property
    def transport(self) -> paramiko.Transport:
        transport = self._connection.client.get_transport()
        if transport is None:
            raise Transient("the connection is closed")
        return transport

    def run(self, argv: Sequence[str], deadline: Deadline) -> Output:
        """Run one command, every argument quoted, without input. Raises Transient when the connection breaks, the
        command is killed, or the deadline passes (the command may then live on)."""
        with self._translated(), contextlib.closing(self.session(deadline)) as channel:
            channel.set_combine_stderr(True)
            channel.exec_command(shlex.join(argv))
            channel.shutdown_write()
            text = _bounded(channel, deadline)
            code = channel.recv_exit_status()
        if code < 0:
            raise Transient("the connection broke, or the command was killed")
        return Output(code, text)

    def session(self, deadline: Deadline) -> paramiko.Channel:
        return self.transport.open_session(timeout=deadline.at_most(CONNECT_TIMEOUT))

    @contextlib.contextmanager
    def files(self, deadline: Deadline) -> Generator[Files]:
        """An SFTP session. Raises Refused when the host cannot take or show a file."""
        import paramiko

        with self._translated(sftp=True), contextlib.closing(self.session(deadline)) as channel:
            channel.settimeout(max(0.1, deadline.left()))
            channel.invoke_subsystem("sftp")
            with contextlib.closing(paramiko.SFTPClient(channel)) as client:
                yield Files(client)

    def abort(self) -> None:
        """Close, whatever state it is in. Safe to repeat."""
        with contextlib.suppress(Exception):
            self._connection.client.close()

    @contextlib.contextmanager
    def _translated(self, *, sftp: bool = False) -> Generator[None]:
        try:
            yield
        except TpujobError:
            self.abort()
            raise
        except Exception as error:
            transport = self._connection.client.get_transport()
            alive = transport is not None and transport.is_active()
            self.abort()
            raise _explained(error, self.target, sftp=sftp and alive) from error


class Files:
    """The few things done with files on a host. Relative paths are below the home folder."""

    def __init__(self, client: paramiko.SFTPClient) -> None:
        self._client = client

    def home(self) -> str:
        return self._client.normalize(".")

    def folder(self, path: str) -> None:
        """Afterwards the folder is there; a new one is 0700."""
        try:
            self._client.mkdir(path, 0o700)
        except OSError:
            self._client.stat(path)  # raises, unless it was there before

    def size(self, path: str) -> int | None:
        """None: there is no such file."""
        try:
            return self._client.stat(path).st_size
        except FileNotFoundError:
            return None

    def put(self, path: str, data: bytes) -> None:
        """Write a file of mode 0600, whole or not at all."""
        temporary = f"{path}.{secrets.token_hex(6)}.tmp"
        with self._client.open(temporary, "wb") as file:
            file.chmod(0o600)  # before there is anything to read
            file.set_pipelined(True)
            file.write(data)
        self._client.posix_rename(temporary, path)


def _connection(target: Target) -> Any:  # a fabric.Connection, whose inferred types are wrong
    import fabric
    from paramiko import SSHConfig

    # an explicit, empty ssh_config keeps the user's and the system's out: they can name proxies and other keys;
    # lazy keeps fabric.yml out as well
    config = fabric.Config(ssh_config=SSHConfig(), lazy=True)
    return fabric.Connection(
        target.address,
        user=target.user,
        port=target.port,
        config=config,
        forward_agent=False,
        connect_kwargs={
            "key_filename": str(target.key_file),
            "allow_agent": False,
            "look_for_keys": False,
        },
    )


def _policy(target: Target, first_contact: bool) -> Any:
    import paramiko

    class PinAtFirstContact(paramiko.MissingHostKeyPolicy):
        def missing_host_key(self, client: Any, hostname: str, key: paramiko.PKey) -> None:  # noqa: ARG002
            label = host_label(target.address, target.port)
            pin(target.known_hosts_file, label, key.get_name(), key.get_base64())

    return PinAtFirstContact() if first_contact else paramiko.RejectPolicy()


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


def _explained(error: Exception, target: Target, *, sftp: bool) -> TpujobError:
    """The vendor's error in our words. `sftp`: it came from a file operation while the connection was well."""
    import paramiko
    from paramiko.ssh_exception import NoValidConnectionsError

    if isinstance(error, paramiko.BadHostKeyException):
        return HostKeyChanged(
            f"{target.address} shows another host key than at the first contact; nothing was sent to it"
        )
    if isinstance(error, paramiko.AuthenticationException):
        return Transient("the host does not accept the key of the slice")
    if isinstance(error, TimeoutError):
        return Transient("no answer in time")
    if isinstance(error, NoValidConnectionsError):
        return Transient("connection refused")
    if sftp and isinstance(error, (OSError, paramiko.SFTPError)):
        return Refused(f"cannot write to the host: {error}", cause="SETUP")
    return Transient(str(error) or "the connection broke")
