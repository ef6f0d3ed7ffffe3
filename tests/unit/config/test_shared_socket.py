"""The socket of `tpujob serve`: other users can connect to it, and cannot replace it."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tpujob.config import shared_socket
from tpujob.errors import BadRequest, NotFound
from tpujob.lib import unix_sockets


@pytest.fixture
def place() -> Iterator[Path]:
    """Yield a path in a folder of this user that others may enter."""
    with tempfile.TemporaryDirectory(prefix="place-", dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder, "backend.sock")


def test_a_folder_is_made_that_others_may_enter(place: Path) -> None:
    path = place.parent / "tpujob" / "backend.sock"
    before = os.umask(0o077)
    try:
        shared_socket.free(path)
    finally:
        os.umask(before)
    assert path.parent.stat().st_mode & 0o777 == 0o755
    assert shared_socket.owner_of(path) == os.geteuid()


def test_the_socket_of_a_killed_backend_is_replaced_and_a_living_one_is_not(place: Path) -> None:
    with unix_sockets.listen(place):
        with pytest.raises(BadRequest, match="a backend listens at"):
            shared_socket.free(place)
        assert place.exists()
    shared_socket.free(place)
    assert not place.exists()


@pytest.mark.parametrize("kind", ["file", "link", "broken link"])
def test_what_is_no_socket_is_left_alone(place: Path, kind: str) -> None:
    other = place.with_name("other")
    if kind == "file":
        place.write_text("mine")
    else:
        place.symlink_to(other)
        if kind == "link":
            other.write_text("mine")
    with pytest.raises(BadRequest, match="and is not a socket"):
        shared_socket.free(place)
    assert os.path.lexists(place)


def test_a_folder_that_others_can_write_to_is_refused_on_both_sides(place: Path) -> None:
    place.parent.chmod(0o777)
    for check in (shared_socket.free, shared_socket.owner_of):
        with pytest.raises(BadRequest, match="can write in"):
            check(place)


def test_a_folder_that_others_cannot_enter_is_refused(place: Path) -> None:
    place.parent.chmod(0o700)
    with pytest.raises(BadRequest, match="no other user can enter"):
        shared_socket.free(place)


def test_without_the_folder_a_path_is_needed(place: Path) -> None:
    with pytest.raises(BadRequest, match="is not given") as raised:
        shared_socket.where("", place.parent / "none" / "backend.sock")
    assert "TPUJOB_SOCKET" in raised.value.hint
    assert shared_socket.where("", place) == place, "systemd has made its folder for this user"
    assert shared_socket.where("/a/../b/s") == Path("/b/s")
    with pytest.raises(BadRequest, match="longer than"):
        shared_socket.where(f"/{'x' * 200}")


def test_a_missing_folder_has_no_owner() -> None:
    with pytest.raises(NotFound):
        shared_socket.owner_of(Path("/nowhere/tpujob/backend.sock"))
