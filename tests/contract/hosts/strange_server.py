"""An SSH server that records all requests, with a host key of its own, in a thread."""

from __future__ import annotations

import contextlib
import io
import socket
import threading

import paramiko

from tpujob.adapters.ssh import new_private_key


class StrangeServer(paramiko.ServerInterface):
    """Use with `with`. `seen` holds what came after the key exchange: logins and requests."""

    def __init__(self, port: int = 0) -> None:
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port = self._listener.getsockname()[1]
        self.met: list[paramiko.Transport] = []
        self.seen: list[str] = []
        self._thread = threading.Thread(target=self._accept)

    def __enter__(self) -> StrangeServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        for transport in self.met:
            transport.close()
            transport.join()

    @property
    def connections(self) -> int:
        """The number of connections so far."""
        return len(self.met)

    def _accept(self) -> None:
        key = paramiko.Ed25519Key.from_private_key(io.StringIO(new_private_key()))
        with contextlib.suppress(OSError):
            while True:
                self.met.append(paramiko.Transport(self._listener.accept()[0]))
                self.met[-1].add_server_key(key)
                self.met[-1].start_server(threading.Event(), self)

    # What a client asks for

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_none(self, username: str) -> int:
        self.seen.append(f"login {username}")
        return paramiko.AUTH_FAILED

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        self.seen.append("key")
        return paramiko.AUTH_SUCCESSFUL

    def check_channel_request(self, kind: str, chanid: int) -> int:
        self.seen.append(kind)
        return paramiko.OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED
