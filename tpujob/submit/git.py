"""Asks git about a folder of code: its files, those that a file of patterns excludes, and its commit and diff. Never
changes a repository."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tpujob.errors import BadSpec
from tpujob.submit.secrets_scan import holds_a_key, named_like_a_key

if TYPE_CHECKING:
    from tpujob.api import Checkout

TIMEOUT = 60.0  #: seconds for one call of git
DIFF_LIMIT = 128 * 1024  #: bytes of a diff, which fits as escaped JSON into a request of 1 MiB
DIFF_FILES = 500  #: most files in a diff

#: the border between the diffs of two files
_FILES = re.compile(rb"(?m)^(?=diff --git )")

#: the standing of a folder without repository or commit
NOWHERE: Checkout = {"commit": "", "branch": "", "dirty": False, "diff": ""}


#: variables that would name another repository, or change the meaning of paths
_FOREIGN = re.compile(
    r"GIT_(?:DIR|WORK_TREE|INDEX_FILE|COMMON_DIR|PREFIX|NAMESPACE|CEILING_DIRECTORIES|.*OBJECT_DIRECTOR.*|.*_PATHSPECS)"
)


def list_files(folder: Path) -> tuple[list[str], list[str]] | None:
    """Return the existing files and links that git tracks or does not ignore, with those of submodules, and the
    submodules that are not checked out; None: the folder is in no repository. Raise BadSpec if git is not installed,
    refuses, or lists no file, as shipping all files instead could ship secrets."""
    if not _in_repository(folder):
        return None
    if _run(folder, ("--version",), b"") is None:
        raise BadSpec(
            f"code: {folder} is in a git repository, and git, which knows the files to leave out, is not installed",
            hint="Install git, or copy what the program needs to a folder outside of the repository.",
        )
    names: list[str] = []
    missing: list[str] = []
    _list_into(folder, "", names, missing)
    if not names:
        ignored = _git(folder, "check-ignore", "--quiet", str(folder.resolve())) is not None
        why = "it ignores the folder" if ignored else "there is none, or it ignores them all"
        raise BadSpec(
            f"code: git lists no file to ship in {folder}: {why}",
            hint="`git add -f FILE` adds what the program needs, `git check-ignore -v FILE` names the rule; `git init` "
            "in the folder makes it a repository of its own.",
        )
    return names, missing


def excluded_files(patterns: Path, names: Collection[str]) -> frozenset[str]:
    """Return the paths that a file of gitignore patterns excludes. Raise BadSpec if git is not installed."""
    with tempfile.TemporaryDirectory(prefix="tpujob-") as scratch:
        # an empty repository has no patterns of its own
        repository = _git(Path(scratch), "init", "--quiet", "--template=")
        if repository is None:
            raise BadSpec(
                f"code: {patterns} cannot be followed without git",
                hint="Install git, or remove it.",
            )
        excludes = f"core.excludesFile={patterns.absolute()}"
        args = ("-c", excludes, "check-ignore", "--no-index", "--stdin", "-z")
        paths = b"".join(os.fsencode(name) + b"\0" for name in names)
        return frozenset(_names(_git(Path(scratch), *args, stdin=paths) or b""))


def standing(folder: Path, shipped: Collection[str], *, allow_keys: bool = False) -> Checkout:
    """Return the commit, the branch (empty: none is checked out) and the diff of shipped and deleted files. Unless
    `allow_keys`, the diff shows no key: a deleted key may still be in use."""
    commit = _line(folder, "rev-parse", "--verify", "HEAD") if _in_repository(folder) else ""
    if not commit:
        return NOWHERE
    branch = _line(folder, "symbolic-ref", "--quiet", "--short", "HEAD")
    status = _git(folder, "status", "--porcelain", "-z", "--", ".")
    diff = _diff(folder, shipped, allow_keys) if status else ""
    return {"commit": commit, "branch": branch, "dirty": bool(status), "diff": diff}


def _list_into(folder: Path, prefix: str, names: list[str], missing: list[str]) -> None:
    """Add the files of a repository, with its submodules, to `names`, and absent submodules to `missing`."""
    args = ("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    done = _run(folder, args, b"")
    if done is None or done.returncode:
        lines = done.stderr.decode(errors="replace").splitlines() if done else []
        raise BadSpec(
            f"code: git cannot list the files of {folder}: {lines[0] if lines else 'it does not say why'}",
            hint="`git status` there says more. Files that git ignores are not shipped, so its list is needed.",
        )
    for name in dict.fromkeys(_names(done.stdout)):  # a merge conflict lists a file three times
        path = folder / name
        if path.is_symlink() or path.is_file():
            names.append(prefix + name)
        elif (path / ".git").exists():  # a submodule, or a repository that is not tracked
            _list_into(path, f"{prefix}{name.rstrip('/')}/", names, missing)
        elif path.is_dir():
            missing.append(prefix + name)


def _diff(folder: Path, shipped: Collection[str], allow_keys: bool) -> str:
    changed = _git(folder, "diff", "--name-only", "-z", "--relative", "HEAD", "--", ".") or b""
    allowed = (n for n in _names(changed) if allow_keys or not named_like_a_key(n))
    shown = [n for n in allowed if n in shipped or not os.path.lexists(folder / n)][:DIFF_FILES]
    if not shown:
        return ""
    options = ("--no-color", "--no-ext-diff", "--no-textconv", "--relative")
    answer = _git(folder, "--literal-pathspecs", "diff", *options, "HEAD", "--", *shown) or b""
    if not allow_keys:
        # without the diffs of files that show a key
        lines = {part: re.sub(rb"(?m)^[-+ ]", b"", part) for part in _FILES.split(answer)}
        answer = b"".join(part for part, text in lines.items() if not holds_a_key(text, prose=True))
    text = answer[:DIFF_LIMIT].decode(errors="replace")
    return text if len(answer) <= DIFF_LIMIT else f"{text}\n[cut at {DIFF_LIMIT >> 10} KiB]\n"


def _in_repository(folder: Path) -> bool:
    start = folder.resolve()
    return any(os.path.lexists(parent / ".git") for parent in (start, *start.parents))


def _git(folder: Path, *args: str, stdin: bytes = b"") -> bytes | None:
    """Return git's output; None: git is not installed, or failed."""
    done = _run(folder, args, stdin)
    return done.stdout if done is not None and done.returncode == 0 else None


def _run(
    folder: Path, args: Sequence[str], stdin: bytes
) -> subprocess.CompletedProcess[bytes] | None:
    environment = {n: v for n, v in os.environ.items() if not _FOREIGN.fullmatch(n)}
    try:
        return subprocess.run(
            ["git", *args],
            cwd=folder,
            env=environment,
            input=stdin,
            capture_output=True,
            timeout=TIMEOUT,
        )
    except FileNotFoundError:
        return None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BadSpec(f"code: git does not answer in {folder}: {error}") from error


def _line(folder: Path, *args: str) -> str:
    return (_git(folder, *args) or b"").decode(errors="replace").strip()


def _names(answer: bytes) -> Iterator[str]:
    return (os.fsdecode(name) for name in answer.split(b"\0") if name)
