"""Receives the code of one sign-in from a browser on this machine, at a port of 127.0.0.1."""

import asyncio
import contextlib
import hmac
import os
import socket
from urllib.parse import parse_qs

from tpujob.adapters.sign_in.google import SignInAttempt
from tpujob.errors import BadRequest, Unauthorized
from tpujob.lib import unix_sockets

SIGN_IN_TIMEOUT = 300.0  #: seconds for a person to sign in
REQUEST_TIMEOUT = 5.0  #: seconds in which a connection must send its whole request
_DONE = "The terminal shows whether you are signed in. This window can be closed."
_OTHER = "This is not an answer to a sign-in of tpujob."


class RedirectListener:
    """The listener at the redirect address of a sign-in. Listens from the start, so that no other program can take the
    port, and serves connections in parallel, so that none delays the browser's."""

    def __init__(self, request_timeout: float = REQUEST_TIMEOUT) -> None:
        self._request_timeout = request_timeout
        self._code = ""
        self._error: Unauthorized | None = None
        self._attempt: SignInAttempt | None = None
        self._ended = asyncio.Event()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.redirect = f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def wait(self, attempt: SignInAttempt, patience: float = SIGN_IN_TIMEOUT) -> str:
        """Return the code that a browser brings. Raises Unauthorized when the person refused, or did nothing."""
        self._attempt = attempt
        try:
            asyncio.run(asyncio.wait_for(self._serve(), patience))
        except TimeoutError:
            raise Unauthorized(
                f"you did not sign in within {patience / 60:.0f} minutes",
                hint="without a browser on this machine: tpujob login --no-browser",
            ) from None
        if self._error is not None:
            raise self._error
        return self._code

    def close(self) -> None:
        self._socket.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._answer, sock=self._socket)
        try:
            await self._ended.wait()
        finally:
            server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # cancelled at the end of the sign-in, which Python 3.11 would show as an error
        broken = (OSError, EOFError, asyncio.LimitOverrunError, asyncio.CancelledError)
        with contextlib.closing(writer), contextlib.suppress(*broken):
            # root can read this process anyway, and may forward connections, as virtual machines do
            peer = unix_sockets.uid_of_peer(writer.get_extra_info("socket"))
            if peer not in (None, 0, os.geteuid()):
                return
            async with asyncio.timeout(self._request_timeout):
                request = await reader.readuntil(b"\r\n\r\n")
            accepted = self._accept(request.decode("latin-1"))
            writer.write(_page(_DONE, "200 OK") if accepted else _page(_OTHER, "400 Bad Request"))
            if accepted:
                self._ended.set()

    def _accept(self, request: str) -> bool:
        """Store the code or the refusal in a request. Returns False for a request that is no answer to this sign-in."""
        assert self._attempt is not None
        method, _, rest = request.partition(" ")
        try:
            self._code = code_in(rest.partition(" ")[0] if method == "GET" else "", self._attempt)
        except Unauthorized as error:
            self._error = error
        except BadRequest:
            return False
        return True


def _page(text: str, status: str) -> bytes:
    lines = (
        f"HTTP/1.1 {status}",
        "Content-Type: text/html; charset=utf-8",
        "Content-Security-Policy: default-src 'none'",
        "Cache-Control: no-store",
        "Connection: close",
        f"\r\n<!doctype html><title>tpujob</title><p>{text}",
    )
    return "\r\n".join(lines).encode()


def code_in(address: str, attempt: SignInAttempt) -> str:
    """Return the code in the address to which Google sent the browser. Raises BadRequest for an address
    of no or another sign-in, or without a code; Unauthorized when the person refused."""
    query = parse_qs(address.strip().partition("?")[2].partition("#")[0])

    def parameter(name: str) -> str:
        return query[name][0] if len(query.get(name, [])) == 1 else ""

    if not hmac.compare_digest(parameter("state").encode(), attempt.state.encode()):
        raise BadRequest(
            "that is not the address of this sign-in",
            hint="Paste the whole address that the browser shows at the end; it begins with "
            f"{attempt.redirect}.",
        )
    if error := parameter("error"):
        reason = ascii(error)[1:-1][:80]
        raise Unauthorized(f"Google did not sign you in: {reason}", hint="tpujob login")
    if not parameter("code"):
        raise BadRequest("that address has no code", hint="Paste the whole address.")
    return parameter("code")
