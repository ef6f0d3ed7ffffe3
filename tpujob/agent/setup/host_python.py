"""Whether the host's own Python has what a lock file names, so that no environment need be made."""

from __future__ import annotations

import json
import os
import re
import shutil
from typing import List, Tuple

from tpujob.agent.processes import output_of

#: what only a TPU needs: a host whose JAX computes on its CPU, such as an emulated one, goes without
FOR_TPU_ONLY = ("libtpu",)

_PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;\\]+)", re.M)

#: asked of the host's own Python, which may be any 3: which it is, and the versions of these packages
_QUESTION = """
import json, sys
try:
    from importlib import metadata
except ImportError:
    metadata = None
found = {}
for name in sys.argv[1:] if metadata else ():
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
    said = output_of(["python3", "-c", _QUESTION, *wanted], 60)
    try:
        version, found = json.loads(said or b"")
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
