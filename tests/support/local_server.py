"""An HTTP server of a test, on a free port of loopback."""

import ssl
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self


class LocalServer:
    """A server, from the constructor to `close` or the end of a `with` block. It prints no requests."""

    def __init__(
        self, handler: type[BaseHTTPRequestHandler], tls: ssl.SSLContext | None = None
    ) -> None:
        class Quiet(handler):
            def log_message(self, *args: object) -> None: ...

        self._server = _Server(("127.0.0.1", 0), Quiet)
        self.address = f"127.0.0.1:{self._server.server_port}"
        self.url = f"{'https' if tls else 'http'}://{self.address}"
        if tls:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        serve = self._server.serve_forever
        self._thread = threading.Thread(target=serve, args=(0.02,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    def handle_error(self, *args: object) -> None:
        """Print the error of a handler, unless its client has left: a killed agent closes no connection."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(*args)
