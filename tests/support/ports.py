"""A port for a server that is started later, also in another process."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def reserved() -> Iterator[int]:
    """A port of 127.0.0.1 at which nobody listens yet. A server that sets SO_REUSEADDR can, and nobody else is given it
    meanwhile: neither a server that takes any port, nor a connection for its own end."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()[1]
