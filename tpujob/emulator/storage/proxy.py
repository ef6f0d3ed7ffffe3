"""A proxy that leads TensorFlow's file system to the emulated storage.

TensorFlow asks https://www.googleapis.com and https://storage.googleapis.com for `gs://`, and has no setting for other
servers. It obeys HTTPS_PROXY and CURL_CA_BUNDLE. The proxy lets these connections end at the emulated storage, with a
certificate that emulated hosts trust, and every other connection where its program wants it to: through the user's own
proxy, if the emulator was started with one in HTTPS_PROXY.
"""

import asyncio
import base64
import contextlib
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from tpujob.emulator.http_server import LoopThread
from tpujob.lib import unix_sockets

#: the hosts of Cloud Storage that TensorFlow asks
NAMES = ("www.googleapis.com", "storage.googleapis.com")
#: TensorFlow's, in its file system. Other programs have settings for an emulator, and download public files by https
#: from storage.googleapis.com, which stays possible.
_TENSORFLOW = re.compile(r"(?im)^user-agent:\s*(TSL|TensorFlow)\b")
_CONNECT = re.compile(r"CONNECT \[?([\w.:-]+?)\]?:(\d{1,5}) HTTP/1\.[01]\r\n")
_HEAD_S = 30.0  #: seconds for the client to send its request
_PIECE = 64 * 1024
_CONNECTED = b"HTTP/1.1 200 Connection established\r\n\r\n"
_OPEN = re.compile(rb"HTTP/1\.[01] 2\d\d\b")
_LOOPBACK = re.compile(r"localhost|127\.[\d.]+|::1")


@dataclass(frozen=True, slots=True)
class Destination:
    host: str
    port: int
    emulated: bool  #: it ends at the emulated storage


def destination(head: str) -> Destination | None:
    """Return where the proxy lets a client's connection end; None: its request is not one for a tunnel."""
    match = _CONNECT.match(head)
    if match is None:
        return None
    host, port = match[1].lower().rstrip("."), int(match[2])
    emulated = host == NAMES[0] or (host in NAMES and bool(_TENSORFLOW.search(head)))
    return Destination(host, port, emulated)


class StorageProxy:
    """A proxy for programs of this user, in its own thread, from the constructor to `stop`."""

    def __init__(self, storage: Path) -> None:
        """`storage`: the Unix socket on which the emulated storage serves TLS."""
        self._storage = storage
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._tunnels = set[asyncio.Task[None] | None]()
        self._thread = LoopThread(self._main, "storage-proxy")

    def stop(self) -> None:
        """Stop listening and close every connection. Safe to repeat."""
        self._thread.stop()

    async def _main(self, end: asyncio.Event) -> None:
        server = await asyncio.start_server(self._serve, sock=self._socket)
        await end.wait()
        server.close()  # the runner cancels the connections

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._tunnels.add(task)  # the loop itself keeps weak references to tasks only
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
            try:
                await self._tunnel(reader, writer)
            except asyncio.LimitOverrunError:
                writer.write(_refusal(431, "the request is too long"))
            finally:
                self._tunnels.discard(task)
                writer.close()

    async def _tunnel(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not unix_sockets.is_own(writer.get_extra_info("socket")):
            writer.write(
                _refusal(403, "only programs of the user who runs the emulator are served")
            )
            return
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _HEAD_S)
        place = destination(head.decode("latin-1"))
        if place is None:
            writer.write(_refusal(405, "this proxy of the emulator only makes tunnels (CONNECT)"))
            return
        try:
            if place.emulated:
                far_reader, far_writer = await asyncio.open_unix_connection(self._storage)
            elif proxy := user_proxy(place.host):
                far_reader, far_writer = await asyncio.wait_for(_open_by(proxy, place), _HEAD_S)
            else:
                far_reader, far_writer = await asyncio.open_connection(place.host, place.port)
        except (OSError, ValueError, asyncio.IncompleteReadError) as error:
            writer.write(_refusal(502, f"cannot connect to {place.host}: {error}"))
            return
        writer.write(_CONNECTED)
        await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))


def user_proxy(host: str) -> str:
    """Return the URL of the proxy that this process's environment names for https to a host; empty: none."""
    if _LOOPBACK.fullmatch(host) or proxy_bypass(host):
        return ""
    return getproxies().get("https", "")


async def _open_by(
    proxy: str, place: Destination
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a tunnel through another proxy. Raise OSError, ValueError, IncompleteReadError."""
    url = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    if url.scheme != "http" or not url.hostname:
        raise ValueError("HTTPS_PROXY is not an http:// proxy")
    host = f"[{place.host}]" if ":" in place.host else place.host
    head = f"CONNECT {host}:{place.port} HTTP/1.1\r\nHost: {host}:{place.port}\r\n"
    if url.username is not None:
        word = f"{unquote(url.username)}:{unquote(url.password or '')}"
        head += f"Proxy-Authorization: Basic {base64.b64encode(word.encode()).decode()}\r\n"
    reader, writer = await asyncio.open_connection(url.hostname, url.port or 80)
    try:
        writer.write(f"{head}\r\n".encode())
        answer = await reader.readuntil(b"\r\n\r\n")
        if not _OPEN.match(answer):
            status = answer.partition(b"\r\n")[0].decode("latin-1")
            raise ConnectionRefusedError(f"the proxy {url.hostname} answers {status}")
    except BaseException:
        writer.close()
        raise
    return reader, writer


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Copy until the source ends or the target breaks, then close the target."""
    with contextlib.suppress(OSError):
        while piece := await source.read(_PIECE):
            target.write(piece)
            await target.drain()
    target.close()


def _refusal(status: int, text: str) -> bytes:
    body = f"{text}\n".encode()
    head = f"HTTP/1.1 {status} Refused\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body
