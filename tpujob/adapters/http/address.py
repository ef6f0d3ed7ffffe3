"""The address of a backend: a connection to it and to nothing else, and what a reply means that no backend gives."""

from __future__ import annotations

import http.client
import os
import socket
from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from tpujob import errors
from tpujob.errors import BackendGone, BadRequest, TpujobError
from tpujob.lib import unix_sockets

#: the headers that say who asks; called for each request, and with True once more when those were refused
Sign = Callable[[bool], Mapping[str, str]]
#: the errors of a kept connection that the other side has closed
BROKEN = (ConnectionError, http.client.RemoteDisconnected, http.client.BadStatusLine)


class BackendAddress(NamedTuple):
    """A backend at `unix:PATH` on this machine, or at `https://HOST`."""

    url: str
    uid: int | None = None  #: whose process must answer at a unix socket; None: this user's
    sign: Sign | None = None  #: for `https`

    def checked(self) -> BackendAddress:
        """The same. Raises BadRequest for an address to which requests would travel unencrypted."""
        if not self.url.startswith(("unix:/", "https://")):
            raise BadRequest(
                f"{self.url} is not safe: what is sent there would travel unencrypted",
                hint="a backend has an https:// URL, or unix:/PATH on this machine",
            )
        return self

    def connection(self) -> http.client.HTTPConnection:
        """A new one, which connects at its first request."""
        if self.url.startswith("unix:"):
            uid = os.geteuid() if self.uid is None else self.uid
            return _UnixConnection(self.url.removeprefix("unix:"), uid)
        parts = urlsplit(self.url)
        return http.client.HTTPSConnection(parts.hostname or "", parts.port)

    def in_front(self, status: int, hint: str) -> TpujobError:
        """What an answer means that no backend gives: it is that of Google Cloud in front of it, or of a stranger.
        `hint`: what to do about a stranger."""
        if status in (401, 403) and self.sign:
            kind, cure = (
                (errors.Unauthorized, "sign in again: tpujob login")
                if status == 401
                else (errors.Forbidden, "an admin lets you in: deploy/join.sh YOUR_ADDRESS ROLE")
            )
            return kind(f"Google Cloud does not let you through to {self.url}", hint=cure)
        if 300 <= status < 400 and self.sign:
            # never followed: the server that it leads to would get the token
            return errors.Unauthorized(
                f"Google Cloud asks for a sign-in in front of {self.url} (Identity-Aware Proxy)",
                hint="choose the backend again with `tpujob use URL --door iap`; its admin must have let"
                " the OAuth client of the context in",
            )
        if status == 413:
            return BadRequest(
                f"the proxy in front of the backend at {self.url} accepts no request of that size",
                hint="ship less code: .tpujobignore; Cloud Run takes 32 MiB",
            )
        return BackendGone(
            f"what answers at {self.url} is not a tpujob backend (HTTP {status})", hint=hint
        )


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket. It sends nothing to a server whose process has another uid."""

    def __init__(self, path: str, uid: int) -> None:
        super().__init__("localhost")
        self._path, self._uid = path, uid

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
        found = unix_sockets.uid_of_peer(self.sock)
        if found != self._uid:
            raise BackendGone(
                f"what answers at {self._path} belongs to the uid {found}, not to {self._uid}: nothing was sent",
                hint="if the backend has moved to another account: tpujob use PATH",
            )
