"""The folders `workloads` and `configs` that come with tpujob: bundled programs and their job files.

An installed package has them in `tpujob/bundled/`; a checkout beside `tpujob/`. `workloads` is found by its place and
never by its name: a folder of the user may have the same name.
"""

import importlib
import sys
from functools import cache
from pathlib import Path
from threading import Lock
from types import ModuleType

_PACKAGE = Path(__file__).resolve().parents[1]
ROOT = _PACKAGE / "bundled" if (_PACKAGE / "bundled").exists() else _PACKAGE.parent
PROGRAMS, CONFIGS = ROOT / "workloads", ROOT / "configs"

_importing = Lock()


@cache
def load(*names: str) -> list[ModuleType]:
    """Import modules of the bundled programs. What this process imports as `workloads` is the same afterwards."""
    with _importing:
        others = _forget()
        try:
            package = ModuleType("workloads")
            package.__path__ = [str(PROGRAMS)]
            sys.modules["workloads"] = package
            return [importlib.import_module(f"workloads.{name}") for name in names]
        finally:
            _forget()
            sys.modules.update(others)


def _forget() -> dict[str, ModuleType]:
    names = [name for name in sys.modules if name.partition(".")[0] == "workloads"]
    return {name: sys.modules.pop(name) for name in names}
