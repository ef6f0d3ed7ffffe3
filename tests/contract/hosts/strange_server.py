"""An SSH server that notes everything it is told, with a host key of its own, in a thread."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import asyncssh


class StrangeServer:
    """Use with `with`. `seen` holds what came after the key exchange: logins and requests."""

    def __init__(self, port: int = 0) -> None:
        self.port = port
        self.met: list[Any] = []
        self.seen: list[str] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._acceptor: Any = None

    def __enter__(self) -> StrangeServer:
        self._thread.start()
        self._acceptor = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(20)
        self.port = self._acceptor.get_port()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(20)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def connections(self) -> int:
        """How many there have been."""
        return len(self.met)

    async def _listen(self) -> Any:
        return await asyncssh.listen(
            "127.0.0.1",
            self.port,
            server_factory=lambda: _Recorder(self),
            server_host_keys=[asyncssh.generate_private_key("ssh-ed25519")],
            config=None,
        )

    async def _close(self) -> None:
        self._acceptor.close()
        for connection in self.met:
            connection.abort()
        await asyncio.gather(*(c.wait_closed() for c in self.met), return_exceptions=True)
        await self._acceptor.wait_closed()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*others, return_exceptions=True)


class _Recorder(asyncssh.SSHServer):
    def __init__(self, server: StrangeServer) -> None:
        self._server = server

    def connection_made(self, conn: Any) -> None:
        self._server.met.append(conn)

    def begin_auth(self, username: str) -> bool:
        self._server.seen.append(f"login {username}")
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: Any) -> bool:
        self._server.seen.append("key")
        return True

    def session_requested(self) -> bool:
        self._server.seen.append("session")
        return False
