"""Makes an environment with uv or conda. When it is made is decided in `environments.py`."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
from typing import Dict, List, Tuple

from tpujob.agent.attempt import HostAttempt
from tpujob.agent.base import Failure
from tpujob.agent.commands import run_bare
from tpujob.agent.folders import CACHES
from tpujob.agent.processes import output_of
from tpujob.agent.runtimes import BuiltEnvironment
from tpujob.agent.setup.bundles import lay_out
from tpujob.agent.setup.uv import get_uv, places
from tpujob.protocol import EnvironmentOrder

#: The programs that read conda's files, in order of preference, and how each makes an environment.
CONDA = {"micromamba": ["create", "-y"], "mamba": ["env", "create"], "conda": ["env", "create"]}


class Installer:
    """Makes what a plan's `environment` asks for, with the tool that it names."""

    def __init__(self, attempt: HostAttempt, asked: EnvironmentOrder, bundles: List[str]) -> None:
        self._kind, self._file = asked.get("kind", ""), asked.get("file", "")
        self._version = asked.get("python") or ""  #: empty: any
        #: packages that are left out, whatever the file names
        self._without = FOR_TPU_ONLY if asked.get("unless_installed") and on_cpu() else ()
        self._attempt, self._bundles = attempt, bundles

    def python(self) -> str:
        """The Python that it is made with: as asked, or what this host has; a part of the key. Raises Failure."""
        if self._kind == "conda" or (self._kind == "uv" and self._version):
            return " without ".join((self._version, *self._without))
        name = self._python_here()
        question = "import platform, sys; print(platform.python_version(), sys.executable)"
        found = (output_of([name, "-c", question], 30) or b"").decode("utf-8", "replace").strip()
        if not found:
            text = "%s is not on this host; `env: {uv: %s, python: ...}` gets any version"
            raise Failure(text % (name, self._file))
        return found

    def install(self, built: BuiltEnvironment, local: bool, hashed: bool) -> None:
        """Fill its folder. `local`: the file names other files of the bundle; `hashed`: it has a hash for each package.
        Raises Failure, Stopped."""
        if local:
            source = os.path.join(built.folder, "src")
            lay_out(self._bundles, source, self._attempt.aside)
        else:
            source = find(self._file, self._bundles)
        if self._kind == "conda":
            return self._with_conda(built, source)
        return self._with_uv(built, source, hashed)

    def _with_uv(self, built: BuiltEnvironment, source: str, hashed: bool) -> None:
        uv = get_uv(self._attempt)
        variables = {
            "UV_CACHE_DIR": os.path.join(CACHES, "uv"),
            # a Python that uv gets must travel with the environment
            "UV_PYTHON_INSTALL_DIR": os.path.join(built.folder, "python"),
            "UV_NO_PROGRESS": "1",
        }
        if self._without:
            variables["UV_EXCLUDE"] = os.path.join(built.folder, "without.txt")
            with open(variables["UV_EXCLUDE"], "w", encoding="ascii") as file:
                file.write("\n".join(self._without))
        python = self._version if self._kind == "uv" and self._version else self._python_here()
        # not for the project of some folder above, and with pip where set-up may call it
        words = ["--no-project", "--python", python, *(["--seed"] if self._kind == "pip" else [])]
        self._step([uv, "venv", built.prefix, *words], source, **variables)
        if not hashed:
            note = self._attempt.log.note
            note("environment: %s has no hashes: another build may get others" % self._file)
        words = ["--python", os.path.join(built.prefix, "bin", "python")]
        words += ["--require-hashes"] if hashed else []
        self._step([uv, "pip", "install", *words, "-r", self._file], source, **variables)

    def _with_conda(self, built: BuiltEnvironment, source: str) -> None:
        tool = next(filter(shutil.which, CONDA), "")
        if not tool:
            raise Failure(
                "neither micromamba, mamba nor conda is on this host; have a start-up script "
                "install micromamba, or write `env: {uv: requirements.txt}` instead"
            )
        words = [tool, *CONDA[tool], "-p", built.prefix, "-f", self._file]
        self._step(words, source, CONDA_ALWAYS_YES="true")

    def _step(self, argv: List[str], cwd: str, **variables: str) -> None:
        code = run_bare(self._attempt, argv, cwd, {**places(self._attempt.plan), **variables})
        if code != 0:
            shown = " ".join(os.path.basename(word) if "/" in word else word for word in argv[:4])
            text = (
                "the environment cannot be made: `%s ...` ended with exit code %d; its log says why"
            )
            raise Failure(text % (shown, code))

    def _python_here(self) -> str:
        return "python" + (self._version or "3")


# What an environment is made from ------------------------------------------------------------------------------------


FORMAT = 1  #: part of every key: raised when the same files make something else than before

#: what makes a line of a requirements file depend on other files of the bundle
_INCLUDES = re.compile(r"^(?:-r|-c|--requirement|--constraint)[ =]*(?P<file>\S+)")
_LOCAL = re.compile(
    r"^(?:-e|--editable|-f|--find-links)(?![ =]*(?:https?:|git\+|gs:))|^(?:\.|/|file:)|@ *(?:file:|\.|/)"
    r"|^(?!https?:)[^@ ]+\.(?:whl|zip|tar\.gz)(?: |$)"
)
_LOCAL_CONDA = re.compile(r"^\s*-\s*(?:-r|-c|-e|\.|/|file:)", re.M)


def read_sources(kind: str, file: str, bundles: List[str]) -> Tuple[List[Tuple[str, str]], bool]:
    """The file and what it includes, each with its name, and whether other files of the bundle matter too: wheels,
    folders. Raises Failure."""
    found: Dict[str, str] = {}
    waiting, local = [os.path.normpath(file)], False
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        path = os.path.join(find(name, bundles), name)
        with open(path, encoding="utf-8", errors="replace") as content:
            found[name] = text = content.read()
        if kind == "conda":
            local = local or bool(_LOCAL_CONDA.search(text))
            continue
        for line in text.splitlines():
            line = re.sub(r"(^|\s)#.*", "", line).strip()
            included = _INCLUDES.match(line)
            if included and "://" not in included["file"]:
                inside = os.path.join(os.path.dirname(name), included["file"])
                waiting.append(os.path.normpath(inside))
            local = local or bool(_LOCAL.search(line))
    return sorted(found.items()), local


def find(name: str, bundles: List[str]) -> str:
    """The bundle that has the file: the last of those that do, as that is what the program's folder holds. Raises
    Failure."""
    if name.startswith(("..", "/")):
        raise Failure("the environment's %s is outside the bundle" % name)
    for bundle in reversed(bundles):
        if os.path.isfile(os.path.join(bundle, name)):
            return bundle
    raise Failure("the environment's %s is not in the bundle; is it tracked, or ignored?" % name)


def key_of(
    asked: EnvironmentOrder, python: str, texts: List[Tuple[str, str]], bundles: List[str]
) -> str:
    """The same for the same environment on the same kind of host. `bundles`: those whose files it depends on."""
    names = [os.path.basename(b) for b in bundles]
    libc = platform.libc_ver()
    host = [platform.machine(), libc, os.path.expanduser("~")]
    made_from = [FORMAT, asked.get("kind"), python, texts, names, host]
    return hashlib.sha256(json.dumps(made_from).encode()).hexdigest()[:32]


# The host's own Python -----------------------------------------------------------------------------------------------


#: what only a TPU needs: a host whose JAX computes on its CPU, such as an emulated one, goes without
FOR_TPU_ONLY = ("libtpu",)

_PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;\\]+)", re.M)

#: asked of the host's own Python: which it is, and the versions of these packages
_QUESTION = """
import json, sys
from importlib import metadata
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
print(json.dumps([list(sys.version_info[:2]), found]))
"""


def on_cpu() -> bool:
    """Whether JAX computes on the CPU here."""
    return "cpu" in os.environ.get("JAX_PLATFORMS", "")


def shortcoming(texts: List[Tuple[str, str]], python: str) -> str:
    """Why this host's `python3` does not do for what these lock files pin and for `python`, the lowest version; empty:
    it does. Nothing is imported to find out."""
    if not shutil.which("python3"):
        return "this host has no python3"
    wanted = dict(pin for _, text in texts for pin in _PIN.findall(text))
    for name in FOR_TPU_ONLY if on_cpu() else ():
        wanted.pop(name, None)
    answer = output_of(["python3", "-c", _QUESTION, *wanted], 60)
    try:
        version, found = json.loads(answer or b"")
    except ValueError:
        return "this host's python3 does not run"
    own = ".".join(map(str, version))
    if version < [int(part) for part in python.split(".")]:
        return "this host has Python %s" % own
    other = [name for name in wanted if found.get(name) != wanted[name]]
    if not other:
        return ""
    name = "jax" if "jax" in other else other[0]
    has = "%s %s" % (name, found[name]) if name in found else "no %s" % name
    more = " (%d packages differ)" % len(other) if len(other) > 1 else ""
    return "this host's Python %s has %s%s" % (own, has, more)
