"""The one SSH server of all simulated hosts: the key identifies the slice, the address the host in it."""

import asyncio
import contextlib
from collections.abc import Callable

import asyncssh

from tpujob.emulator.farm.hosts import USER

#: begins the addresses of loopback, one for each number of a host; those of `farm/addresses.py` end before it
_BLOCK = "127.251"
_BACKLOG = 1024
#: (line of a public key, number of a host, command, input) -> exit code and output; None: the host is off
Answer = Callable[[str, int, str, bytes], tuple[int, str] | None]


class SshServer:
    """An SSH server for one event loop; it listens at an address from its first use until `close`."""

    def __init__(
        self, port: Callable[[], int], accepts: Callable[[str], bool], answer: Answer
    ) -> None:
        """`accepts`: whether a slice has that public key."""
        self._port, self._known, self._answer = port, accepts, answer
        self._key = asyncssh.generate_private_key("ssh-ed25519")
        self._opening = asyncio.Lock()
        self._acceptors: dict[int, asyncssh.SSHAcceptor] = {}

    @property
    def public_key(self) -> str:
        """The host key of every simulated host: its type and itself."""
        return " ".join(self._key.export_public_key("openssh").decode().split()[:2])

    async def address(self, host: int) -> str:
        """Return the address at which the hosts of that number answer."""
        address = f"{_BLOCK}.{host // 250 + 1}.{host % 250 + 1}"
        async with self._opening:
            if host not in self._acceptors:
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
        return address

    async def close(self) -> None:
        for acceptor in self._acceptors.values():
            acceptor.close()
            await acceptor.wait_closed()

    async def _serve(self, session: asyncssh.SSHServerProcess[bytes]) -> None:
        login = session.channel.get_connection().get_owner()
        assert isinstance(login, _Login)
        with contextlib.suppress(OSError, asyncssh.Error):
            stdin = await session.stdin.read()
            answer = self._answer(login.key, login.host, session.command or "", stdin)
            if answer is None:  # as a machine that was switched off
                session.channel.get_connection().abort()
                return
            session.stdout.write(answer[1].encode())
            session.exit(answer[0])


class _Login(asyncssh.SSHServer):
    """One connection: its key and its host."""

    def __init__(self, accepts: Callable[[str], bool], host: int) -> None:
        self._known, self.host, self.key = accepts, host, ""

    def begin_auth(self, username: str) -> bool:
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        self.key = " ".join(key.export_public_key("openssh").decode().split()[:2])
        return username == USER and self._known(self.key)
