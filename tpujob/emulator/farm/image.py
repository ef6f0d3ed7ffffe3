"""What is installed on an emulated host: what this machine has, or what a bare TPU VM has.

A host of the `bare` image has a folder of its own instead of this machine's programs on PATH: the tools of an Ubuntu
22.04, a Python 3.10 without pip and ensurepip, no `python`, and a `docker` whose daemon does not let this user in. What
is reached by an absolute path is still this machine's.
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

#: Of an Ubuntu 22.04 as a TPU VM has it, as far as this machine has them too. No tool is among them that would change
#: this machine, such as apt and sudo.
_TOOLS = """
awk base64 basename bash cat chmod chown cmp comm cp curl cut date dd df diff dirname du echo env expr false file find
flock free getent git grep groups gunzip gzip head hostname id install join kill less ln locale ls lsof md5sum mkdir
mkfifo mktemp mv nice nohup nproc od paste perl pgrep pkill printenv printf ps pwd readlink realpath renice rm rmdir
rsync sed seq setsid sh sha1sum sha256sum sleep sort split ssh stat stdbuf stty sync tail tar tee test time timeout top
touch tr true truncate tty uname uniq unlink unxz unzip uptime wc wget which whoami xargs xz zcat zip
"""

#: what Ubuntu has in packages of its own, which a TPU VM lacks, and what only takes room
_NOT_IN_UBUNTU = {"ensurepip", "site-packages", "dist-packages", "test", "idlelib", "turtledemo"}
_DOCKER = """#!/bin/sh
echo "permission denied while trying to connect to the Docker daemon socket" >&2
exit 1
"""


def default_path() -> str:
    """PATH of hosts that have everything of this machine; `python3` has the same packages as this process."""
    own = Path(sys.executable).parent
    return f"{own}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def bare_path(folder: Path) -> str:
    """PATH of bare hosts. Its programs are made in `folder` unless it is there. Raises OSError."""
    usr, made = folder / "usr", folder / "made"
    if not made.exists():
        shutil.rmtree(usr, ignore_errors=True)
        (usr / "bin").mkdir(parents=True)
        for name in _TOOLS.split():
            if found := shutil.which(name):
                (usr / "bin" / name).symlink_to(Path(found).resolve())
        (usr / "bin" / "docker").write_text(_DOCKER)
        (usr / "bin" / "docker").chmod(0o755)
        _install_python(usr, _python_like_ubuntus())
        made.touch()
    return str(usr / "bin")


def shortcomings() -> list[str]:
    """In what the bare image of this machine differs from Ubuntu 22.04, in words."""
    _, version, _ = _python_like_ubuntus()
    return [] if version == "3.10" else [f"there is no Python 3.10 here: its python3 is {version}"]


# Its Python ----------------------------------------------------------------------------------------------------------

_Found = tuple[Path, str, Path]  #: the program, its version, and the folder of its standard library

_ASK = (
    "import os, sys, sysconfig; print(os.path.realpath(sys.executable), "
    "sysconfig.get_python_version(), sysconfig.get_path('stdlib'), sep='\\n')"
)


@functools.cache
def _python_like_ubuntus() -> _Found:
    """A Python 3.10 of this machine; else the one that runs this."""
    for program in _candidates():
        try:
            asked = [program, "-I", "-S", "-c", _ASK]
            done = subprocess.run(asked, capture_output=True, text=True, timeout=20, check=True)
        except (OSError, subprocess.SubprocessError):
            continue
        found, version, library = done.stdout.split("\n")[:3]
        if version == "3.10":
            return Path(found), version, Path(library)
    own = Path(os.path.realpath(sys.executable))
    return own, sysconfig.get_python_version(), Path(sysconfig.get_path("stdlib"))


def _candidates() -> Iterator[str]:
    if found := shutil.which("python3.10"):
        yield found
    for root in (os.environ.get("PYENV_ROOT", ""), str(Path.home() / ".pyenv")):
        with contextlib.suppress(OSError):  # a folder of another user
            yield from map(str, Path(root or "/nowhere").glob("versions/3.10*/bin/python3.10"))


def _install_python(usr: Path, found: _Found) -> None:
    """A Python of its own below `usr`, which finds its library by where its program lies: links, less what Ubuntu
    leaves out."""
    program, version, library = found
    own = usr / "lib" / f"python{version}"
    (own / "site-packages").mkdir(parents=True)
    for entry in library.iterdir():
        if entry.name not in _NOT_IN_UBUNTU:
            (own / entry.name).symlink_to(entry)
    shutil.copy2(program, usr / "bin" / f"python{version}")
    (usr / "bin" / "python3").symlink_to(f"python{version}")
