"""Connections that send nothing, half of a request or too much of its headers: they cost other clients nothing."""

import contextlib
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.callers import ADA, TokenDoor
from tests.support.http import ask
from tests.support.scripted import TOKEN, ScriptedJobs, listening, scripted_app
from tests.support.waiting import LONG
from tpujob.lib import unix_sockets
from tpujob.web.security import connections
from tpujob.web.security.connections import Connections

HALF = b"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\n"
WHOLE = HALF + f"Authorization: Bearer {TOKEN}\r\n\r\n".encode()
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@contextmanager
def backend(all: Connections) -> Iterator[tuple[str, Callable[[bytes], socket.socket]]]:
    """Return a backend's URL, and a function that connects and sends."""
    with ExitStack() as stack:
        url = stack.enter_context(
            listening(scripted_app(ScriptedJobs(), TokenDoor(TOKEN, ADA)), all)
        )
        where = urlsplit(url)

        def connect(data: bytes) -> socket.socket:
            made = socket.create_connection((where.hostname, where.port), timeout=LONG)
            made.sendall(data)
            return stack.enter_context(made)

        yield url, connect


def answer(connected: socket.socket) -> bytes:
    """All that is sent until the connection ends."""
    received = b""
    try:
        while piece := connected.recv(65536):
            received += piece
    except ConnectionResetError:
        pass
    return received


def served(connect: Callable[[bytes], socket.socket]) -> socket.socket:
    """A connection with a request that was answered. Pytest's own limit of time ends this."""
    while True:
        made = connect(WHOLE)
        with contextlib.suppress(ConnectionResetError):
            if received := made.recv(65536):  # else its headers came late
                assert received.startswith(b"HTTP/1.1 200")
                return made


def test_half_sent_requests_lock_nobody_out() -> None:
    """More half-sent requests than there may be connections all stay open on their side."""
    with backend(Connections(most=20)) as (url, connect):
        halves = [connect(HALF) for _ in range(100)]
        for _ in range(3):
            assert ask(url, "GET", "/v1/jobs", BEARER)[0] == 200
        assert answer(halves[0]) == b"", "the oldest made room"


def test_a_connection_that_is_being_answered_keeps_its_place() -> None:
    with backend(Connections(most=3)) as (_, connect):
        slow = connect(
            WHOLE.replace(b"GET", b"POST").replace(b"\r\n\r\n", b"\r\nContent-Length: 9\r\n\r\n")
        )
        halves = [connect(HALF) for _ in range(20)]
        assert answer(halves[0]) == b""
        slow.sendall(b"x" * 9)
        assert slow.recv(65536).startswith(b"HTTP/1.1 4"), "its request was read to the end"


def test_headers_must_be_there_in_time() -> None:
    with backend(Connections(most=20, headers_s=0.2)) as (_, connect):
        assert answer(connect(b"")) == b""
        assert answer(connect(HALF)) == b""
        wire = served(connect)
        wire.sendall(b"\r\n")  # which begins no request, and from which on uvicorn waits for ever
        assert answer(wire) == b""


def test_one_connection_serves_one_request_after_another() -> None:
    with backend(Connections(most=20)) as (_, connect):
        wire = connect(WHOLE)
        for _ in range(5):
            assert wire.recv(65536).startswith(b"HTTP/1.1 200")
            wire.sendall(WHOLE)


LARGE = b"x" * (connections.HEADER_BYTES + 1)
TOO_MUCH = {
    "many headers": HALF + b"".join(b"X-%d: 1\r\n" % n for n in range(200)) + b"\r\n",
    "a large header": HALF + b"X: " + LARGE + b"\r\n\r\n",
    "a header without an end": HALF + b"X: " + LARGE,
    "a name without an end": HALF + LARGE,
    "a large address": b"GET /" + LARGE + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "an address without an end": b"GET /" + LARGE,
    "after a good one": WHOLE + HALF + b"X: " + LARGE + b"\r\n\r\n",
}


@pytest.mark.parametrize("name", [*TOO_MUCH, "no HTTP"])
def test_headers_that_are_too_large_and_what_is_no_http_are_refused(name: str) -> None:
    with backend(Connections(most=20)) as (_, connect):
        reply = answer(connect(TOO_MUCH.get(name, b"SSH-2.0-OpenSSH_9.6\r\n")))
    assert (b"HTTP/1.1 431 " if name in TOO_MUCH else b"HTTP/1.1 400 ") in reply
    assert b'"type": "BadRequest"' in reply


POST = b"POST /v1/plan HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CHUNKED = b"Transfer-Encoding: chunked"
#: headers that two servers may read as bodies of different lengths, and the beginning of what follows them
AMBIGUOUS = {
    "length and chunks": (CHUNKED + b"\r\nContent-Length: 99", b"0\r\n\r\n"),
    "two lengths": (b"Content-Length: 0\r\nContent-Length: 99", b""),
    "one length twice": (b"Content-Length: 2\r\nContent-Length: 2", b"{}"),
    "a list of lengths": (b"Content-Length: 0, 99", b""),
    "a length with a sign": (b"Content-Length: +2", b"{}"),
    "a length with a space": (b"Content-Length: 2 0", b"{}"),
    "a length beyond 64 bits": (b"Content-Length: 18446744073709551618", b"{}"),
    "a space before the colon": (b"Content-Length : 2", b"{}"),
    "chunks that are not last": (CHUNKED + b", identity", b"0\r\n\r\n"),
    "chunks and another coding": (CHUNKED + b"\r\nTransfer-Encoding: cow", b"0\r\n\r\n"),
    "an unknown coding": (b"Transfer-Encoding: xchunked", b"0\r\n\r\n"),
    "a folded header": (b"X: a\r\n Content-Length: 99\r\nContent-Length: 0", b""),
    "a line end without CR": (b"X: a\nContent-Length: 2", b"{}"),
    "a line end without LF": (b"X: a\rContent-Length: 2\r\nContent-Length: 0", b""),
    "a chunk with 0x": (CHUNKED, b"0x2\r\n{}\r\n0\r\n\r\n"),
    "a chunk beyond 64 bits": (CHUNKED, b"10000000000000002\r\n{}\r\n0\r\n\r\n"),
    "a chunk without CR": (CHUNKED, b"2\n{}\n0\n\n"),
}


def test_a_request_cannot_hide_in_the_body_of_another() -> None:
    """Cloud Run's proxy and this server must agree on where a request ends."""
    with backend(Connections(most=50)) as (_, connect):
        replies = {
            name: answer(connect(POST + headers + b"\r\n\r\n" + body + WHOLE))
            for name, (headers, body) in AMBIGUOUS.items()
        }
    for name, reply in replies.items():
        assert reply.startswith(b"HTTP/1.1 400 "), name
        assert reply.count(b"HTTP/1.1") == 1, name


def test_one_user_cannot_take_all_connections_of_a_unix_socket(tmp_path: Path) -> None:
    place = unix_sockets.listen(tmp_path / "socket")
    all = Connections(most=100, each=5)
    with ExitStack() as stack:
        stack.enter_context(listening(scripted_app(ScriptedJobs()), all, place))

        def connect(data: bytes) -> socket.socket:
            made = stack.enter_context(socket.socket(socket.AF_UNIX))
            made.settimeout(LONG)
            made.connect(str(tmp_path / "socket"))
            made.sendall(data)
            return made

        halves = [connect(HALF) for _ in range(10)]
        assert answer(halves[0]) == b""
        assert connect(WHOLE).recv(65536).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("soft", "hard", "connections"), [(200, 200, 100), (1024, 1024, 512), (256, 4096, 512)]
)
def test_some_descriptors_stay_for_the_backend(soft: int, hard: int, connections: int) -> None:
    code = f"""
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
from tpujob.web.security.connections import most_connections
print(most_connections(), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert [int(word) for word in done.stdout.split()] == [connections, hard]
