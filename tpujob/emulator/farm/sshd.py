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
        """Accept the keys of the metadata and, as OpenSSH does, the user's own `authorized_keys`, with certificates."""
        if self._connection is not None and username == self._login.user:
            keys = asyncssh.SSHAuthorizedKeys()
            for read in (
                self._metadata_keys,
                (self._login.home / ".ssh/authorized_keys").read_text,
            ):
                with contextlib.suppress(OSError, ValueError):  # no file, or no whole line in it
                    keys.load(read())
            self._connection.set_authorized_keys(keys)
        return True

    def connection_requested(
        self, dest_host: str, dest_port: int, orig_host: str, orig_port: int
    ) -> bool:
        """Forward a connection to any port that the host reaches. asyncssh has checked that the certificate permits
        it."""
        del dest_host, dest_port, orig_host, orig_port
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def _metadata_keys(self) -> str:
        """Return the user's keys in the `ssh-keys` of the metadata."""
        lines = (line.strip().partition(":") for line in self._login.keys().splitlines())
        return "\n".join(key for user, _, key in lines if user == self._login.user)


class _Files(asyncssh.SFTPServer):
    """The files of the host's user: relative paths are below the home folder, absolute paths unchanged."""

    def __init__(self, chan: asyncssh.SSHServerChannel[bytes], home: Path) -> None:
        super().__init__(chan)
        self._home = os.fsencode(home)

    def map_path(self, path: bytes) -> bytes:
        return os.path.join(self._home, path)
