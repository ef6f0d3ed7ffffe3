"""The Python in which a check runs: this one, if it has all packages, or one that is made once from the lock file of
the bundled programs and kept."""

import fcntl
import hashlib
import importlib.util
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import workloads
from tpujob.errors import BadRequest, TpujobError

#: what the lock file was resolved for
PYTHON = "3.11"


@dataclass(frozen=True, slots=True)
class Environment:
    """Where a check can run."""

    python: Path
    #: put before what the interpreter finds by itself; empty: it has the programs
    path: str
    stamp: str  #: another one for other versions of what it is made of


def environment(cache: Path, say: Callable[[str], None]) -> Environment:
    """Return one that can compile for a TPU. Makes it if there is none, which takes minutes: `say` gets a line before.
    Raises BadRequest where there can be none, TpujobError when it could not be made."""
    if can_here():
        return Environment(Path(sys.executable), "", stamp())
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise BadRequest(
            f"the TPU's compiler is made for Linux on x86-64 only; this is {platform.system()} on {platform.machine()}",
            hint="Run the check on a Linux machine, or in a container there.",
        )
    folder = cache / "environments" / stamp()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two checks at once make it once
        if not (folder / "complete").exists():
            say(
                "making an environment with the TPU's compiler (once; about 1 GB, some minutes) ..."
            )
            _make(folder)
            (folder / "complete").touch()
    return Environment(folder / "venv" / "bin" / "python", str(folder / "programs"), stamp())


def stamp() -> str:
    """Of the environment that `environment` would give, without making it."""
    if can_here():
        versions = [f"{name}={metadata.version(name)}" for name in ("jax", "jaxlib", "libtpu")]
        return _digest(" ".join([*versions, platform.python_version()]))
    return _digest(_lock_file().read_text(encoding="utf-8"))


def can_here() -> bool:
    """Whether this Python has the packages of the programs, and the compiler."""
    return not lacking("workloads") and importlib.util.find_spec("libtpu") is not None


def _make(folder: Path) -> None:
    """uv makes it, with a Python of its own where this machine has none of the right version."""
    uv = shutil.which("uv")
    command = [uv] if uv else [sys.executable, "-m", "uv"]
    if uv is None and importlib.util.find_spec("uv") is None:
        raise BadRequest(
            "the check needs an environment of its own, which uv makes, and uv is not installed",
            hint="python3 -m pip install uv",
        )
    venv = folder / "venv"
    _run([*command, "venv", "--quiet", "--clear", "--python", PYTHON, str(venv)])
    packages = ["--require-hashes", "--requirement", str(_lock_file())]
    _run(
        [*command, "pip", "install", "--quiet", "--python", str(venv / "bin" / "python"), *packages]
    )
    # the folder above the programs may be full of this Python's packages, which are not for that one
    programs = folder / "programs"
    shutil.rmtree(programs, ignore_errors=True)
    programs.mkdir()
    (programs / "workloads").symlink_to(_programs(), target_is_directory=True)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise TpujobError(
            "the environment of the check could not be made: "
            + (lines[-1] if lines else "uv failed"),
            hint="It needs the package index; the next check tries again.",
        )


def _programs() -> Path:
    return Path(next(iter(workloads.__path__))).resolve()


def _lock_file() -> Path:
    return _programs() / "requirements.lock"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


_REQUIREMENT = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*).*;.*\bextra == ['\"]([a-z]+)['\"]")


def lacking(extra: str) -> list[str]:
    """The packages of that extra that are not installed, by name. Nothing is imported."""
    try:
        stated = metadata.requires("tpujob") or []
    except metadata.PackageNotFoundError:  # it is run from a folder, not installed
        return []
    found = (_REQUIREMENT.match(line) for line in stated)
    return [one[1] for one in found if one and one[2] == extra and not _is_installed(one[1])]


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True
