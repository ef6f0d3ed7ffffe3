"""What commands run in: the host as it is, or an environment. Images are in `setup/containers.py`."""

from __future__ import annotations

import os
import shutil
from typing import Dict, List

from tpujob.agent.base import read_json, write_json
from tpujob.agent.folders import ENVS, TOOLS
from tpujob.agent.processes import output_of, send

MARKER = "done.json"  #: the file of an environment that is written last


class Runtime:
    """The host as it is. Subclasses run commands elsewhere."""

    key = ""  #: the same for the same environment; part of where the result of a set-up is kept

    def set_variables(self, environment: Dict[str, str]) -> None:
        """Change the variables of a command so that it runs in this."""

    def command(self, argv: List[str], own: Dict[str, str], cwd: str) -> List[str]:  # noqa: ARG002
        """The words that run a command in it. `own`: its variables that are not the host's."""
        if argv[0] == "bash" and not shutil.which("bash", path=own.get("PATH")):
            return ["sh", *argv[1:]]
        return argv

    send = staticmethod(send)

    def clear(self) -> None:
        """Remove what a command that has ended left behind; its processes aside."""


class BuiltEnvironment(Runtime):
    """An environment: a folder with `bin/` in it."""

    def __init__(self, key: str, kind: str) -> None:
        self.key, self.kind = key, kind
        self.folder = os.path.join(ENVS, key)  #: what is kept and shipped; the marker is in it
        self.prefix = os.path.join(self.folder, "prefix")

    def set_variables(self, environment: Dict[str, str]) -> None:
        path = [os.path.join(self.prefix, "bin")]
        if self.kind == "uv" and not shutil.which("uv", path=environment.get("PATH")):
            path.append(os.path.join(TOOLS, "uv", "bin"))  # set-up may want it
        path.append(environment.get("PATH", os.defpath))
        environment["PATH"] = os.pathsep.join(path)
        environment["PYTHONNOUSERSITE"] = "1"
        environment.pop("PYTHONHOME", None)
        environment["CONDA_PREFIX" if self.kind == "conda" else "VIRTUAL_ENV"] = self.prefix

    def mark(self, version: int) -> None:
        """Note that it is whole."""
        write_json(os.path.join(self.folder, MARKER), {"v": version, "key": self.key})

    def is_marked(self) -> bool:
        return bool(read_json(os.path.join(self.folder, MARKER)))

    def works(self) -> bool:
        """Whether its Python runs; one without a Python is trusted."""
        python = os.path.join(self.prefix, "bin", "python")
        if not os.path.lexists(python):
            return os.path.isdir(self.prefix)
        return output_of([python, "-c", "print(1)"], 60) == b"1\n"
