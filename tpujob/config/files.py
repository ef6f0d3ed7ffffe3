"""Reads files that a user wrote, and writes files that only the user can read."""

import contextlib
import os
import stat
from collections.abc import Callable
from pathlib import Path

from tpujob.errors import BadSpec, StoreError

MAX_BYTES = 256 * 1024  #: of a file that a user wrote
NAMED = 5  #: most names of files in a hint

_ELSEWHERE = "set TPUJOB_STATE to a folder of your own"


def read(path: Path) -> str:
    """Return the text of a file that a user wrote. Raise BadSpec if it cannot be read, is too long or not UTF-8."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise BadSpec(f"{path}: there is no such file", hint=_suggestion(path)) from None
    except IsADirectoryError:
        raise BadSpec(f"{path}: is a folder; name the file in it") from None
    except OSError as error:
        raise BadSpec(f"{path}: cannot be read: {error.strerror}") from error
    if len(data) > MAX_BYTES:
        raise BadSpec(f"{path}: is longer than {MAX_BYTES // 1024} KiB, the most that it may have")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadSpec(f"{path}:{line}: is not UTF-8 text; save the file as UTF-8") from None


def _suggestion(path: Path) -> str:
    """Return a hint for a path without a file: the closest name, or the files in its folder."""
    from difflib import get_close_matches  # every command imports this module

    folder, check = path.parent, "check the path, and the folder that you are in."
    if not folder.is_dir():
        return f"There is no folder {folder} either: {check}"
    alike = path.suffix or ".yaml"
    names = sorted(entry.name for entry in folder.glob("*") if entry.suffix == alike)
    stems = [name.removesuffix(alike) for name in names]
    if near := get_close_matches(path.stem, stems, n=1):
        return f"Did you mean {folder / near[0]}{alike}?"
    where = "this folder" if folder == Path() else str(folder)
    if not names:
        return f"There is no {alike} file in {where}: {check}"
    rest = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"In {where} there are {', '.join(names[:NAMED])}{rest}."


def put(path: Path, text: str) -> None:
    """Write the file atomically, readable only by its owner. If that fails, raise StoreError and leave the old file."""
    temporary = _temporary_path(path)
    try:
        _write(temporary, text)
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise StoreError(f"cannot write {path}: {error.strerror}", hint=_ELSEWHERE) from error


def drawn(path: Path, draw: Callable[[], str]) -> str:
    """Return the file's text; the first call writes the text that `draw` returns. Concurrent callers get the same text.
    The folder must exist."""
    if not path.exists():
        _put_first(path, draw())
    return path.read_text(encoding="utf-8")


def private_folder(folder: Path) -> None:
    """Make the folder, owned by the user and closed to other users. Raise StoreError if it is a link or belongs to
    another user."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError as error:
        text = f"cannot make the folder {folder}: {error.strerror}"
        raise StoreError(text, hint=_ELSEWHERE) from error
    if not stat.S_ISDIR(status.st_mode):
        raise StoreError(f"{folder} is a link, not a folder", hint=_ELSEWHERE)
    if status.st_uid != os.geteuid():
        raise StoreError(f"{folder} belongs to another user", hint=_ELSEWHERE)
    if stat.S_IMODE(status.st_mode) & 0o077:
        try:
            folder.chmod(0o700)
        except OSError as error:
            text = f"cannot close the folder {folder} to others: {error.strerror}"
            raise StoreError(text, hint=_ELSEWHERE) from error


def _put_first(path: Path, text: str) -> None:
    """Create the file atomically, unless it exists."""
    temporary = _temporary_path(path)
    _write(temporary, text)
    try:
        os.link(temporary, path)
    except FileExistsError:
        pass
    finally:
        temporary.unlink()


def _temporary_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")


def _write(path: Path, text: str) -> None:
    """Create a file readable only by its owner, and flush it to the disk."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
