"""Runtimes: commands run on the plain host or in a built environment; `setup/containers.py` has containers."""

from __future__ import annotations

import os
import shutil
from typing import Dict, List

from tpujob.agent.base import read_json, write_json
from tpujob.agent.folders import ENVS, TOOLS
from tpujob.agent.processes import output_of, send

MARKER = "done.json"  #: the file of an environment that is written last


class Runtime:
    """The plain host. Subclasses run commands elsewhere."""

    key = ""  #: equal for equal environments; part of the path of a kept set-up

    def set_variables(self, environment: Dict[str, str]) -> None:
        """Change the variables of a command so that it runs in this runtime."""

    def command(self, argv: List[str], env: Dict[str, str], cwd: str) -> List[str]:  # noqa: ARG002
        """Return the command line that runs `argv` in this runtime, with variables `env` besides the host's."""
        if argv[0] == "bash" and not shutil.which("bash", path=env.get("PATH")):
            # a plain shell may not know pipefail
            return ["sh", *(w for w in argv[1:-1] if w not in ("-o", "pipefail")), argv[-1]]
        return argv

    send = staticmethod(send)

    def clear(self) -> None:
        """Delete the leftovers of a command that has ended, except processes."""


class BuiltEnvironment(Runtime):
    """A built environment: a folder with `prefix/bin`."""

    def __init__(self, key: str, kind: str) -> None:
        self.key, self.kind = key, kind
        self.folder = os.path.join(ENVS, key)  #: the folder that the bucket keeps, marker included
        self.prefix = os.path.join(self.folder, "prefix")

    def set_variables(self, environment: Dict[str, str]) -> None:
        path = [os.path.join(self.prefix, "bin")]
        if self.kind == "uv" and not shutil.which("uv", path=environment.get("PATH")):
            path.append(os.path.join(TOOLS, "uv", "bin"))  # set-up may call uv
        path.append(environment.get("PATH", os.defpath))
        environment["PATH"] = os.pathsep.join(path)
        environment["PYTHONNOUSERSITE"] = "1"
        environment.pop("PYTHONHOME", None)
        environment["CONDA_PREFIX" if self.kind == "conda" else "VIRTUAL_ENV"] = self.prefix

    def mark(self, version: int) -> None:
        """Mark the environment as complete."""
        write_json(os.path.join(self.folder, MARKER), {"v": version, "key": self.key})

    def is_marked(self) -> bool:
        return bool(read_json(os.path.join(self.folder, MARKER)))

    def problem(self) -> str:
        """Return why the environment's Python does not run; empty: it runs, or the environment has none."""
        python = os.path.join(self.prefix, "bin", "python")
        if not os.path.lexists(python):
            return "" if os.path.isdir(self.prefix) else "its files are missing"
        # the shell adds the errors of loader and interpreter to the output
        output = output_of(["sh", "-c", 'exec "$0" -c "print(1)" 2>&1', python], 60) or b"no answer"
        answer = output.decode("utf-8", "replace").splitlines()[-1]
        return "" if answer == "1" else answer[:200] or "no answer"
