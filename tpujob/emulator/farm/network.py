"""The network between hosts: open, or as behind a firewall that drops what hosts send each other.

All hosts are on this machine's loopback, which no rule can close without root. So each host has a file of routes, which
the agent heeds where it meets the agents of other hosts (`tpujob/agent/routes.py`): what goes to those
addresses goes to a socket that never answers. Nothing else heeds it: the program's own connections arrive.
"""

import contextlib
import socket
from collections.abc import Sequence
from pathlib import Path

FILLED = 4  #: connections that fill the queue of a socket that accepts none: later ones are dropped by the kernel


class BlackHole:
    """An address at which a connection is neither accepted nor refused. It is opened when it is first asked for."""

    def __init__(self) -> None:
        self._open = contextlib.ExitStack()
        self._address = ""

    def address(self) -> str:
        """`host:port`."""
        if not self._address:
            listener = self._open.enter_context(socket.socket())
            listener.bind(("127.0.0.1", 0))
            listener.listen(0)
            for _ in range(FILLED):
                filler = self._open.enter_context(socket.socket())
                filler.setblocking(False)
                filler.connect_ex(listener.getsockname())
            self._address = f"127.0.0.1:{listener.getsockname()[1]}"
        return self._address

    def close(self) -> None:
        self._open.close()


def write_routes(file: Path, unreachable: Sequence[str], hole: BlackHole) -> None:
    """From now on these addresses (patterns as of a shell) cannot be reached from that host."""
    lines = [f"{pattern} {hole.address()}\n" for pattern in unreachable]
    new = file.with_suffix(".new")
    new.write_text("".join(lines), encoding="ascii")
    new.replace(file)
