"""Pass a browser's requests on to a backend, as the user of this process, and its answers back as they come."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from collections.abc import Mapping
from typing import Final

from tpujob.adapters.http.transport import BROKEN, BackendAddress
from tpujob.errors import BackendGone, Transient, Unauthorized

#: seconds of silence after which an answer is given up; a stream of the page is never silent for as long
TIMEOUT = 90.0
PIECE = 65_536  #: bytes of an answer that are passed on at once, at most
IDLE = 8  #: connections that are kept for the next requests
#: what every answer of a backend has (`web/middleware/security.py`), and what no other server gives
_OURS: Final = "x-request-id"


class ProxyClient:
    """Passes requests on. Safe to use from several threads."""

    def __init__(self, address: BackendAddress, timeout: float = TIMEOUT) -> None:
        self._address, self._timeout = address.checked(), timeout
        self._lock = threading.Lock()
        self._idle: list[http.client.HTTPConnection] = []
        self._busy = set[http.client.HTTPConnection]()
        self._closed = False

    @property
    def url(self) -> str:
        return self._address.url

    def ask(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """The backend's answer, of which only the beginning is there yet. No redirect is followed. A token that was
        refused is renewed once. Raises Unauthorized, Forbidden, BackendGone, Transient."""
        answer = self._send(method, target, self._signed(headers, renew=False), body)
        if answer.status == 401 and self._address.sign:
            answer.close()
            answer = self._send(method, target, self._signed(headers, renew=True), body)
        if answer.header(_OURS) is None:
            answer.close()
            hint = "check the address, and that the service runs"
            raise self._address.in_front(answer.status, hint)
        if answer.status == 401:
            answer.close()
            raise Unauthorized(
                f"the backend at {self.url} does not know you any more",
                hint="sign in again: `tpujob login`",
            )
        return answer

    def close(self) -> None:
        """Cut every connection: threads that wait for an answer get its end. Later connections are not kept."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            for connection in self._busy:
                _cut(connection.sock)
        for connection in idle:
            connection.close()

    def _signed(self, headers: Mapping[str, str], *, renew: bool) -> dict[str, str]:
        return {**headers, **(self._address.sign(renew) if self._address.sign else {})}

    def _send(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Answer:
        while True:
            kept, connection = self._take(repeatable=method in ("GET", "HEAD"))
            try:
                connection.request(method, target, body=body or None, headers=dict(headers))
                sock = connection.sock  # the connection forgets it if this answer is the last one
                return Answer(self, connection, sock, connection.getresponse())
            except BaseException as error:
                self.give_back(connection, keep=False)
                if kept and isinstance(error, BROKEN):
                    continue  # the backend had closed it meanwhile
                if isinstance(error, TimeoutError):
                    raise Transient(f"the backend at {self.url} did not answer in time") from None
                if isinstance(error, (OSError, http.client.HTTPException)):
                    reason = str(error) or type(error).__name__
                    raise BackendGone(f"nothing answers at {self.url} ({reason})") from None
                raise

    def _take(self, *, repeatable: bool) -> tuple[bool, http.client.HTTPConnection]:
        """A connection, and whether it was used before: only for what may be sent twice."""
        with self._lock:
            kept = repeatable and bool(self._idle)
            connection = self._idle.pop() if kept else self._address.connection()
            connection.timeout = self._timeout
            self._busy.add(connection)
        return kept, connection

    def give_back(self, connection: http.client.HTTPConnection, *, keep: bool) -> None:
        """Release a connection; `keep`: the next request may use it."""
        with self._lock:
            self._busy.discard(connection)
            if keep and not self._closed and len(self._idle) < IDLE:
                self._idle.append(connection)
                return
        connection.close()


class Answer:
    """One answer of the backend. The caller closes it."""

    def __init__(
        self,
        client: ProxyClient,
        connection: http.client.HTTPConnection,
        sock: socket.socket | None,
        response: http.client.HTTPResponse,
    ) -> None:
        self._client, self._connection, self._response = client, connection, response
        self._sock = sock
        self._closed = False
        self.status = response.status
        self.headers = [(name.lower(), value) for name, value in response.getheaders()]

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name), None)

    def read(self) -> bytes:
        """What has come, as soon as there is anything; empty: that was all. Raises OSError, HTTPException."""
        return self._response.read1(PIECE)

    def cut(self) -> None:
        """Let a `read` in another thread end."""
        _cut(self._sock)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        whole = self._response.isclosed() and not self._response.will_close
        if not whole:
            self.cut()  # another thread may still read
        self._response.close()
        self._client.give_back(self._connection, keep=whole)


def _cut(sock: socket.socket | None) -> None:
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
