"""The environment that set-up and the program run in: built once on a host, by what is in it, and kept.

It lies in `~/.tpujob/envs/<key>`: the key is a hash over everything that it is made from, and the marker `done.json` is
written last, so that half a build is never taken for a whole one. It is built where it stays, as scripts in it hold
absolute paths; for the same reason the home folder is part of the key. A finished one is kept in the bucket too, for
other hosts and later slices. Whoever may write there may already choose what jobs of that bucket run.

Images are in `containers.py`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tarfile
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from tpujob.agent.base import ROOT, Failure, Record, read_json, take_lock, write_json
from tpujob.agent.processes import output_of, send
from tpujob.agent.sources import FORMAT, find, key_of, read_sources
from tpujob.agent.storage import Storage, StorageError

ENVS = os.path.join(ROOT, "envs")
CACHES = os.path.join(ROOT, "cache")  #: of uv and pip, below it
TOOLS = os.path.join(ROOT, "tools")
PATIENCE = 3600.0  #: seconds for one step
MAX_KEPT = 8 * 1024**3  #: bytes of an environment that is kept in the bucket
ROOM = 4 * 1024**3  #: bytes of the disk that stay free when it is packed for that
MARKER = "done.json"


#: A command, the folder that it is run in, more variables -> its exit code.
Run = Callable[[List[str], str, Dict[str, str]], int]


class Bare:
    """Commands run on the host as it is. What they run in instead says the same, in its own way."""

    key = ""  #: of what a set-up finds; part of where it is kept

    def dress(self, environment: Dict[str, str]) -> None:
        """Change the variables of a command so that it finds this."""

    def command(self, argv: List[str], own: Dict[str, str], cwd: str) -> List[str]:  # noqa: ARG002
        """The words that run a command in it. `own`: those of the variables that are not the host's."""
        if argv[0] == "bash" and not shutil.which("bash", path=own.get("PATH")):
            return ["sh", *argv[1:]]
        return argv

    send = staticmethod(send)

    def clear(self) -> None:
        """Nothing of a command that has ended is left, besides its processes."""


class Built(Bare):
    """A folder with `bin/` in it."""

    def __init__(self, key: str, kind: str) -> None:
        self.key, self._kind = key, kind
        self.prefix = os.path.join(ENVS, key, "prefix")

    def dress(self, environment: Dict[str, str]) -> None:
        path = [os.path.join(self.prefix, "bin")]
        if self._kind == "uv" and not shutil.which("uv", path=environment.get("PATH")):
            path.append(os.path.join(TOOLS, "uv", "bin"))  # set-up may want it
        path.append(environment.get("PATH", os.defpath))
        environment["PATH"] = os.pathsep.join(path)
        environment["PYTHONNOUSERSITE"] = "1"
        environment.pop("PYTHONHOME", None)
        environment["CONDA_PREFIX" if self._kind == "conda" else "VIRTUAL_ENV"] = self.prefix


class Builder:
    """Makes the environment that a plan asks for."""

    def __init__(
        self,
        plan: Record,
        bundles: List[str],
        storage: Storage,
        note: Callable[[str], None],
        run: Run,
        aside: Callable[[Callable[[], Any]], Any],
    ) -> None:
        """`run` follows a command to its end, its output in the log; `aside` does what it is given while a word to
        stop is heard; both raise Stopped then."""
        self._plan, self._asked, self._bundles = plan, plan["environment"], bundles
        self._storage, self._note, self._run, self._aside = storage, note, run, aside
        self._kind, self._file = str(self._asked["kind"]), str(self._asked["file"])
        self.keeping: Optional[threading.Thread] = None  #: puts what was built into the bucket

    def make(self) -> Built:
        """The environment, there and whole afterwards. Raises Failure."""
        texts, local = read_sources(self._kind, self._file, self._bundles)
        self._hashed = any("--hash=" in text for _, text in texts)
        python = self._python()
        key = key_of(self._asked, python, texts, self._bundles if local else [])
        self._folder = os.path.join(ENVS, key)
        built = Built(key, self._kind)
        lock = self._lock()
        try:
            if not self._is_whole(built):
                self._get(built, local)
        finally:
            os.close(lock)
        return built

    def _lock(self) -> int:
        """Another attempt may be building the same."""
        os.makedirs(ENVS, mode=0o700, exist_ok=True)
        path, told = self._folder + ".lock", False
        while True:
            lock: Optional[int] = self._aside(lambda: take_lock(path, 1))
            if lock is not None:
                return lock
            if not told:
                self._note("environment: another attempt builds it on this host; waiting")
            told = True

    def _is_whole(self, built: Built) -> bool:
        if not read_json(os.path.join(self._folder, MARKER)):
            return False
        if not works(built.prefix):
            self._note("environment: its Python does not run any more: it is made again")
            return False
        self._note("environment: %s was made on this host before" % built.key)
        return True

    def _get(self, built: Built, local: bool) -> None:
        began = time.monotonic()
        where = "%s/env/%s.tar" % (self._plan["shared"], built.key)
        if self._aside(lambda: self._fetch(where, built)):
            how = "fetched from the bucket"
        else:
            self._fresh()
            steps = {"uv": self._with_uv, "pip": self._with_pip, "conda": self._with_conda}
            steps[self._kind](built.prefix, local)
            write_json(os.path.join(self._folder, MARKER), {"v": FORMAT, "key": built.key})
            how = "built with %s" % self._kind
            if self._plan["host"] == 0:
                self._keep(where)
        took = time.monotonic() - began
        self._note("environment: %s was %s in %.1f s" % (built.key, how, took))

    def _fresh(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        os.makedirs(self._folder)

    # In the bucket

    def _fetch(self, where: str, built: Built) -> bool:
        """Whether the bucket had it."""
        self._fresh()
        archive = self._folder + ".tar"
        try:
            with open(archive, "wb") as file:
                self._storage.read(where, file.write)
            with tarfile.open(archive) as tar:
                trusting: Record = (
                    {"filter": "fully_trusted"} if hasattr(tarfile, "data_filter") else {}
                )
                tar.extractall(self._folder, **trusting)  # noqa: S202
        except StorageError as error:
            if error.status != 404:
                self._note("environment: %s cannot be fetched: %s" % (where, error))
            return False
        except (OSError, tarfile.TarError, EOFError) as error:
            self._note("environment: %s is no good: %s" % (where, error))
            return False
        finally:
            _remove(archive)
        if read_json(os.path.join(self._folder, MARKER)) and works(built.prefix):
            return True
        self._note("environment: %s does not run on this host" % where)
        return False

    def _keep(self, where: str) -> None:
        """Pack it before anybody changes it, and put it into the bucket beside what follows."""
        archive = self._folder + ".tar"
        try:
            size = self._aside(lambda: size_of(self._folder))
            free = shutil.disk_usage(ENVS).free
            if size > MAX_KEPT or size > free - ROOM:
                gib = size / 1024**3
                return self._note("environment: %.1f GiB are too much for the bucket's cache" % gib)
            self._aside(lambda: pack(self._folder, archive))
        except (OSError, tarfile.TarError) as error:
            _remove(archive)
            return self._note("environment: it is not kept in the bucket: %s" % error)

        def put() -> None:
            try:
                self._storage.put_new(where, archive)
            except (OSError, StorageError) as error:
                self._note("environment: it is not kept in the bucket: %s" % error)
            finally:
                _remove(archive)

        self.keeping = threading.Thread(target=put, name="keep", daemon=True)
        self.keeping.start()
        return None

    # Steps

    def _python(self) -> str:
        """Which Python it is made with: as asked, or what this host has."""
        asked = str(self._asked.get("python") or "")
        if self._kind == "conda" or (self._kind == "uv" and asked):
            return asked
        name = "python%s" % asked if asked else "python3"
        question = "import platform, sys; print(platform.python_version(), sys.executable)"
        found = (output_of([name, "-c", question], 30) or b"").decode("utf-8", "replace").strip()
        if not found:
            raise Failure(
                "%s is not on this host; `env: {uv: %s, python: ...}` gets any version"
                % (name, self._file)
            )
        return found

    def _step(self, argv: List[str], cwd: str, **variables: str) -> None:
        code = self._run(argv, cwd, variables)
        if code != 0:
            shown = " ".join(os.path.basename(word) if "/" in word else word for word in argv[:4])
            raise Failure(
                "the environment cannot be made: `%s ...` ended with exit code %d; its log says why"
                % (shown, code)
            )

    def _source(self, local: bool) -> str:
        """The folder from which the file is read. What names files of the bundle gets a copy that stays as it is."""
        if not local:
            return find(self._file, self._bundles)
        folder = os.path.join(self._folder, "src")
        for bundle in self._bundles:
            self._aside(
                lambda b=bundle: shutil.copytree(b, folder, symlinks=True, dirs_exist_ok=True)
            )
        return folder

    def _hashes(self) -> List[str]:
        if self._hashed:
            return ["--require-hashes"]
        self._note("environment: %s has no hashes: another build may get others" % self._file)
        return []

    def _with_pip(self, prefix: str, local: bool) -> None:
        """With `-I`, as the folder that it runs in is the user's, and its modules are not for pip."""
        source, asked = self._source(local), self._asked.get("python")
        self._step(["python%s" % asked if asked else "python3", "-I", "-m", "venv", prefix], source)
        install = [os.path.join(prefix, "bin", "python"), "-I", "-m", "pip", "install"]
        quiet = ["--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
        cache = os.path.join(CACHES, "pip")
        self._step(
            [*install, *quiet, *self._hashes(), "-r", self._file], source, PIP_CACHE_DIR=cache
        )

    def _with_uv(self, prefix: str, local: bool) -> None:
        source, uv = self._source(local), self._uv()
        variables = {
            "UV_CACHE_DIR": os.path.join(CACHES, "uv"),
            # a Python that uv gets must travel with the environment
            "UV_PYTHON_INSTALL_DIR": os.path.join(self._folder, "python"),
            "UV_NO_PROGRESS": "1",
        }
        asked = self._asked.get("python")
        wanted = ["--python", str(asked)] if asked else []
        self._step([uv, "venv", *wanted, prefix], source, **variables)
        into = ["--python", os.path.join(prefix, "bin", "python")]
        self._step(
            [uv, "pip", "install", *into, *self._hashes(), "-r", self._file], source, **variables
        )

    def _uv(self) -> str:
        """On this host afterwards."""
        own = os.path.join(TOOLS, "uv", "bin", "uv")
        found = shutil.which("uv") or shutil.which(own)
        if not found:
            folder = os.path.join(TOOLS, "uv")
            # into a folder: that needs neither venv nor the right to write to the host's Python
            get = ["python3", "-m", "pip", "install", "--disable-pip-version-check", "--upgrade"]
            self._step([*get, "--target", folder, "uv"], ROOT)
        return found or own

    def _with_conda(self, prefix: str, local: bool) -> None:
        tool = next((name for name, _ in CONDA if shutil.which(name)), "")
        if not tool:
            raise Failure(
                "neither micromamba, mamba nor conda is on this host; have a start-up script "
                "install micromamba, or write `env: {uv: requirements.txt}` instead"
            )
        words = [*dict(CONDA)[tool], "-p", prefix, "-f", self._file]
        self._step([tool, *words], self._source(local), CONDA_ALWAYS_YES="true")


#: The programs that know conda's files, in order of preference, and how each makes an environment.
CONDA: Tuple[Tuple[str, List[str]], ...] = (
    ("micromamba", ["create", "-y"]),
    ("mamba", ["env", "create"]),
    ("conda", ["env", "create"]),
)


# Helpers -------------------------------------------------------------------------------------------------------------


def works(prefix: str) -> bool:
    """Whether its Python runs; an environment without one is taken on trust."""
    python = os.path.join(prefix, "bin", "python")
    if not os.path.lexists(python):
        return os.path.isdir(prefix)
    return output_of([python, "-c", "print(1)"], 60) == b"1\n"


def size_of(folder: str) -> int:
    return sum(
        os.lstat(os.path.join(root, name)).st_size
        for root, _, files in os.walk(folder)
        for name in files
    )


def pack(folder: str, archive: str) -> None:
    """Everything, the marker last: an archive that was cut off has none."""
    with tarfile.open(archive, "w") as tar:
        for name in sorted(os.listdir(folder), key=lambda name: (name == MARKER, name)):
            tar.add(os.path.join(folder, name), name)


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
