"""The user's code as one archive, named by its content: the same files give the same bytes, whoever packs them.

What is in a bundle is decided here; the agent unpacks it on every host.
"""

from __future__ import annotations

import fnmatch
import gzip
import hashlib
import io
import os
import stat
import subprocess
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

import workloads
from tpujob.errors import BadRequest

LIMIT = 100 * 1024 * 1024  #: bytes of all files of a bundle
IGNORE_FILE = ".tpujobignore"  #: a pattern on each line, as for a shell; `#` begins a comment
NEVER = (".git", "__pycache__", ".venv")  #: names that are left out wherever they are

_CODE_LIMIT = f"{LIMIT // 1024**2} MiB"


@dataclass(frozen=True, slots=True)
class Bundle:
    sha256: str  #: of `data`
    data: bytes  #: a tar.gz
    files: tuple[str, ...]  #: what is in it, by path


def pack(folder: Path) -> Bundle:
    """The files below `folder`: inside a git repository those that git tracks or would, else all of them, less what
    `.tpujobignore` names. Raises BadRequest, naming files, when it is too large, unreadable or links out of itself."""
    if not folder.is_dir():
        raise BadRequest(
            f"code: {folder} is not a folder", hint="Give a folder, relative to the job file."
        )
    ignored = _patterns(folder)
    names = sorted(n for n in _listed(folder) if not _left_out(n, ignored))
    _check_size(folder, names)
    return _archive((name, folder / name) for name in names if _packable(folder, name))


@cache
def workloads_bundle() -> Bundle:
    """The bundled programs, as the package `workloads`."""
    root = Path(next(iter(workloads.__path__)))
    paths = sorted(p for p in root.rglob("*.py") if "__pycache__" not in p.parts)
    return _archive((f"workloads/{p.relative_to(root).as_posix()}", p) for p in paths)


# Which files ---------------------------------------------------------------------------------------------------------


def _listed(folder: Path) -> list[str]:
    """Paths of files and links below the folder, as git sees them where it can be asked."""
    try:
        asked = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=folder,
            capture_output=True,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired):
        return list(_walked(folder))
    if asked.returncode != 0:
        return list(_walked(folder))
    names = {os.fsdecode(n) for n in asked.stdout.split(b"\0") if n}
    # a tracked file may be deleted, a submodule is listed as one name
    found = [n for n in names if os.path.lexists(folder / n) and not _is_folder(folder / n)]
    return found or list(_walked(folder))  # nothing: git ignores the folder itself


def _walked(folder: Path) -> Iterator[str]:
    def unreadable(error: OSError) -> None:
        raise BadRequest(f"code: cannot read {error.filename}: {error.strerror}") from error

    for root, folders, files in os.walk(folder, onerror=unreadable):
        linked = [f for f in folders if (Path(root) / f).is_symlink()]
        folders[:] = [f for f in folders if f not in NEVER and f not in linked]
        for name in (*files, *linked):
            yield (Path(root) / name).relative_to(folder).as_posix()


def _patterns(folder: Path) -> list[str]:
    try:
        text = (folder / IGNORE_FILE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f"code: cannot read {folder / IGNORE_FILE}: {error}") from error
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def _left_out(name: str, patterns: Iterable[str]) -> bool:
    """A pattern with a slash is about the whole path, one without about any part of it."""
    path = PurePosixPath(name)
    if any(part in NEVER for part in path.parts):
        return True
    above = [name, *(p.as_posix() for p in path.parents)]
    for pattern in patterns:
        plain = pattern.strip("/")
        among = above if "/" in pattern.rstrip("/") else path.parts
        if any(fnmatch.fnmatchcase(one, plain) for one in among):
            return True
    return False


def _packable(folder: Path, name: str) -> bool:
    """Sockets, pipes and devices are passed over. Raises BadRequest for a link that leads out of the folder."""
    path = folder / name
    if not path.is_symlink():
        return path.is_file()
    target = os.readlink(path)
    inside = path.parent.resolve().joinpath(target).resolve().is_relative_to(folder.resolve())
    if os.path.isabs(target) or not inside:
        raise BadRequest(
            f"code: {name} is a link to {target}, which is outside {folder}",
            hint=f"Copy it in, or name it in {IGNORE_FILE}.",
        )
    return True


def _check_size(folder: Path, names: Iterable[str]) -> None:
    sizes = {n: (folder / n).lstat().st_size for n in names}
    total = sum(sizes.values())
    if total > LIMIT:
        biggest = sorted(sizes, key=lambda n: -sizes[n])[:5]
        listed = ", ".join(f"{n} ({sizes[n] / 1024**2:.1f} MiB)" for n in biggest)
        raise BadRequest(
            f"code: {folder} has {total / 1024**2:,.0f} MiB, more than {_CODE_LIMIT}; the biggest: {listed}",
            hint=f"Name what the program does not need in {IGNORE_FILE}; put data into a bucket.",
        )


# The archive ---------------------------------------------------------------------------------------------------------


def _archive(files: Iterable[tuple[str, Path]]) -> Bundle:
    """The same names, contents and execute bits give the same bytes: no time, owner or host in it."""
    packed = io.BytesIO()
    names: list[str] = []
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=6, mtime=0, filename="") as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, path in files:
            _add(tar, name, path)
            names.append(name)
    data = packed.getvalue()
    return Bundle(hashlib.sha256(data).hexdigest(), data, tuple(names))


def _add(tar: tarfile.TarFile, name: str, path: Path) -> None:
    entry = tarfile.TarInfo(name)
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            entry.type, entry.linkname = tarfile.SYMTYPE, os.readlink(path)
            tar.addfile(entry)
            return
        content = path.read_bytes()
    except OSError as error:
        raise BadRequest(
            f"code: cannot read {path}: {error.strerror}",
            hint=f"Make it readable, or name it in {IGNORE_FILE}.",
        ) from error
    entry.mode = 0o755 if mode & stat.S_IXUSR else 0o644
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()
