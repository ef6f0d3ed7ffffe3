"""What commands run in: the host as it is, or a folder that was made for them. Images are in `containers.py`."""

from __future__ import annotations

import os
import shutil
from typing import Dict, List

from tpujob.agent.base import ROOT, read_json, write_json
from tpujob.agent.processes import output_of, send

ENVS = os.path.join(ROOT, "envs")
TOOLS = os.path.join(ROOT, "tools")
MARKER = "done.json"  #: the file of an environment that is written last


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
    """An environment: a folder with `bin/` in it."""

    def __init__(self, key: str, kind: str) -> None:
        self.key, self.kind = key, kind
        self.folder = os.path.join(ENVS, key)  #: what is kept and carried; the marker is in it
        self.prefix = os.path.join(self.folder, "prefix")

    def dress(self, environment: Dict[str, str]) -> None:
        path = [os.path.join(self.prefix, "bin")]
        if self.kind == "uv" and not shutil.which("uv", path=environment.get("PATH")):
            path.append(os.path.join(TOOLS, "uv", "bin"))  # set-up may want it
        path.append(environment.get("PATH", os.defpath))
        environment["PATH"] = os.pathsep.join(path)
        environment["PYTHONNOUSERSITE"] = "1"
        environment.pop("PYTHONHOME", None)
        environment["CONDA_PREFIX" if self.kind == "conda" else "VIRTUAL_ENV"] = self.prefix

    def mark(self, version: int) -> None:
        """It is whole."""
        write_json(os.path.join(self.folder, MARKER), {"v": version, "key": self.key})

    def is_marked(self) -> bool:
        return bool(read_json(os.path.join(self.folder, MARKER)))

    def works(self) -> bool:
        """Whether its Python runs; an environment without one is taken on trust."""
        python = os.path.join(self.prefix, "bin", "python")
        if not os.path.lexists(python):
            return os.path.isdir(self.prefix)
        return output_of([python, "-c", "print(1)"], 60) == b"1\n"
