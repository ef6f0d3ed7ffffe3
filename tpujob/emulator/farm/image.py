"""The programs on an emulated host: those of this machine, or those of a bare TPU VM.

A host of the `bare` image has its own folder on PATH in place of this machine's programs: the tools of Ubuntu 22.04, a
Python 3.10 without pip and ensurepip, no `python`, and a `docker` whose daemon refuses this user. Absolute paths still
reach this machine's programs.
"""

import contextlib
import functools
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

DEFAULT, BARE = "default", "bare"
IMAGES = (DEFAULT, BARE)

#: Tools of Ubuntu 22.04 on a TPU VM; those that this machine lacks are left out. None can change this machine, as apt
#: and sudo could.
_TOOLS = """
awk base64 basename bash cat chmod chown cmp comm cp curl cut date dd df diff dirname du echo env expr false file find
flock free getent git grep groups gunzip gzip head hostname id install join kill less ln locale ls lsof md5sum mkdir
mkfifo mktemp mv nice nohup nproc od paste perl pgrep pkill printenv printf ps pwd readlink realpath renice rm rmdir
rsync sed seq setsid sh sha1sum sha256sum sleep sort split ssh stat stdbuf stty sync tail tar tee test time timeout top
touch tr true truncate tty uname uniq unlink unxz unzip uptime wc wget which whoami xargs xz zcat zip
"""

#: modules of Ubuntu packages that a TPU VM lacks, and modules that only take room
_NOT_IN_UBUNTU = {"ensurepip", "site-packages", "dist-packages", "test", "idlelib", "turtledemo"}
_DOCKER = """#!/bin/sh
echo "permission denied while trying to connect to the Docker daemon socket" >&2
exit 1
"""


def default_path() -> str:
    """Return the PATH of hosts with all programs of this machine; `python3` has the same packages as this process."""
    own = Path(sys.executable).parent
    return f"{own}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def bare_path(folder: Path) -> str:
    """Return the PATH of bare hosts. Make its programs in `folder` unless they exist. Raise OSError."""
    usr, complete = folder / "usr", folder / "made"
    if not complete.exists():
        shutil.rmtree(usr, ignore_errors=True)
        (usr / "bin").mkdir(parents=True)
        for name in _TOOLS.split():
            if program := shutil.which(name):
                (usr / "bin" / name).symlink_to(Path(program).resolve())
        (usr / "bin" / "docker").write_text(_DOCKER)
        (usr / "bin" / "docker").chmod(0o755)
        _install_python(usr, _find_python())
        complete.touch()
    return str(usr / "bin")


def shortcomings() -> list[str]:
    """Return sentences that say how the bare image of this machine differs from Ubuntu 22.04."""
    _, version, _ = _find_python()
    return [] if version == "3.10" else [f"there is no Python 3.10 here: its python3 is {version}"]


# The image's Python --------------------------------------------------------------------------------------------------

#: the program, its version, and the folder of its standard library
_Python = tuple[Path, str, Path]

_ASK = (
    "import os, sys, sysconfig; print(os.path.realpath(sys.executable), "
    "sysconfig.get_python_version(), sysconfig.get_path('stdlib'), sep='\\n')"
)


@functools.cache
def _find_python() -> _Python:
    """Return a Python 3.10 of this machine, or else the Python that runs this code."""
    for program in _candidates():
        try:
            command = [program, "-I", "-S", "-c", _ASK]
            done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
        except (OSError, subprocess.SubprocessError):
            continue
        path, version, library = done.stdout.split("\n")[:3]
        if version == "3.10":
            return Path(path), version, Path(library)
    own = Path(os.path.realpath(sys.executable))
    return own, sysconfig.get_python_version(), Path(sysconfig.get_path("stdlib"))


def _candidates() -> Iterator[str]:
    if program := shutil.which("python3.10"):
        yield program
    for root in (os.environ.get("PYENV_ROOT", ""), str(Path.home() / ".pyenv")):
        with contextlib.suppress(OSError):  # a folder of another user
            yield from map(str, Path(root or "/nowhere").glob("versions/3.10*/bin/python3.10"))


def _install_python(usr: Path, python: _Python) -> None:
    """Make a Python below `usr` of a copied program, which finds its library relative to itself, and links to the
    library without the modules that Ubuntu leaves out."""
    program, version, library = python
    own = usr / "lib" / f"python{version}"
    (own / "site-packages").mkdir(parents=True)
    for entry in library.iterdir():
        if entry.name not in _NOT_IN_UBUNTU:
            (own / entry.name).symlink_to(entry)
    shutil.copy2(program, usr / "bin" / f"python{version}")
    (usr / "bin" / "python3").symlink_to(f"python{version}")
