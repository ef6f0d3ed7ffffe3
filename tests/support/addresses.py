"""The addresses at which hosts of a slice listen in tests."""

import contextlib
import os
import secrets
import socket


def free_addresses(count: int) -> list[tuple[str, int]]:
    """Free until a socket listens there. They are on a loopback address of their own: on 127.0.0.1 any connection that
    another test opens may get such a port as its own one, and keep it."""
    at = f"127.{100 + os.getpid() % 100}.{secrets.randbelow(250)}.{1 + secrets.randbelow(250)}"
    with contextlib.ExitStack() as held:
        servers = [held.enter_context(socket.create_server((at, 0))) for _ in range(count)]
        return [server.getsockname() for server in servers]


def free_address() -> str:
    """One of them, as plans name it."""
    [(name, port)] = free_addresses(1)
    return f"{name}:{port}"
