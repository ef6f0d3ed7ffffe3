"""Packs the user's code into one archive, named by its content: the same files give the same bytes on every machine."""

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

import tpujob.contract
from tpujob.domain.text import many, one_line
from tpujob.errors import BadSpec
from tpujob.protocol.bundle import MAX_FILES
from tpujob.submit import bundled, git
from tpujob.submit.git import NOWHERE
from tpujob.submit.secrets_scan import files_with_keys

if TYPE_CHECKING:
    from tpujob.api import Checkout

LIMIT = 100 * 1024 * 1024  #: bytes of all files of a bundle
IGNORE_FILE = ".tpujobignore"  #: patterns as in a .gitignore; they exclude tracked files, too
NEVER = frozenset({".git", "__pycache__", ".venv"})  #: names that are excluded in every folder
#: names that are excluded in a folder without git: tools generate them
GENERATED = frozenset(
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
IGNORED = NEVER | GENERATED

_POINTER = b"version https://git-lfs.github.com/spec/v1\n"
MAX_LISTED = 20  #: files in one message

_CODE_LIMIT = f"{LIMIT // 1024**2} MiB"


@dataclass(frozen=True, slots=True)
class Bundle:
    """The user's code as an archive."""

    sha256: str  #: hash of `data`
    data: bytes = field(repr=False)  #: a tar.gz
    files: tuple[str, ...]  #: paths of the files in it
    size: int = 0  #: bytes of the files
    by_git: bool = False  #: without the files that git ignores
    #: commit and diff of the checkout
    standing: Checkout = field(default_factory=NOWHERE.copy, repr=False)
    warnings: tuple[str, ...] = ()  #: warnings for the user, before the bundle is shipped


def pack(folder: Path, *, allow_keys: bool = False) -> Bundle:
    """Return the files below `folder` as a bundle. In a git repository these are the tracked and untracked files that
    git does not ignore, with submodules; else all but `GENERATED`. `.tpujobignore` excludes files. Raise BadSpec,
    with names of files, for a folder that is too large, unreadable or has links that lead outside. Unless `allow_keys`,
    raise it also for files that look like keys."""
    if not folder.is_dir():
        raise BadSpec(
            f"code: {folder} is not a folder", hint="Give a folder, relative to the job file."
        )
    listed = git.list_files(folder)
    tracked, missing = listed or ([], [])
    names = sorted(_without_ignored(folder, _walk(folder) if listed is None else tracked))
    names = [name for name in names if _is_packable(folder, name)]
    _check_size(folder, names)
    keys = files_with_keys(folder, names)
    if keys and not allow_keys:
        raise _keys_error(folder, keys)
    bundle = _archive((name, folder / name) for name in names)
    if tracked:
        standing = git.standing(folder, frozenset(names), allow_keys=allow_keys)
        bundle = replace(bundle, standing=standing)
    warnings = (
        *(f"{n} looks like a key and is shipped; {IGNORE_FILE} can leave it out" for n in keys),
        *(f"the submodule {n} is not checked out, so nothing of it is shipped" for n in missing),
        *_pointers_warning(folder, names),
    )
    return replace(bundle, warnings=warnings, by_git=listed is not None)


@cache
def workloads_bundle() -> Bundle:
    """Return the bundled programs as the package `workloads`, with the lock file of their requirements and what they
    import of tpujob."""
    package = Path(tpujob.contract.__file__).parents[1]
    shared = (package / "__init__.py", package / "version.py", *(package / "contract").glob("*.py"))
    files = {f"tpujob/{p.relative_to(package).as_posix()}": p for p in shared}
    for path in (*bundled.PROGRAMS.rglob("*.py"), bundled.PROGRAMS / "requirements.lock"):
        files[path.relative_to(bundled.ROOT).as_posix()] = path
    return _archive(sorted(files.items()))


# Which files ---------------------------------------------------------------------------------------------------------


def _walk(folder: Path) -> Iterator[str]:
    """Yield the path of every file and link, without generated ones."""

    def unreadable(error: OSError) -> None:
        raise BadSpec(f"code: cannot read {error.filename}: {error.strerror}") from error

    for root, folders, files in os.walk(folder, onerror=unreadable):
        parent = Path(root)
        linked = [f for f in folders if (parent / f).is_symlink()]
        ignored = {f for f in folders if f in IGNORED or (parent / f / "pyvenv.cfg").exists()}
        folders[:] = [f for f in folders if f not in ignored | {*linked}]
        for name in (*files, *linked):
            if name not in GENERATED:
                yield (parent / name).relative_to(folder).as_posix()


def _without_ignored(folder: Path, names: Iterable[str]) -> list[str]:
    """Return the names without those in NEVER and those that `.tpujobignore` excludes."""
    candidates = [name for name in names if NEVER.isdisjoint(PurePosixPath(name).parts)]
    ignore = folder / IGNORE_FILE
    try:
        ignore.read_bytes()
    except FileNotFoundError:
        return candidates
    except OSError as error:
        raise BadSpec(f"code: cannot read {ignore}: {error.strerror}") from error
    ignored = git.excluded_files(ignore, candidates)
    return [name for name in candidates if name not in ignored]


def _keys_error(folder: Path, keys: list[str]) -> BadSpec:
    return BadSpec(
        f"code: {many(len(keys), 'file')} of {folder} would be shipped and may hold a key: {_listed(keys)}",
        hint=f"Name them in {IGNORE_FILE}; tell the program its keys by `tpujob secret set` and `run.secrets`. "
        "`--allow-keys` ships them all the same.",
    )


def _listed(names: list[str]) -> str:
    shown = ", ".join(one_line(name, 200) for name in names[:MAX_LISTED])
    return shown + (f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else "")


def _is_packable(folder: Path, name: str) -> bool:
    """Return whether the name is a file or a link. Raise BadSpec for a link that leads out of the folder."""
    path = folder / name
    if not path.is_symlink():
        return path.is_file()
    target = os.readlink(path)
    inside = path.parent.resolve().joinpath(target).resolve().is_relative_to(folder.resolve())
    if os.path.isabs(target) or not inside:
        raise BadSpec(
            f"code: {name} is a link to {target}, which is outside {folder}",
            hint=f"Copy it in, or name it in {IGNORE_FILE}.",
        )
    return True


def _check_size(folder: Path, names: Iterable[str]) -> None:
    sizes = {n: (folder / n).lstat().st_size for n in names}
    if len(sizes) > MAX_FILES:
        raise BadSpec(
            f"code: {folder} has {len(sizes):,} files, more than {MAX_FILES:,}",
            hint=f"Name what the program does not need in {IGNORE_FILE}.",
        )
    total = sum(sizes.values())
    if total > LIMIT:
        biggest = sorted(sizes, key=lambda n: -sizes[n])[:5]
        listed = ", ".join(f"{n} ({sizes[n] / 1024**2:.1f} MiB)" for n in biggest)
        raise BadSpec(
            f"code: {folder} has {total / 1024**2:,.0f} MiB, more than {_CODE_LIMIT}; the biggest: {listed}",
            hint=f"Name what the program does not need in {IGNORE_FILE}; put data into a bucket.",
        )


def _pointers_warning(folder: Path, names: Iterable[str]) -> Iterator[str]:
    """Yield a warning about files whose contents are elsewhere, in git-LFS."""
    pointers: list[str] = []
    for name in names:
        path = folder / name
        if not path.is_symlink() and len(_POINTER) < path.stat().st_size < 1024:
            with path.open("rb") as file:
                pointers += [name] if file.read(len(_POINTER)) == _POINTER else []
    if pointers:
        text = "shipped as pointers of git-LFS, without their contents"
        yield f"{text}: {_listed(pointers)}; `git lfs pull` fetches them"


# The archive ---------------------------------------------------------------------------------------------------------


def _archive(files: Iterable[tuple[str, Path]]) -> Bundle:
    """Return a bundle without times, owners or hosts: the same names, contents and execute bits give the same bytes."""
    packed = io.BytesIO()
    names: list[str] = []
    size = 0
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=6, mtime=0, filename="") as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, path in files:
            size += _add(tar, name, path)
            names.append(name)
    data = packed.getvalue()
    return Bundle(hashlib.sha256(data).hexdigest(), data, tuple(names), size)


def _add(tar: tarfile.TarFile, name: str, path: Path) -> int:
    """Add a file or link and return its size in bytes. Raise BadSpec for an unreadable one."""
    entry = tarfile.TarInfo(name)
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            entry.type, entry.linkname = tarfile.SYMTYPE, os.readlink(path)
            tar.addfile(entry)
            return 0
        content = path.read_bytes()
    except OSError as error:
        raise BadSpec(
            f"code: cannot read {path}: {error.strerror}",
            hint=f"Make it readable, or name it in {IGNORE_FILE}.",
        ) from error
    entry.mode = 0o755 if mode & stat.S_IXUSR else 0o644
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))
    return len(content)
