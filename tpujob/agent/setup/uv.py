"""Finds or installs uv, with which `installers.py` builds environments."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import tarfile
from typing import Dict

from tpujob.agent.attempt import HostAttempt
from tpujob.agent.base import Failure, remove_file
from tpujob.agent.folders import TOOLS
from tpujob.agent.http_client import HttpError, pieces, send
from tpujob.agent.storage import StorageError
from tpujob.protocol import Plan

#: The release that a host without uv gets. `UV_DOWNLOAD_URL`, a variable of uv's vendor, names another folder with such
#: an archive (https, file or gs). A hash names the archive of another release:
#: `https://mirror.example.org/uv#sha256=...`
VERSION = "0.12.1"
#: the SHA-256 of the release's archives, by machine, as many public repositories pin them
ARCHIVES = {
    "x86_64": "90b2f223fb69d19db49e117da601f64978593417988530aa733d456141b4bcbb",
    "aarch64": "769d373e146692c639b5fbaae33b331c297a32e03d30448772051902df52bbf4",
}
FOLDER = "https://github.com/astral-sh/uv/releases/download/" + VERSION
ANSWER = 60.0  #: seconds without a byte after which a download has failed

OWN = os.path.join(TOOLS, "uv", "bin", "uv")


def get_uv(attempt: HostAttempt) -> str:
    """Return the path of uv, after installing the vendor's archive where the host has none. Raises Failure, Stopped."""
    path = shutil.which("uv") or shutil.which(OWN)
    if path:
        return path
    problem = _install(attempt)
    if problem:
        cure = "install uv in a start-up script, or name a folder with its archive: UV_DOWNLOAD_URL in run.env"
        raise Failure("uv is not on this host and cannot be installed: %s; %s" % (problem, cure))
    return OWN


def _install(attempt: HostAttempt) -> str:
    """Install uv. Return the problem; empty: success. Raises Stopped."""
    machine = platform.machine()
    variables = tool_variables(attempt.plan)
    source = variables.get("UV_DOWNLOAD_URL") or os.environ.get("UV_DOWNLOAD_URL") or FOLDER
    if machine not in ARCHIVES:
        return "there is no archive of it for %s" % machine
    folder, _, digest = source.partition("#sha256=")
    url = "%s/uv-%s-unknown-linux-gnu.tar.gz" % (folder.rstrip("/"), machine)
    archive = OWN + ".tar.gz"
    os.makedirs(os.path.dirname(OWN), exist_ok=True)
    try:
        attempt.run_aside(lambda: _download(attempt, url, archive))
        _unpack(archive, digest or ARCHIVES[machine])
    except (OSError, ValueError, HttpError, StorageError, tarfile.TarError) as error:
        attempt.log.note("environment: no uv from %s: %s" % (url, error))
        return "its archive cannot be fetched (%s)" % error
    finally:
        remove_file(archive)
    attempt.log.note("environment: uv is from %s" % url)
    return ""


def _download(attempt: HostAttempt, url: str, path: str) -> None:
    """Download an archive. Raises OSError, HttpError, StorageError."""
    with open(path, "wb") as file:
        if url.startswith("gs://"):
            attempt.storage.read(url, file.write)
            return
        with send(url, timeout=ANSWER) as answer:
            file.writelines(pieces(answer))


def _unpack(archive: str, expected: str) -> None:
    """Unpack uv alone, atomically, from an archive with the expected SHA-256. Raises OSError, ValueError, TarError."""
    with open(archive, "rb") as packed:
        sha256 = hashlib.sha256(packed.read()).hexdigest()
    if sha256 != expected:
        raise ValueError("it has the SHA-256 %s, and %s is expected" % (sha256, expected))
    with tarfile.open(archive) as tar:
        member = next((m for m in tar if m.isfile() and os.path.basename(m.name) == "uv"), None)
        content = tar.extractfile(member) if member else None
        if content is None:
            raise ValueError("there is no uv in it")
        with open(OWN + ".new", "wb") as file:
            shutil.copyfileobj(content, file)
    os.chmod(OWN + ".new", 0o755)  # noqa: S103, a program
    os.replace(OWN + ".new", OWN)


# Variables for the tools ---------------------------------------------------------------------------------------------


#: names of variables for uv and conda
TOOL_VARIABLES = frozenset((
    "UV_DEFAULT_INDEX", "UV_INDEX", "UV_FIND_LINKS", "UV_DOWNLOAD_URL", "UV_PYTHON_INSTALL_MIRROR",
    "UV_PYTHON_DOWNLOADS_JSON_URL", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE",
))  # fmt: skip


def tool_variables(plan: Plan) -> Dict[str, str]:
    """Return the variables of the job's `run.env` that the tools get, too."""
    return {name: value for name, value in plan["env"].items() if name in TOOL_VARIABLES}
