"""Builds environments with uv or conda. `environments.py` decides whether to build one."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
from typing import Dict, List, Optional, Tuple

from tpujob.agent.attempt import HostAttempt
from tpujob.agent.base import Failure
from tpujob.agent.commands import run_on_host
from tpujob.agent.folders import CACHES
from tpujob.agent.processes import output_of
from tpujob.agent.runtimes import BuiltEnvironment
from tpujob.agent.setup.bundles import lay_out
from tpujob.agent.setup.package_index import IndexProbe
from tpujob.agent.setup.uv import get_uv, tool_variables
from tpujob.protocol import EnvironmentOrder

#: the programs that read conda's files, in order of preference, and the arguments that create an environment
CONDA = {"micromamba": ["create", "-y"], "mamba": ["env", "create"], "conda": ["env", "create"]}


class Installer:
    """A builder of a plan's environment."""

    def __init__(self, attempt: HostAttempt, order: EnvironmentOrder, bundles: List[str]) -> None:
        self._kind, self._file = order.get("kind", ""), order.get("file", "")
        self._version = order.get("python") or ""  #: empty: any
        #: packages that are not installed even if the file names them
        self._without = FOR_TPU_ONLY if order.get("unless_installed") and on_cpu() else ()
        self._attempt, self._bundles = attempt, bundles

    def python(self) -> str:
        """Return a description of the environment's Python for the key: the version that the tool installs, or version
        and path of this host's Python. Raises Failure."""
        if self._kind == "conda" or (self._kind == "uv" and self._version):
            return " without ".join((self._version, *self._without))
        name = self._host_python()
        script = "import platform, sys; print(platform.python_version(), sys.executable)"
        output = (output_of([name, "-c", script], 30) or b"").decode("utf-8", "replace").strip()
        if not output:
            text = "%s is not on this host; `env: {uv: %s, python: ...}` gets any version"
            raise Failure(text % (name, self._file))
        return output

    def install(self, built: BuiltEnvironment, local: bool, hashed: bool) -> None:
        """Build the environment in its folder. `local`: the file names other files of the bundle; `hashed`: it has a
        hash for each package. Raises Failure, Stopped."""
        if local:
            source = os.path.join(built.folder, "src")
            lay_out(self._bundles, source, self._attempt.run_aside)
        else:
            source = find(self._file, self._bundles)
        if self._kind == "conda":
            return self._install_with_conda(built, source)
        return self._install_with_uv(built, source, hashed)

    def _install_with_uv(self, built: BuiltEnvironment, source: str, hashed: bool) -> None:
        probe = IndexProbe(self._attempt)
        try:
            uv = get_uv(self._attempt)
        except Failure as error:
            raise Failure("%s%s" % (error, probe.problem())) from error
        variables = {
            "UV_CACHE_DIR": os.path.join(CACHES, "uv"),
            # a Python that uv installs must be in the environment's archive
            "UV_PYTHON_INSTALL_DIR": os.path.join(built.folder, "python"),
            "UV_NO_PROGRESS": "1",
        }
        if self._without:
            variables["UV_EXCLUDE"] = os.path.join(built.folder, "without.txt")
            with open(variables["UV_EXCLUDE"], "w", encoding="ascii") as file:
                file.write("\n".join(self._without))
        python = self._version if self._kind == "uv" and self._version else self._host_python()
        # ignores projects in the folders above; with pip where set-up may call it
        options = ["--no-project", "--python", python, *(["--seed"] if self._kind == "pip" else [])]
        self._run([uv, "venv", built.prefix, *options], source, probe, **variables)
        if not hashed:
            note = self._attempt.log.note
            note("environment: %s has no hashes: another build may get others" % self._file)
        options = ["--python", os.path.join(built.prefix, "bin", "python")]
        options += ["--require-hashes"] if hashed else []
        self._run([uv, "pip", "install", *options, "-r", self._file], source, probe, **variables)

    def _install_with_conda(self, built: BuiltEnvironment, source: str) -> None:
        tool = next(filter(shutil.which, CONDA), "")
        if not tool:
            raise Failure(
                "neither micromamba, mamba nor conda is on this host; have a start-up script "
                "install micromamba, or write `env: {uv: requirements.txt}` instead"
            )
        argv = [tool, *CONDA[tool], "-p", built.prefix, "-f", self._file]
        self._run(argv, source, None, CONDA_ALWAYS_YES="true")

    def _run(
        self, argv: List[str], cwd: str, probe: Optional[IndexProbe], **variables: str
    ) -> None:
        variables = {**tool_variables(self._attempt.plan), **variables}
        code = run_on_host(self._attempt, argv, cwd, variables)
        if code != 0:
            shown = " ".join(os.path.basename(word) if "/" in word else word for word in argv[:4])
            reason = self._attempt.log.reason(b"[env] ") + (probe.problem() if probe else "")
            text = "the environment cannot be made: `%s ...` ended with exit code %d%s"
            raise Failure(text % (shown, code, reason))

    def _host_python(self) -> str:
        return "python" + (self._version or "3")


# The inputs of a build -----------------------------------------------------------------------------------------------


FORMAT = 1  #: part of every key: raised when the same inputs give another environment than before

#: lines of a requirements file that depend on other files of the bundle
_INCLUDES = re.compile(r"^(?:-r|-c|--requirement|--constraint)[ =]*(?P<file>\S+)")
_LOCAL = re.compile(
    r"^(?:-e|--editable|-f|--find-links)(?![ =]*(?:https?:|git\+|gs:))|^(?:\.|/|file:)|@ *(?:file:|\.|/)"
    r"|^(?!https?:)[^@ ]+\.(?:whl|zip|tar\.gz)(?: |$)"
)
_LOCAL_CONDA = re.compile(r"^\s*-\s*(?:-r|-c|-e|\.|/|file:)", re.M)


def read_sources(kind: str, file: str, bundles: List[str]) -> Tuple[List[Tuple[str, str]], bool]:
    """Return the names and texts of file and includes, and whether they name wheels or folders. Raises Failure."""
    texts: Dict[str, str] = {}
    waiting, local = [os.path.normpath(file)], False
    while waiting:
        name = waiting.pop()
        if name in texts:
            continue
        path = os.path.join(find(name, bundles), name)
        with open(path, encoding="utf-8", errors="replace") as content:
            texts[name] = text = content.read()
        if kind == "conda":
            local = local or bool(_LOCAL_CONDA.search(text))
            continue
        for line in text.splitlines():
            line = re.sub(r"(^|\s)#.*", "", line).strip()
            include = _INCLUDES.match(line)
            if include and "://" not in include["file"]:
                path = os.path.join(os.path.dirname(name), include["file"])
                waiting.append(os.path.normpath(path))
            local = local or bool(_LOCAL.search(line))
    return sorted(texts.items()), local


def find(name: str, bundles: List[str]) -> str:
    """Return the last bundle that has the file, as its file is in the program's folder. Raises Failure."""
    if name.startswith(("..", "/")):
        raise Failure("the environment's %s is outside the bundle" % name)
    for bundle in reversed(bundles):
        if os.path.isfile(os.path.join(bundle, name)):
            return bundle
    raise Failure("the environment's %s is not in the bundle; is it tracked, or ignored?" % name)


def key_of(
    order: EnvironmentOrder, python: str, texts: List[Tuple[str, str]], bundles: List[str]
) -> str:
    """Return a key, equal for equal environments on hosts of one kind. `bundles` are bundles that the build reads."""
    names = [os.path.basename(b) for b in bundles]
    libc = platform.libc_ver()
    host = [platform.machine(), libc, os.path.expanduser("~")]
    inputs = [FORMAT, order.get("kind"), python, texts, names, host]
    return hashlib.sha256(json.dumps(inputs).encode()).hexdigest()[:32]


# The host's own Python -----------------------------------------------------------------------------------------------


#: packages that a host does without whose JAX computes on the CPU, such as an emulated host
FOR_TPU_ONLY = ("libtpu",)

_PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;\\]+)", re.M)

#: a script for the host's Python, which prints its version and the versions of the packages in its arguments
_SCRIPT = """
import json, sys
from importlib import metadata
versions = {}
for name in sys.argv[1:]:
    try:
        versions[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
print(json.dumps([list(sys.version_info[:2]), versions]))
"""


def on_cpu() -> bool:
    """Return whether JAX computes on the CPU of this host."""
    return "cpu" in os.environ.get("JAX_PLATFORMS", "")


def check_host_python(texts: List[Tuple[str, str]], python: str) -> str:
    """Return why this host's `python3` cannot replace an environment; empty: it can. It must be of version `python` or
    later, and have all packages that the lock files pin. No package is imported."""
    if not shutil.which("python3"):
        return "this host has no python3"
    pins = dict(pin for _, text in texts for pin in _PIN.findall(text))
    for name in FOR_TPU_ONLY if on_cpu() else ():
        pins.pop(name, None)
    output = output_of(["python3", "-c", _SCRIPT, *pins], 60)
    try:
        version, installed = json.loads(output or b"")
    except ValueError:
        return "this host's python3 does not run"
    version_text = ".".join(map(str, version))
    if version < [int(part) for part in python.split(".")]:
        return "this host has Python %s" % version_text
    different = [name for name in pins if installed.get(name) != pins[name]]
    if not different:
        return ""
    name = "jax" if "jax" in different else different[0]
    has = "%s %s" % (name, installed[name]) if name in installed else "no %s" % name
    count = " (%d packages differ)" % len(different) if len(different) > 1 else ""
    return "this host's Python %s has %s%s" % (version_text, has, count)
