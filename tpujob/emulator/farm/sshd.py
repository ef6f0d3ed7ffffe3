"""The SSH server of one emulated host: public-key login, sessions and files, as in OpenSSH."""

# asyncssh leaves some of its own parameters untyped
# pyright: reportUnknownMemberType=false

import asyncio
import contextlib
import os
from pathlib import Path

import asyncssh

from tpujob.emulator.farm.session import HostUser, serve


class SshServer:
    """A server on one address, from `start` to `close`; it may be started again with the same host key."""

    def __init__(self, login: HostUser) -> None:
        self._login = login
        self._key = asyncssh.generate_private_key("ssh-ed25519")
        self._acceptor: asyncssh.SSHAcceptor | None = None
        self._connections: set[asyncssh.SSHServerConnection] = set()
        self._sessions: set[asyncio.Task[None]] = set()

    @property
    def public_key(self) -> str:
        """The host key in OpenSSH's form: type and key."""
        line = self._key.export_public_key("openssh").decode().split()
        return f"{line[0]} {line[1]}"

    async def start(self, address: str, port: int) -> None:
        """Listen. Raise OSError when the address is taken."""
        self._acceptor = await asyncssh.listen(
            address,
            port,
            server_factory=lambda: _Authentication(self._login, self._connections),
            server_host_keys=[self._key],
            process_factory=self._begin,
            sftp_factory=self._files,
            encoding=None,
            line_editor=False,
            agent_forwarding=False,
            config=None,
            login_timeout=30,
        )

    async def close(self) -> None:
        """Drop the listener and all connections, as if switched off. The caller kills the processes."""
        if self._acceptor is not None:
            self._acceptor.close()
        for connection in list(self._connections):
            connection.abort()
        if self._acceptor is not None:
            await self._acceptor.wait_closed()

    async def ended(self) -> None:
        """Wait until every process of the server's sessions has ended and is reaped."""
        await asyncio.gather(*self._sessions, return_exceptions=True)

    def _files(self, chan: asyncssh.SSHServerChannel[bytes]) -> asyncssh.SFTPServer:
        return _Files(chan, self._login.home)

    def _begin(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        # not a coroutine: asyncssh would cancel it with the connection, and the process would not be reaped
        task = asyncio.create_task(serve(process, self._login))
        self._sessions.add(task)
        task.add_done_callback(self._sessions.discard)


class _Authentication(asyncssh.SSHServer):
    """The authentication of one connection."""

    def __init__(self, login: HostUser, connections: set[asyncssh.SSHServerConnection]) -> None:
        self._login = login
        self._connections = connections
        self._connection: asyncssh.SSHServerConnection | None = None

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn
        self._connections.add(conn)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if self._connection is not None:
            self._connections.discard(self._connection)

    def begin_auth(self, username: str) -> bool:
        """Accept the keys of the user's own `authorized_keys`, too, as OpenSSH does; asyncssh checks certificates."""
        if self._connection is not None and username == self._login.user:
            own = self._login.home / ".ssh" / "authorized_keys"
            with contextlib.suppress(OSError, ValueError):  # no file, or no whole line in it
                self._connection.set_authorized_keys(str(own))
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        allowed = _keys_of(username, self._login.keys())
        return username == self._login.user and key.public_data in allowed


def _keys_of(user: str, ssh_keys: str) -> set[bytes]:
    """Return the public keys that the `ssh-keys` of the metadata have for a user."""
    keys: set[bytes] = set()
    for line in ssh_keys.splitlines():
        name, _, text = line.strip().partition(":")
        if name == user:
            with contextlib.suppress(asyncssh.KeyImportError):
                keys.add(asyncssh.import_public_key(text).public_data)
    return keys


class _Files(asyncssh.SFTPServer):
    """The files of the host's user: relative paths are below the home folder, absolute paths unchanged."""

    def __init__(self, chan: asyncssh.SSHServerChannel[bytes], home: Path) -> None:
        super().__init__(chan)
        self._home = os.fsencode(home)

    def map_path(self, path: bytes) -> bytes:
        return os.path.join(self._home, path)
