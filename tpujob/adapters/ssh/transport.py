"""Connects to the SSH server of a host: by TCP at its external or internal address, or by a tunnel through IAP.

The tunnel is a program that works like a ProxyCommand of ssh: `gcloud compute start-iap-tunnel INSTANCE PORT
--listen-on-stdin`, or another one with the same arguments.
"""

import contextlib
import re
import socket
import subprocess
import tempfile
from dataclasses import dataclass, field
from typing import IO, Literal

from tpujob.domain.model import Endpoint
from tpujob.errors import Refused, Transient

Reach = Literal["external", "internal", "iap"]

#: tunnels at once; each is a Python process of about 100 MB
MAX_TUNNELS = 8
_NAME = re.compile(r"[a-z0-9][-a-z0-9._]{0,252}")
#: bytes of a tunnel's stderr that are read, from the end
_LAST_WORDS = 2000
_END_TIMEOUT = 5.0  #: seconds for a tunnel to end by itself


@dataclass(frozen=True, slots=True)
class Tunnel:
    """A tunnel through IAP to one host."""

    instance: str  #: the name of the host's machine in Compute Engine
    zone: str
    project: str
    program: tuple[str, ...] = ("gcloud",)

    def command(self, port: int) -> list[str]:
        """Return the command line of the tunnel. Raises Refused for names that the program might take for options."""
        for word in (self.instance, self.zone, self.project.replace(":", ".")):
            if not _NAME.fullmatch(word):
                raise Refused(f"{word[:60]!r} cannot be the name of a machine", cause="SETUP")
        location = (f"--project={self.project}", f"--zone={self.zone}")
        words = ("compute", "start-iap-tunnel", self.instance, str(port), "--listen-on-stdin")
        return [*self.program, *words, *location]


@dataclass(frozen=True, slots=True)
class Login:
    """The address of a host and the key for it."""

    address: str
    port: int
    user: str
    key: str = field(repr=False)  #: private key in the format of OpenSSH
    tunnel: Tunnel | None = None  #: None: a direct connection


class NoLogin(Transient):
    """The host does not accept the key."""


def address(endpoint: Endpoint, reach: Reach) -> str:
    """Return the host's address, which also labels its key; empty: it has none."""
    external = endpoint.external_ip if reach == "external" else ""
    return external or endpoint.internal_ip


class Transport:
    """A stream of bytes to and from a host's SSH server. Any thread may close it, and repeatedly."""

    def __init__(self, login: Login, patience: float) -> None:
        """Connect; a tunnel may still be starting afterwards. Raises OSError, Transient."""
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr: IO[bytes] | None = None
        if login.tunnel is None:
            self.socket = socket.create_connection((login.address, login.port), patience)
            # without it small packets wait 40 ms for acknowledgements, several times in a login
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        else:
            self.socket = self._start_tunnel(login.tunnel.command(login.port))

    def last_words(self) -> str:
        """Return the message with which a tunnel has ended; empty: no message, or no tunnel."""
        if self._stderr is None or self._stderr.closed:
            return ""
        size = self._stderr.seek(0, 2)
        self._stderr.seek(max(0, size - _LAST_WORDS))
        return last_message(self._stderr.read().decode(errors="replace"))[:300]

    def hang_up(self) -> None:
        """Shut the stream down, which wakes threads that read or write."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.close()
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_END_TIMEOUT)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._stderr is not None:
            self._stderr.close()

    def _start_tunnel(self, command: list[str]) -> socket.socket:
        ours, theirs = socket.socketpair()
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the transport; a full pipe would stop the program
        try:
            with theirs:
                end = theirs.fileno()
                self._process = subprocess.Popen(
                    command, stdin=end, stdout=end, stderr=self._stderr, start_new_session=True
                )
        except OSError as error:
            ours.close()
            self._stderr.close()
            raise Transient(
                f"cannot start {command[0]}, which carries SSH through IAP: {error.strerror}",
                hint="Install the Google Cloud SDK where the backend runs, or set `ssh: internal` or `ssh: external` "
                "in the context.",
            ) from error
        return ours


#: messages that gcloud prints for every tunnel, often as its last
_ADVICE = re.compile(r"NumPy|increasing_the_tcp_upload_bandwidth|^WARNING:$|^Testing if tunnel")


def last_message(printed: str) -> str:
    """Return the last line of gcloud's output that begins with ERROR, else the last line that is not general advice;
    empty: neither."""
    lines = [line.strip() for line in printed.splitlines()]
    messages = [line for line in lines if line and not _ADVICE.search(line)]
    errors = [line for line in messages if line.startswith("ERROR")]
    return next(reversed(errors or messages), "")


#: what to check when a tunnel fails
IAP_HINT = (
    "IAP needs the role roles/iap.tunnelResourceAccessor and a firewall rule that lets 35.235.240.0/20 in at port 22; "
    "`tpujob doctor` checks both."
)
