"""The socket of `tpujob serve`: its path, and the check that only the owner of its folder can replace it. The backend
checks this before it listens, a client before it connects.
"""

import os
import pwd
import stat
from pathlib import Path

from tpujob.errors import BadRequest, NotFound
from tpujob.lib import unix_sockets

#: the path in the folder that systemd makes for a service with `RuntimeDirectory=tpujob`
USUAL = Path("/run/tpujob/backend.sock")


def where(path_text: str, usual: Path = USUAL) -> Path:
    """Return the socket's path: `path_text`, or the usual path if this user owns its folder. Raise BadRequest
    otherwise, or if the path is too long."""
    path = Path(path_text) if path_text else usual
    if not path_text and not (usual.parent.is_dir() and usual.parent.stat().st_uid == os.geteuid()):
        raise BadRequest(
            "the socket's path is not given; the state folder is closed to other users",
            hint=f"--socket PATH or TPUJOB_SOCKET, in a folder of yours that others may enter, such as {usual}",
        )
    return checked(path)


def checked(path: Path) -> Path:
    """Return the normalised absolute path. Raise BadRequest if it is too long for a socket."""
    path = Path(os.path.normpath(path.expanduser().absolute()))
    if len(os.fsencode(path)) > unix_sockets.MAX_PATH:
        raise BadRequest(
            f"{path} is longer than the {unix_sockets.MAX_PATH} bytes of a socket's path"
        )
    return path


def owner_of(path: Path) -> int:
    """Return the uid of the only user who can put a socket there: the owner of its folder. Raise NotFound for a folder
    that cannot be read, BadRequest for one in which others can write."""
    try:
        folder = path.parent.stat()
    except OSError as error:
        raise NotFound(
            f"{path.parent}: {error.strerror}", hint="ask who runs the backend"
        ) from None
    if stat.S_IMODE(folder.st_mode) & 0o022:
        raise BadRequest(
            f"others than its owner can write in {path.parent}: the socket there may be anybody's",
            hint="ask for a socket in a folder that its owner alone can write in",
        )
    return folder.st_uid


def login_of(uid: int) -> str:
    """Return the name of an account; its uid if it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def has_login(name: str) -> bool:
    """Return whether the machine has an account of that name; capitals do not count."""
    try:
        pwd.getpwnam(name)
    except KeyError:
        return any(account.pw_name.lower() == name for account in pwd.getpwall())
    return True


def make_folder(path: Path) -> None:
    """Make the socket's folder if it is missing. Raise BadRequest if it is not this user's, or closed to others."""
    _make(path.parent)
    if owner_of(path) != os.geteuid():
        raise BadRequest(f"the folder {path.parent} is {login_of(owner_of(path))}'s", hint=_OWN)
    for folder in path.parents:
        if not stat.S_IMODE(folder.stat().st_mode) & 0o011:
            raise BadRequest(f"no other user can enter {folder}", hint=_OWN)


def free(path: Path) -> None:
    """Make the path free for a socket, and remove the socket of a killed process. Raise BadRequest if a backend listens
    there, if the path is no socket, and as `make_folder` does."""
    make_folder(path)
    if not os.path.lexists(path):
        return
    if not stat.S_ISSOCK(path.lstat().st_mode):
        raise BadRequest(f"{path} exists and is not a socket", hint=_OWN)
    if unix_sockets.answers(path):
        raise BadRequest(f"a backend listens at {path} already", hint="end that one first")
    path.unlink()


def _make(folder: Path) -> None:
    try:
        folder.mkdir()
        folder.chmod(0o755)
    except FileExistsError:
        pass
    except OSError as error:
        raise BadRequest(f"cannot make the folder {folder}: {error.strerror}", hint=_OWN) from error


_OWN = "take a folder of your own that others may enter, and nothing else: chmod 755"
