"""The addresses at which hosts of a slice listen in tests."""

import contextlib
import os
import secrets
import socket


def free_addresses(count: int) -> list[tuple[str, int]]:
    """Return addresses that are free until a socket listens there. They share a random loopback address: on 127.0.0.1 a
    connection of another test may get and keep such a port."""
    loopback = (
        f"127.{100 + os.getpid() % 100}.{secrets.randbelow(250)}.{1 + secrets.randbelow(250)}"
    )
    with contextlib.ExitStack() as held:
        servers = [held.enter_context(socket.create_server((loopback, 0))) for _ in range(count)]
        return [server.getsockname() for server in servers]


def free_address() -> str:
    """Return one of them, as plans name it."""
    [(name, port)] = free_addresses(1)
    return f"{name}:{port}"
