"""The user's code as one archive, named by its content: the same files give the same bytes on every machine.

What is in a bundle is decided here; the agent unpacks it on every host.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import stat
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import workloads
from tpujob.domain.text import many, one_line
from tpujob.errors import BadRequest
from tpujob.protocol.bundle import MAX_FILES
from tpujob.submit import git
from tpujob.submit.git import NOWHERE
from tpujob.submit.secrets_scan import keys_among

if TYPE_CHECKING:
    from tpujob.api import CodeGiven

LIMIT = 100 * 1024 * 1024  #: bytes of all files of a bundle
IGNORE_FILE = ".tpujobignore"  #: patterns as in a .gitignore; stronger than what git tracks
NEVER = frozenset({".git", "__pycache__", ".venv"})  #: names that are left out wherever they are
#: names that are left out where git does not say what belongs to the folder: tools make them, and make them again
MADE = frozenset(
    {
        ".DS_Store",
        ".hg",
        ".ipynb_checkpoints",
        ".mypy_cache",
        ".nox",
        ".pytest_cache",
        ".ruff_cache",
        ".svn",
        ".tox",
        "node_modules",
    }
)

MOST_LISTED = 20  #: files that look like keys, in a message

_CODE_LIMIT = f"{LIMIT // 1024**2} MiB"


@dataclass(frozen=True, slots=True)
class Bundle:
    sha256: str  #: of `data`
    data: bytes = field(repr=False)  #: a tar.gz
    files: tuple[str, ...]  #: what is in it, by path
    standing: CodeGiven = field(
        default_factory=NOWHERE.copy, repr=False
    )  #: of the checkout that it was made from
    warnings: tuple[str, ...] = ()  #: what a person should know before it is shipped


def pack(folder: Path, *, allow_keys: bool = False) -> Bundle:
    """Return the files below `folder` as a bundle. Inside a git repository these are the ones that git tracks or would,
    submodules included; else all but `MADE`. `.tpujobignore` takes files away. Raises BadRequest, naming files, when
    it is too large, unreadable or links out of itself, or when some look like keys, unless `allow_keys`."""
    if not folder.is_dir():
        raise BadRequest(
            f"code: {folder} is not a folder", hint="Give a folder, relative to the job file."
        )
    tracked, missing = git.listed(folder)  # none of a folder that git itself ignores
    names = sorted(_wanted(folder, tracked or _walked(folder)))
    names = [name for name in names if _packable(folder, name)]
    _check_size(folder, names)
    keys = keys_among(folder, names)
    if keys and not allow_keys:
        raise _refused(folder, keys)
    packed = _archive((name, folder / name) for name in names)
    if tracked:
        standing = git.standing(folder, frozenset(names), allow_keys=allow_keys)
        packed = replace(packed, standing=standing)
    known = [f"{n} looks like a key and is shipped; {IGNORE_FILE} can leave it out" for n in keys]
    lost = [f"the submodule {n} is not checked out, so nothing of it is shipped" for n in missing]
    return replace(packed, warnings=(*known, *lost))


@cache
def workloads_bundle() -> Bundle:
    """The bundled programs, as the package `workloads`, and the lock file of what they import."""
    root = Path(next(iter(workloads.__path__)))
    found = (*root.rglob("*.py"), root / "requirements.lock")
    paths = sorted(p for p in found if "__pycache__" not in p.parts)
    return _archive((f"workloads/{p.relative_to(root).as_posix()}", p) for p in paths)


# Which files ---------------------------------------------------------------------------------------------------------


def _walked(folder: Path) -> Iterator[str]:
    """Every file and link, without the folders that tools make."""

    def unreadable(error: OSError) -> None:
        raise BadRequest(f"code: cannot read {error.filename}: {error.strerror}") from error

    for root, folders, files in os.walk(folder, onerror=unreadable):
        here = Path(root)
        linked = [f for f in folders if (here / f).is_symlink()]
        made = {f for f in folders if f in NEVER | MADE or (here / f / "pyvenv.cfg").exists()}
        folders[:] = [f for f in folders if f not in made | {*linked}]
        for name in (*files, *linked):
            if name not in MADE:
                yield (here / name).relative_to(folder).as_posix()


def _wanted(folder: Path, names: Iterable[str]) -> list[str]:
    kept = [name for name in names if NEVER.isdisjoint(PurePosixPath(name).parts)]
    ignore = folder / IGNORE_FILE
    try:
        ignore.read_bytes()
    except FileNotFoundError:
        return kept
    except OSError as error:
        raise BadRequest(f"code: cannot read {ignore}: {error.strerror}") from error
    left_out = git.matched(ignore, kept)
    return [name for name in kept if name not in left_out]


def _refused(folder: Path, keys: list[str]) -> BadRequest:
    listed = ", ".join(one_line(name, 200) for name in keys[:MOST_LISTED])
    more = f" and {len(keys) - MOST_LISTED} more" if len(keys) > MOST_LISTED else ""
    return BadRequest(
        f"code: {many(len(keys), 'file')} of {folder} would be shipped and may hold a key: {listed}{more}",
        hint=f"Name them in {IGNORE_FILE}; tell the program its keys by `tpujob secret set` and `run.secrets`. "
        "`--allow-keys` ships them all the same.",
    )


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
    if len(sizes) > MAX_FILES:
        raise BadRequest(
            f"code: {folder} has {len(sizes):,} files, more than {MAX_FILES:,}",
            hint=f"Name what the program does not need in {IGNORE_FILE}.",
        )
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
