"""Files: those that a user wrote, and those that tpujob writes for the user's eyes only.

What is in them is the caller's affair.
"""

import contextlib
import os
import stat
from collections.abc import Callable
from pathlib import Path

from tpujob.errors import BadSpec, StoreError

MAX_BYTES = 256 * 1024  #: of a file that a user wrote
NAMED = 5  #: files, in a message

_ELSEWHERE = "set TPUJOB_STATE to a folder of your own"


def read(path: Path) -> str:
    """The text of a job file or a context's file. Raises BadSpec when there is none, or it is too long or not UTF-8."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise BadSpec(f"{path}: there is no such file", hint=_instead(path)) from None
    except IsADirectoryError:
        raise BadSpec(f"{path}: is a folder; name the job file in it") from None
    except OSError as error:
        raise BadSpec(f"{path}: cannot be read: {error.strerror}") from error
    if len(data) > MAX_BYTES:
        raise BadSpec(f"{path}: is longer than {MAX_BYTES // 1024} KiB, the most that it may have")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadSpec(f"{path}:{line}: is not UTF-8 text; save the file as UTF-8") from None


def _instead(path: Path) -> str:
    """What a person may have meant by a path where there is no file."""
    from difflib import get_close_matches  # every command imports this module

    folder, check = path.parent, "check the path, and the folder that you are in."
    if not folder.is_dir():
        return f"There is no folder {folder} either: {check}"
    alike = path.suffix or ".yaml"
    there = sorted(one.name for one in folder.glob("*") if one.suffix == alike)
    stems = [name.removesuffix(alike) for name in there]
    if near := get_close_matches(path.stem, stems, n=1):
        return f"Did you mean {folder / near[0]}{alike}?"
    where = "this folder" if folder == Path() else str(folder)
    if not there:
        return f"There is no {alike} file in {where}: {check}"
    more = f" and {len(there) - NAMED} more" if len(there) > NAMED else ""
    return f"In {where} there are {', '.join(there[:NAMED])}{more}."


def put(path: Path, text: str) -> None:
    """Afterwards the file says this, whole, and only its owner can read it. Raises StoreError; then it is as before."""
    temporary = _beside(path)
    try:
        _write(temporary, text)
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise StoreError(f"cannot write {path}: {error.strerror}", hint=_ELSEWHERE) from error


def drawn(path: Path, draw: Callable[[], str]) -> str:
    """A text that is drawn on the first call and kept there; the same for all callers, also at once. Its folder must be
    there."""
    if not path.exists():
        _put_first(path, draw())
    return path.read_text(encoding="utf-8")


def private_folder(folder: Path) -> None:
    """Make the folder, owned by the user and closed to other users. Raises StoreError when it is a link or belongs to
    another user."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise StoreError(
            f"cannot make the folder {folder}: {error.strerror}", hint=_ELSEWHERE
        ) from error
    if not stat.S_ISDIR(found.st_mode):
        raise StoreError(f"{folder} is a link, not a folder", hint=_ELSEWHERE)
    if found.st_uid != os.geteuid():
        raise StoreError(f"{folder} belongs to another user", hint=_ELSEWHERE)
    if stat.S_IMODE(found.st_mode) & 0o077:
        _close(folder)


def _close(folder: Path) -> None:
    try:
        folder.chmod(0o700)
    except OSError as error:
        raise StoreError(
            f"cannot close the folder {folder} to others: {error.strerror}", hint=_ELSEWHERE
        ) from error


def _put_first(path: Path, text: str) -> None:
    """Put a file in place whole, unless there is one already."""
    temporary = _beside(path)
    _write(temporary, text)
    try:
        os.link(temporary, path)
    except FileExistsError:
        pass
    finally:
        temporary.unlink()


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")


def _write(path: Path, text: str) -> None:
    """A new file for its owner alone, on the disk when this returns."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
