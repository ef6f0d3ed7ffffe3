"""What an environment is made from: the requirements file and what it names, and the key over all of it."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from typing import Dict, List, Tuple

from tpujob.agent.base import Failure
from tpujob.protocol import EnvironmentOrder

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
        raise Failure("the environment's %s lies outside the bundle" % name)
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
