"""Sockets for programs of this machine: private Unix sockets, ports of loopback, and the users of connections. Standard
library only.

Every user of a machine can connect to a port of loopback. A token would prevent that, but no client library of Google
sends a token to an emulator. So each connection asks the kernel for the user of the other end.
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
MAX_PATH = 103 if sys.platform == "darwin" else 107
_MADE = "tpujob-"  #: prefix of the name of a folder that `place` has made
#: types of disks that several machines share: a socket there answers on one machine only
_SHARED = ("nfs", "cifs", "smb", "9p", "afs", "ceph", "lustre", "gpfs", "beegfs", "fuse.")


class _Connected(Protocol):
    """The part of a socket that this module uses; asyncio wraps its sockets."""

    @property
    def family(self) -> int: ...
    def getsockopt(self, level: int, optname: int, buflen: int, /) -> bytes: ...
    def getsockname(self) -> tuple[str, int]: ...
    def getpeername(self) -> tuple[str, int]: ...


# Unix sockets --------------------------------------------------------------------------------------------------------


def place(folder: Path, name: str) -> Path:
    """Return a path for a Unix socket of that name: in `folder`, or in a new folder under /tmp. The latter if the path
    would be too long, other users or machines have access to `folder`, or a process listens there already. Not in
    $XDG_RUNTIME_DIR, which its user's last session deletes. Delete the socket of a killed process."""
    path = folder.absolute() / name
    fits = len(os.fsencode(path)) <= MAX_PATH
    if not fits or not _is_private(folder) or _on_shared_disk(folder) or answers(path):
        import tempfile  # commands that only connect do not need it

        path = Path(tempfile.mkdtemp(prefix=_MADE, dir="/tmp")) / name
    path.unlink(missing_ok=True)
    return path


def remove(path: Path) -> None:
    """Delete the socket, and the folder that `place` has made for it."""
    path.unlink(missing_ok=True)
    if path.parent.name.startswith(_MADE):
        with contextlib.suppress(OSError):  # the folder has another socket
            path.parent.rmdir()


def listen(path: Path, mode: int = 0o600) -> socket.socket:
    """Return a listening Unix socket of that mode, which no other user can open before. Raise OSError."""
    listener = socket.socket(socket.AF_UNIX)
    old_umask = os.umask(0o177)
    try:
        listener.bind(str(path))
        path.chmod(mode)
        listener.listen()
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(old_umask)
    return listener


def _is_private(folder: Path) -> bool:
    status = folder.stat()
    return status.st_uid == os.geteuid() and not stat.S_IMODE(status.st_mode) & 0o077


def answers(path: Path) -> bool:
    """Return whether a process listens on the socket."""
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
    """Return the type of a disk by its device number in the text of /proc/self/mountinfo (man 5 proc); empty: none."""
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        if left.split()[2:3] == [device]:
            return right.partition(" ")[0]
    return ""


# Ports of loopback ---------------------------------------------------------------------------------------------------

#: below the ports that Linux and macOS give to outgoing connections, so that a port stays free between two runs
_PORTS = range(20_000, 32_000)


def kept_port(file: Path) -> tuple[socket.socket, int]:
    """Return a listening socket of 127.0.0.1 at the port in the file, so that addresses stay the same, and 0. If there
    is none, or it is in use, write another port into the file and return the port in use, or 0. Raise OSError."""
    port = _port_in(file)
    with contextlib.suppress(OSError):
        if port:
            return socket.create_server(("127.0.0.1", port)), 0
    listener = _any_port()
    file.write_text(f"{listener.getsockname()[1]}\n", encoding="utf-8")
    return listener, port


def _port_in(file: Path) -> int:
    try:
        port = int(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0
    return port if port in _PORTS else 0


def _any_port() -> socket.socket:
    import secrets  # commands that only connect do not need it

    for _ in range(20):
        with contextlib.suppress(OSError):
            port = _PORTS[secrets.randbelow(len(_PORTS))]
            return socket.create_server(("127.0.0.1", port))
    return socket.create_server(("127.0.0.1", 0))


# The other end -------------------------------------------------------------------------------------------------------


def is_own(connection: _Connected) -> bool:
    """Return whether this process and the other end belong to the same user; False also if the kernel cannot tell."""
    return uid_of_peer(connection) == os.geteuid()


def tells_peers() -> bool:
    """Return whether the kernel tells the user at the other end of a TCP connection: Linux does, macOS does not."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()),
        listener.accept()[0] as accepted,
    ):
        return is_own(accepted)


def uid_of_peer(connection: _Connected) -> int | None:
    """Return the user of the other end of a local connection by a Unix socket or by IPv4; None: the kernel cannot tell,
    such as when the other end is closed already."""
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

#: for macOS and the BSDs (sys/un.h, sys/ucred.h), without SO_PEERCRED; `struct xucred` begins with version and uid
_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED = 0, 1, struct.Struct("=II")


def uid_of_xucred(data: bytes) -> int | None:
    """Return the uid in a `struct xucred`; None: unknown version."""
    if len(data) < _XUCRED.size:
        return None
    version, uid = _XUCRED.unpack_from(data)
    return uid if version == 0 else None


# Netlink (man 7 sock_diag) finds one exact socket in 0.02 ms, whatever the number of sockets. Reading /proc/net/tcp
# walks through the whole table of the kernel: 4 ms even on an idle machine.
_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _REQUEST = 4, 20, 1
_HEADER = struct.Struct("=IHHII")  #: `struct nlmsghdr`: length, type, flags, sequence, port
#: `struct inet_diag_req_v2`: family, protocol, ext, pad, states; source and destination port; both addresses;
#: interface, cookie
_ASK = struct.Struct("=BBBBI4s16s16sI8s")
#: `struct inet_diag_msg`: family, state, timer, retrans; the same id; expires, rqueue, wqueue, uid, inode
_ANSWER = struct.Struct("=BBBB4s16s16sI8sIIIII")
_ANY_COOKIE = b"\xff" * 8


def _uid_of_tcp(source: tuple[str, int], destination: tuple[str, int]) -> int | None:
    """Return the uid of the socket that is connected from `source` to `destination`; None: unknown. Raise OSError."""
    if not hasattr(socket, "AF_NETLINK"):
        return None
    ports = struct.pack("!HH", source[1], destination[1])
    local, remote = (
        socket.inet_aton(address).ljust(16, b"\0") for address, _ in (source, destination)
    )
    socket_id = (socket.AF_INET, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF, ports, local, remote, 0)
    ask = _ASK.pack(*socket_id, _ANY_COOKIE)
    head = _HEADER.pack(_HEADER.size + len(ask), _SOCK_DIAG_BY_FAMILY, _REQUEST, 0, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG) as kernel:
        kernel.sendto(head + ask, (0, 0))
        answer = kernel.recv(4096)
    if _HEADER.unpack_from(answer)[1] != _SOCK_DIAG_BY_FAMILY:
        return None  # there is no such socket
    fields = _ANSWER.unpack_from(answer, _HEADER.size)
    uid, inode = fields[-2:]
    # a listener may answer for the port of a closed connection; a socket without a process has no inode, and uid 0
    return uid if fields[4] == ports and inode else None
