"""A folder of code as git sees it: which files belong to it, what a file of patterns leaves out, and where it stands.

Git is asked, and never imitated. Nothing here changes a repository.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tpujob.errors import BadRequest
from tpujob.submit.secrets_scan import holds_a_key, named_like_a_key

if TYPE_CHECKING:
    from tpujob.api import CodeGiven

PATIENCE = 60.0  #: seconds for one answer of git
DIFF_LIMIT = 128 * 1024  #: bytes of a diff; as JSON it has to fit into a request of 1 MiB, escaped
DIFF_FILES = 500  #: whose changes are in it


#: between the diffs of two files
_FILES = re.compile(rb"(?m)^(?=diff --git )")

#: of a folder that is in no repository, or has no commit
NOWHERE: CodeGiven = {"commit": "", "branch": "", "dirty": False, "diff": ""}


def listed(folder: Path) -> tuple[list[str], list[str]]:
    """The files and links that git tracks or would track, as far as they are there, those of submodules included; and
    the submodules that are not checked out. None of either: the folder is in no repository, or git is not installed.
    Raises BadRequest when git refuses: shipping everything instead could ship secrets."""
    names: list[str] = []
    missing: list[str] = []
    if _in_repository(folder):
        _list_into(folder, "", names, missing)
    return names, missing


def matched(patterns: Path, names: Collection[str]) -> frozenset[str]:
    """Those of the paths that a file of gitignore patterns leaves out, whatever else git ignores or tracks.
    Raises BadRequest when git is not installed."""
    with tempfile.TemporaryDirectory(prefix="tpujob-") as scratch:
        # an empty repository has no patterns of its own
        made = _git(Path(scratch), "init", "--quiet", "--template=")
        if made is None:
            raise BadRequest(
                f"code: {patterns} cannot be followed without git",
                hint="Install git, or remove it.",
            )
        excludes = f"core.excludesFile={patterns.absolute()}"
        words = ("-c", excludes, "check-ignore", "--no-index", "--stdin", "-z")
        asked = b"".join(os.fsencode(name) + b"\0" for name in names)
        return frozenset(_names(_git(Path(scratch), *words, stdin=asked) or b""))


def standing(folder: Path, shipped: Collection[str], *, allow_keys: bool = False) -> CodeGiven:
    """Commit, branch (empty: none is checked out) and what differs from it; the diff is of no file but the shipped ones
    and deleted ones, and shows no key, unless `allow_keys`: a key that was deleted may still be in use."""
    commit = _line(folder, "rev-parse", "--verify", "HEAD") if _in_repository(folder) else ""
    if not commit:
        return NOWHERE
    branch = _line(folder, "symbolic-ref", "--quiet", "--short", "HEAD")
    status = _git(folder, "status", "--porcelain", "-z", "--", ".")
    diff = _diff(folder, shipped, allow_keys) if status else ""
    return {"commit": commit, "branch": branch, "dirty": bool(status), "diff": diff}


def _list_into(folder: Path, below: str, names: list[str], missing: list[str]) -> None:
    words = ("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    done = _run(folder, words, b"")
    if done is None or done.returncode:
        lines = done.stderr.decode(errors="replace").splitlines() if done else []
        raise BadRequest(
            f"code: git cannot list the files of {folder}: {lines[0] if lines else 'it does not say why'}",
            hint="`git status` there says more.",
        )
    for name in dict.fromkeys(
        _names(done.stdout)
    ):  # a file in a merge conflict is listed three times
        path = folder / name
        if path.is_symlink() or path.is_file():
            names.append(below + name)
        elif (path / ".git").exists():  # a submodule, or a repository that is not tracked
            _list_into(path, f"{below}{name.rstrip('/')}/", names, missing)
        elif path.is_dir():
            missing.append(below + name)


def _diff(folder: Path, shipped: Collection[str], allow_keys: bool) -> str:
    changed = _names(
        _git(folder, "diff", "--name-only", "-z", "--relative", "HEAD", "--", ".") or b""
    )
    allowed = (n for n in changed if allow_keys or not named_like_a_key(n))
    shown = [n for n in allowed if n in shipped or not os.path.lexists(folder / n)][:DIFF_FILES]
    if not shown:
        return ""
    plain = ("--no-color", "--no-ext-diff", "--no-textconv", "--relative")
    answer = _git(folder, "--literal-pathspecs", "diff", *plain, "HEAD", "--", *shown) or b""
    if not allow_keys:
        # a key that a line of the diff adds or takes away
        lines = {part: re.sub(rb"(?m)^[-+ ]", b"", part) for part in _FILES.split(answer)}
        answer = b"".join(p for p, text in lines.items() if not holds_a_key(text, prose=True))
    text = answer[:DIFF_LIMIT].decode(errors="replace")
    return text if len(answer) <= DIFF_LIMIT else f"{text}\n[cut at {DIFF_LIMIT >> 10} KiB]\n"


def _in_repository(folder: Path) -> bool:
    here = folder.resolve()
    if not any((above / ".git").exists() for above in (here, *here.parents)):
        return False
    return _run(folder, ("--version",), b"") is not None


def _git(folder: Path, *words: str, stdin: bytes = b"") -> bytes | None:
    """Return what git prints; None: it is not there, or failed."""
    done = _run(folder, words, stdin)
    return done.stdout if done is not None and done.returncode == 0 else None


def _run(
    folder: Path, words: Sequence[str], stdin: bytes
) -> subprocess.CompletedProcess[bytes] | None:
    try:
        return subprocess.run(
            ["git", *words], cwd=folder, input=stdin, capture_output=True, timeout=PATIENCE
        )
    except FileNotFoundError:
        return None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BadRequest(f"code: git does not answer in {folder}: {error}") from error


def _line(folder: Path, *words: str) -> str:
    return (_git(folder, *words) or b"").decode(errors="replace").strip()


def _names(answer: bytes) -> Iterator[str]:
    return (os.fsdecode(name) for name in answer.split(b"\0") if name)
