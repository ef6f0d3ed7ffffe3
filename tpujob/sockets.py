"""Doors for programs of this machine: Unix sockets that only their owner can open, and who is at the other end of a
connection. Standard library only.

A port of loopback can be connected to by every user of a machine; a token would close it, but no client library of
Google sends one to an emulator. So the kernel is asked, once for each connection, whose socket the other end is.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
import struct
import tempfile
from pathlib import Path
from typing import Protocol

LONGEST = 107  #: bytes of a Unix socket's path on Linux (`sun_path`, without the zero at its end); macOS has 103
_MADE = "tpujob-"  #: begins the name of a folder that `place` has made


class _Connected(Protocol):
    """The part of a socket that is looked at; asyncio wraps its sockets."""

    @property
    def family(self) -> int: ...
    def getsockopt(self, level: int, optname: int, buflen: int, /) -> bytes: ...
    def getsockname(self) -> tuple[str, int]: ...
    def getpeername(self) -> tuple[str, int]: ...


# Unix sockets --------------------------------------------------------------------------------------------------------


def place(folder: Path, name: str) -> Path:
    """Where a Unix socket of that name can be made: in `folder`, or in a new folder under /tmp if the path would be too
    long, others may enter `folder`, or somebody listens there already. Nothing is there afterwards: what a killed
    process has left is removed. `remove` takes all of it away again."""
    path = folder.absolute() / name
    if len(os.fsencode(path)) > LONGEST or not _private(folder) or _answers(path):
        path = Path(tempfile.mkdtemp(prefix=_MADE, dir="/tmp")) / name
    path.unlink(missing_ok=True)
    return path


def remove(path: Path) -> None:
    """Afterwards neither the socket is there, nor a folder that was made for it."""
    path.unlink(missing_ok=True)
    if path.parent.name.startswith(_MADE):
        with contextlib.suppress(OSError):  # it has another socket
            path.parent.rmdir()


def listen(path: Path) -> socket.socket:
    """A listening Unix socket of mode 0600. Raises OSError."""
    made = socket.socket(socket.AF_UNIX)
    try:
        made.bind(str(path))
        path.chmod(0o600)
        made.listen()
    except OSError:
        made.close()
        raise
    return made


def _private(folder: Path) -> bool:
    found = folder.stat()
    return found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & 0o077


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)  # a full queue is an answer, too
        return probe.connect_ex(str(path)) in (0, errno.EAGAIN)


# The other end -------------------------------------------------------------------------------------------------------


def is_own(connection: _Connected) -> bool:
    """Whether this process and the other end belong to one user. False, too, if the kernel does not say."""
    return uid_of_peer(connection) == os.geteuid()


def uid_of_peer(connection: _Connected) -> int | None:
    """Who made the other end of a connection within this machine, by a Unix socket or by IPv4; None: the kernel does
    not say, as when the other end is closed already."""
    try:
        if connection.family == socket.AF_UNIX:
            said = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            return _CREDENTIALS.unpack(said)[1]
        return _uid_of_tcp(connection.getpeername(), connection.getsockname())
    except OSError:
        return None


_CREDENTIALS = struct.Struct("=iII")  #: `struct ucred`: pid, uid, gid

# One exact socket is asked for over netlink (man 7 sock_diag): 0.02 ms, whatever the number of sockets. The text of
# /proc/net/tcp has the same, but walks through all of the kernel's table: 4 ms even on an idle machine.
_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _REQUEST = 4, 20, 1
_HEADER = struct.Struct("=IHHII")  #: `struct nlmsghdr`: length, type, flags, sequence, port
#: `struct inet_diag_req_v2`: family, protocol, ext, pad, states; source and destination port; both addresses;
#: interface, cookie
_ASK = struct.Struct("=BBBBI4s16s16sI8s")
#: `struct inet_diag_msg`: family, state, timer, retrans; the same id; expires, rqueue, wqueue, uid, inode
_ANSWER = struct.Struct("=BBBB4s16s16sI8sIIIII")
_ANY_COOKIE = b"\xff" * 8


def _uid_of_tcp(source: tuple[str, int], destination: tuple[str, int]) -> int | None:
    """Of the socket that is connected from `source` to `destination`. Raises OSError."""
    ports = struct.pack("!HH", source[1], destination[1])
    here, there = (
        socket.inet_aton(address).ljust(16, b"\0") for address, _ in (source, destination)
    )
    wanted = (socket.AF_INET, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF, ports, here, there, 0)
    ask = _ASK.pack(*wanted, _ANY_COOKIE)
    head = _HEADER.pack(_HEADER.size + len(ask), _SOCK_DIAG_BY_FAMILY, _REQUEST, 0, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG) as kernel:
        kernel.sendto(head + ask, (0, 0))
        answer = kernel.recv(4096)
    if _HEADER.unpack_from(answer)[1] != _SOCK_DIAG_BY_FAMILY:
        return None  # there is no such socket
    found = _ANSWER.unpack_from(answer, _HEADER.size)
    uid, inode = found[-2:]
    # A listener may answer for a port whose connection is gone; and a socket that no process has open any more has no
    # inode, and 0 for its uid, which is root's.
    return uid if found[4] == ports and inode else None
