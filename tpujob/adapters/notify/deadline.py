"""An end for a conversation over a socket: time limits of single reads let a slow talker go on for ever."""

import contextlib
import socket
import threading
from collections.abc import Callable, Generator


@contextlib.contextmanager
def cut_after(seconds: float, found: Callable[[], socket.socket | None]) -> Generator[None]:
    """After that many seconds the socket that `found` gives is shut down, so that whatever waits for it fails."""

    def cut() -> None:
        sock = found()
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
