"""An adapter of Cloud Storage for a test, and a network between it and the server that fails on demand."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

from tpujob.adapters.gcs import GcsBlobs
from tpujob.emulator.storage import StorageServer

T = 20.0  # seconds; far more than anything here takes
REGION = "us-central2"
BUCKET = "gs://contract-bucket"


@contextmanager
def gcs(url: str) -> Iterator[GcsBlobs]:
    blobs = GcsBlobs("test-project", url)
    try:
        yield blobs
    finally:
        blobs.close()


class Network:
    """A way to the server that can fail: `fault` sees each request's first bytes and says what becomes of it."""

    def __init__(self, url: str) -> None:
        place = urlsplit(url)
        self._server = (place.hostname, place.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.fault: Callable[[bytes], str] = lambda _: "pass"
        self.seen: list[bytes] = []  #: the request lines
        self._threads: list[threading.Thread] = []
        self._spawn(self._accept)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in list(self._threads):
            thread.join(20)

    def _spawn(self, work: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=work, args=args)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._spawn(self._one, client)

    def _one(self, client: socket.socket) -> None:
        """One request of one connection."""
        with suppress(OSError), client, socket.create_connection(self._server) as server:
            client.settimeout(T)
            server.settimeout(T)
            request = self._whole_request(client)
            if not request:
                return
            self.seen.append(request.split(b" HTTP", 1)[0])
            fault = self.fault(request)
            if fault == "cut":
                server.sendall(request[: len(request) * 2 // 3])
                return
            if fault == "damage":
                request = request.replace(b"precious", b"prec1ous")
            if fault.isdigit():
                client.sendall(
                    b"HTTP/1.1 %s No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                    % fault.encode()
                )
                return
            head, _, body = request.partition(b"\r\n\r\n")
            server.sendall(head + b"\r\nConnection: close\r\n\r\n" + body)
            answer = bytearray()
            while chunk := server.recv(1 << 16):
                answer += chunk
            if fault == "lose answer":
                return
            if fault == "damage answer":
                answer = answer.replace(b"precious", b"prec1ous")
            client.sendall(answer)

    def _whole_request(self, client: socket.socket) -> bytes:
        data = bytearray()
        while b"\r\n\r\n" not in data:
            chunk = client.recv(1 << 16)
            if not chunk:
                return b""
            data += chunk
        head, _, body = data.partition(b"\r\n\r\n")
        lengths = [
            int(line.split(b":")[1])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length:")
        ]
        while len(body) < sum(lengths):
            body += client.recv(1 << 16)
        return bytes(head + b"\r\n\r\n" + body)


@contextmanager
def network(server: StorageServer) -> Iterator[tuple[Network, GcsBlobs]]:
    with gcs(server.url) as direct:
        direct.ensure_bucket(BUCKET, REGION, timeout=T)
    between = Network(server.url)
    try:
        with gcs(between.url) as blobs:
            yield between, blobs
    finally:
        between.close()


def once(fault: str, method: bytes) -> Callable[[bytes], str]:
    """`fault` for the first request of that method, and nothing afterwards."""
    left = [fault]

    def choose(request: bytes) -> str:
        return left.pop() if left and request.startswith(method) else "pass"

    return choose
