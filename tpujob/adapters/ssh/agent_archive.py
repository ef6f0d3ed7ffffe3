"""The agent as it is sent to a host: one archive that `python3` runs, the same bytes every time."""

import io
import zipfile
from functools import cache
from pathlib import Path

import tpujob.agent
import tpujob.protocol
import workloads.contract

#: what is in it, with everything below; all of it standard library only
PACKAGES = (tpujob.agent, tpujob.protocol, workloads.contract)
_MAIN = """import sys

if sys.version_info < (3, 8):
    said = "the host has Python %d.%d, and the agent needs 3.8; take a later runtime_version" % sys.version_info[:2]
    sys.exit(print('{"ok": false, "cause": "SETUP", "error": "%s"}' % said))

from tpujob.agent.agent import main

sys.exit(main())
"""
_EPOCH = (1980, 1, 1, 0, 0, 0)  #: the archive's hash is its name on a host: no time may be in it


@cache
def packed() -> bytes:
    """The archive. Not compressed, as a Python without zlib runs it too."""
    content = {"__main__.py": _MAIN}
    for package in PACKAGES:
        folder, root = Path(package.__path__[0]), Path(*package.__name__.split("."))
        content[f"{root.parts[0]}/__init__.py"] = ""
        for path in sorted(folder.rglob("*.py")):
            content[(root / path.relative_to(folder)).as_posix()] = path.read_text()
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as file:
        for name, text in content.items():
            file.writestr(zipfile.ZipInfo(name, _EPOCH), text)
    return archive.getvalue()
