"""Unix sockets in private folders, and the kernel's word on who is at the other end of a connection."""

import contextlib
import os
import socket
import stat
import struct
import threading
from pathlib import Path

import pytest

from tests.support import stranger
from tests.support.waiting import LONG
from tpujob.lib import unix_sockets

CONNECT = """
other = socket.create_connection(("127.0.0.1", given))
print(json.dumps(other.recv(1).decode()))
"""


@pytest.fixture
def private(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path


def test_a_socket_is_its_owners_alone(private: Path) -> None:
    path = unix_sockets.place(private, "door.sock")
    assert path == private / "door.sock"
    with unix_sockets.listen(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with unix_sockets.listen(unix_sockets.place(private, "door.sock")):
        pass  # what a killed process left is no obstacle
    unix_sockets.remove(path)
    assert list(private.iterdir()) == []
    unix_sockets.remove(path)


def test_a_socket_that_somebody_listens_on_is_left_to_them(private: Path) -> None:
    with unix_sockets.listen(private / "door.sock") as first:
        second = unix_sockets.place(private, "door.sock")
        unix_sockets.remove(second)
        assert second.parent != private
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(private / "door.sock"))
            first.accept()[0].close()


@pytest.mark.parametrize("why", ["the path is too long", "others may enter the folder"])
def test_a_socket_gets_a_short_folder_of_its_own_where(private: Path, why: str) -> None:
    folder = private / ("x" * 100 if "long" in why else "open")
    folder.mkdir(mode=0o700)
    if "enter" in why:
        folder.chmod(0o750)
    path = unix_sockets.place(folder, "door.sock")
    try:
        assert path.parent != folder
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        with unix_sockets.listen(path), socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
    finally:
        unix_sockets.remove(path)
    assert not path.parent.exists()
    assert folder.exists()


def test_a_socket_is_closed_to_others_before_it_listens_whatever_the_umask(private: Path) -> None:
    before = os.umask(0)
    try:
        with unix_sockets.listen(private / "own"), unix_sockets.listen(private / "shared", 0o666):
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in private.iterdir()}
    finally:
        os.umask(before)
    assert modes == {"own": 0o600, "shared": 0o666}


def test_a_disk_that_other_machines_see_is_known_by_its_mount() -> None:
    mounts = (
        "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
        "31 22 0:45 / /home rw - nfs4 filer:/home rw,vers=4.2\n"
    )
    assert unix_sockets.disk_of(mounts, "254:0") == "ext4"
    assert unix_sockets.disk_of(mounts, "0:45") == "nfs4"
    assert unix_sockets.disk_of(mounts, "0:46") == ""


def test_the_uid_of_a_peer_is_read_as_macos_and_the_bsds_write_it() -> None:
    assert unix_sockets.uid_of_xucred(struct.pack("=IIhh16I", 0, 501, 1, 0, *range(16))) == 501
    assert unix_sockets.uid_of_xucred(struct.pack("=II", 7, 501)) is None, "a version of the future"
    assert unix_sockets.uid_of_xucred(b"") is None


@pytest.fixture
def door() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


def test_the_peer_is_known_over_a_port_and_a_socket(door: socket.socket, private: Path) -> None:
    path = private / "door.sock"
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(unix_sockets.listen(path))
        over_socket = stack.enter_context(socket.socket(socket.AF_UNIX))
        over_socket.connect(str(path))
        port = stack.enter_context(door).getsockname()[1]
        over_port = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        mapped = stack.enter_context(socket.socket(socket.AF_INET6))
        mapped.connect(("::ffff:127.0.0.1", port))
        for accepting in (listener, door, door):
            accepted, _ = accepting.accept()
            with accepted:
                assert unix_sockets.uid_of_peer(accepted) == os.geteuid()
                assert unix_sockets.is_own(accepted)
        assert over_port.fileno() != mapped.fileno()


def test_a_closed_end_has_no_user_although_its_uid_reads_as_root(door: socket.socket) -> None:
    with door, socket.create_connection(door.getsockname()) as client:
        accepted, _ = door.accept()
        with accepted:
            client.sendall(b"do this")
            client.close()
            assert unix_sockets.uid_of_peer(accepted) is None
            assert not unix_sockets.is_own(accepted)


def test_a_listener_at_the_port_of_a_lost_connection_is_not_its_peer(door: socket.socket) -> None:
    with door:
        address = door.getsockname()
        assert unix_sockets._uid_of_tcp(address, ("127.0.0.1", 1)) is None  # pyright: ignore[reportPrivateUsage]


def test_no_netlink_shows_no_port(door: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS has no netlink; neither is a stranger taken for us, nor does anything fail."""
    assert unix_sockets.tells_peers()
    monkeypatch.delattr(socket, "AF_NETLINK")
    assert not unix_sockets.tells_peers()
    with door, socket.create_connection(door.getsockname()):
        accepted, _ = door.accept()
        with accepted:
            assert unix_sockets.uid_of_peer(accepted) is None


@stranger.needed
def test_another_user_is_told_apart(door: socket.socket) -> None:
    seen: list[int | None] = []

    def accept() -> None:
        accepted, _ = door.accept()
        with accepted:
            seen.append(unix_sockets.uid_of_peer(accepted))
            seen.append(unix_sockets.is_own(accepted))
            accepted.sendall(b"k")

    with door:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        assert stranger.run(CONNECT, door.getsockname()[1]) == "k"
        thread.join(LONG)
    assert seen == [stranger.UID, False]
