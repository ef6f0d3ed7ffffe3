"""Doors for programs of this machine: Unix sockets that only their owner can open, ports of loopback, and who is at the
other end of a connection. Standard library only.

A port of loopback can be connected to by every user of a machine; a token would close it, but no client library of
Google sends one to an emulator. So the kernel is asked, once for each connection, whose socket the other end is.
"""

import contextlib
import errno
import os
import socket
import stat
import struct
import sys
from pathlib import Path
from typing import Protocol

#: bytes of a Unix socket's path (`sun_path`, without the zero at its end)
LONGEST = 103 if sys.platform == "darwin" else 107
_MADE = "tpujob-"  #: begins the name of a folder that `place` has made
#: kinds of disks that several machines see: a socket there answers on one of them only
_SHARED = ("nfs", "cifs", "smb", "9p", "afs", "ceph", "lustre", "gpfs", "beegfs", "fuse.")


class _Connected(Protocol):
    """The part of a socket that is looked at; asyncio wraps its sockets."""

    @property
    def family(self) -> int: ...
    def getsockopt(self, level: int, optname: int, buflen: int, /) -> bytes: ...
    def getsockname(self) -> tuple[str, int]: ...
    def getpeername(self) -> tuple[str, int]: ...


# Unix sockets --------------------------------------------------------------------------------------------------------


def place(folder: Path, name: str) -> Path:
    """Return where a Unix socket of that name can be made: in `folder`, or in a new folder under /tmp. The latter if
    the path would be too long, others may enter `folder`, other machines see it, or a process listens there already.
    Not in $XDG_RUNTIME_DIR, which goes with its user's last session. What a killed process left there is removed.
    `remove` takes all of it away again."""
    path = folder.absolute() / name
    fits = len(os.fsencode(path)) <= LONGEST
    if not fits or not _private(folder) or _on_shared_disk(folder) or answers(path):
        import tempfile  # commands that only connect do without

        path = Path(tempfile.mkdtemp(prefix=_MADE, dir="/tmp")) / name
    path.unlink(missing_ok=True)
    return path


def remove(path: Path) -> None:
    """Afterwards neither the socket is there, nor a folder that was made for it."""
    path.unlink(missing_ok=True)
    if path.parent.name.startswith(_MADE):
        with contextlib.suppress(OSError):  # it has another socket
            path.parent.rmdir()


def listen(path: Path, mode: int = 0o600) -> socket.socket:
    """Return a listening Unix socket. No other user can connect before it has that mode. Raises OSError."""
    made = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        made.bind(str(path))
        path.chmod(mode)
        made.listen()
    except OSError:
        made.close()
        raise
    finally:
        os.umask(before)
    return made


def _private(folder: Path) -> bool:
    found = folder.stat()
    return found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & 0o077


def answers(path: Path) -> bool:
    """Return whether a process listens there."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)  # a full queue is an answer, too
        return probe.connect_ex(str(path)) in (0, errno.EAGAIN)


def _on_shared_disk(folder: Path) -> bool:
    try:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    device = folder.stat().st_dev
    return disk_of(mounts, f"{os.major(device)}:{os.minor(device)}").startswith(_SHARED)


def disk_of(mounts: str, device: str) -> str:
    """The kind of a disk, by the text of /proc/self/mountinfo (man 5 proc) and its device number; empty: not found."""
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        if left.split()[2:3] == [device]:
            return right.partition(" ")[0]
    return ""


# Ports of loopback ---------------------------------------------------------------------------------------------------

#: below those that Linux and macOS give to outgoing connections, which would take a port between two runs
_PORTS = range(20_000, 32_000)


def kept_port(kept: Path) -> tuple[socket.socket, int]:
    """Return a listening socket of 127.0.0.1 at the port that the file names, so that addresses hold from run to run.
    Where another process has that port, or there is no file, it has another port, which the file names afterwards.
    With it: the port that was taken, or 0. Raises OSError."""
    wanted = _port_in(kept)
    with contextlib.suppress(OSError):
        if wanted:
            return socket.create_server(("127.0.0.1", wanted)), 0
    made = _any_port()
    kept.write_text(f"{made.getsockname()[1]}\n", encoding="utf-8")
    return made, wanted


def _port_in(kept: Path) -> int:
    try:
        found = int(kept.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0
    return found if found in _PORTS else 0


def _any_port() -> socket.socket:
    import secrets  # commands that only connect do without

    for _ in range(20):
        with contextlib.suppress(OSError):
            port = _PORTS[secrets.randbelow(len(_PORTS))]
            return socket.create_server(("127.0.0.1", port))
    return socket.create_server(("127.0.0.1", 0))


# The other end -------------------------------------------------------------------------------------------------------


def is_own(connection: _Connected) -> bool:
    """Whether this process and the other end belong to one user. False, too, if the kernel does not say."""
    return uid_of_peer(connection) == os.geteuid()


def tells_peers() -> bool:
    """Whether this kernel says who is at the other end of a connection by a port, as Linux does and macOS does not."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()),
        listener.accept()[0] as accepted,
    ):
        return is_own(accepted)


def uid_of_peer(connection: _Connected) -> int | None:
    """Who made the other end of a connection within this machine, by a Unix socket or by IPv4; None: the kernel does
    not say, as when the other end is closed already."""
    try:
        if connection.family == socket.AF_UNIX:
            if not hasattr(socket, "SO_PEERCRED"):
                return uid_of_xucred(connection.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, 256))
            peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            return _CREDENTIALS.unpack(peer)[1]
        return _uid_of_tcp(connection.getpeername(), connection.getsockname())
    except OSError:
        return None


_CREDENTIALS = struct.Struct("=iII")  #: `struct ucred`: pid, uid, gid

#: on macOS and the BSDs (sys/un.h, sys/ucred.h), which have no SO_PEERCRED; `struct xucred` begins with version and uid
_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED = 0, 1, struct.Struct("=II")


def uid_of_xucred(data: bytes) -> int | None:
    """The uid in a `struct xucred`; None for one of a version that is not known."""
    if len(data) < _XUCRED.size:
        return None
    version, uid = _XUCRED.unpack_from(data)
    return uid if version == 0 else None


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
    if not hasattr(socket, "AF_NETLINK"):
        return None
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
