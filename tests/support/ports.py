"""A port for a server that is started later, also in another process."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def reserved() -> Iterator[int]:
    """Yield a port of 127.0.0.1 at which a server that sets SO_REUSEADDR can listen. Meanwhile the kernel gives it to
    no server that takes any port, and to no connection."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()[1]
