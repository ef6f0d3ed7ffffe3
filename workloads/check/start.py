"""The start of a child process, in any Python with JAX and libtpu: `PYTHON start.py ORDER FINDING PARENT CPU_TIMEOUT`.

It is run as a file. Here `workloads` and `tpujob` are importable from where they lie, and no other folder or package
beside them is: the packages of the program that is checked are its own.
"""

import json
import sys
from pathlib import Path
from types import ModuleType

WORKLOADS = Path(__file__).resolve().parents[1]


def importable(folder: str) -> None:
    """Make `workloads` and `tpujob.contract` importable, and what lies in `folder`, where the program is."""
    sys.path[:1] = [folder] if folder else []  # in place of this file's folder
    own, tpujob = Path(folder, "workloads"), _tpujob()
    for name, places in (("workloads", [WORKLOADS, own]), ("tpujob", [tpujob])):
        package = ModuleType(name)
        package.__path__ = [str(place) for place in places if place.is_dir()]
        sys.modules[name] = package
    sys.path.append(str(tpujob / "contract" / "importable"))  # `tpujob_events`, as on every host


def _tpujob() -> Path:
    """Return the folder of the package: beside this one in a checkout and on a host, above it where it is installed."""
    beside = WORKLOADS.parent / "tpujob"
    return beside if beside.is_dir() else WORKLOADS.parents[1]


if __name__ == "__main__":
    importable(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["folder"])
    from workloads.check import child

    child.run(*sys.argv[1:])
