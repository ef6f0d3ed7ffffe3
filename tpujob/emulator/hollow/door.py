"""The one SSH server of all hollow hosts: the key says which slice is meant, the address which of its hosts."""

# asyncssh leaves some of its own parameters untyped
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import contextlib
from collections.abc import Callable

import asyncssh

from tpujob.emulator.farm.hosts import USER
from tpujob.errors import TpujobError

#: begins the addresses of loopback, one for each number of a host; those of `farm/addresses.py` end before it
_BLOCK = "127.251"
_BACKLOG = 1024
#: (line of a public key, number of a host, command, input) -> exit code and output; None: nobody is there
Ask = Callable[[str, int, str, bytes], tuple[int, str] | None]


class Door:
    """For one event loop. Listens from the first `address` of a number on, until `close`."""

    def __init__(self, port: Callable[[], int], known: Callable[[str], bool], ask: Ask) -> None:
        """`port`: of every host. `known`: whether a slice has that public key."""
        self._port, self._known, self._ask = port, known, ask
        self._key = asyncssh.generate_private_key("ssh-ed25519")
        self._acceptors: dict[int, asyncssh.SSHAcceptor] = {}

    @property
    def public_key(self) -> str:
        """The host key of every hollow host: its type and itself."""
        line = self._key.export_public_key("openssh").decode().split()
        return f"{line[0]} {line[1]}"

    async def address(self, host: int) -> str:
        """Where the hosts of that number answer. Raises TpujobError."""
        address = f"{_BLOCK}.{host // 250 + 1}.{host % 250 + 1}"
        if host not in self._acceptors:
            try:
                self._acceptors[host] = await asyncssh.listen(
                    address,
                    self._port(),
                    server_factory=lambda: _Login(self._known, host),
                    server_host_keys=[self._key],
                    process_factory=self._serve,
                    encoding=None,
                    line_editor=False,
                    agent_forwarding=False,
                    config=None,
                    login_timeout=30,
                    backlog=_BACKLOG,
                )
            except OSError as error:
                raise TpujobError(f"no hollow host can listen at {address}: {error}") from error
        return address

    async def close(self) -> None:
        for acceptor in self._acceptors.values():
            acceptor.close()
            await acceptor.wait_closed()
        self._acceptors = {}

    async def _serve(self, session: asyncssh.SSHServerProcess[bytes]) -> None:
        login = session.channel.get_connection().get_owner()
        assert isinstance(login, _Login)
        with contextlib.suppress(OSError, asyncssh.Error):
            given = await session.stdin.read()
            answer = self._ask(login.key, login.host, session.command or "", given)
            if answer is None:  # as a machine that was switched off
                session.channel.get_connection().abort()
                return
            session.stdout.write(answer[1].encode())
            session.exit(answer[0])


class _Login(asyncssh.SSHServer):
    """One connection: who has logged in, and where."""

    def __init__(self, known: Callable[[str], bool], host: int) -> None:
        self._known, self.host, self.key = known, host, ""

    def begin_auth(self, username: str) -> bool:  # noqa: ARG002
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        self.key = " ".join(key.export_public_key("openssh").decode().split()[:2])
        return username == USER and self._known(self.key)
