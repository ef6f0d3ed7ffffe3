"""The agent as it travels to a host: its package in one archive that `python3` runs, the same bytes every time."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import tpujob.agent

FOLDER = Path(tpujob.agent.__file__).parent
_MAIN = "import sys\n\nfrom tpujob.agent.agent import main\n\nsys.exit(main())\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)  #: the archive's hash is its name on a host: no time may be in it


def packed() -> bytes:
    """The archive. Not compressed, as a Python without zlib runs it too."""
    files = {
        f"tpujob/agent/{p.relative_to(FOLDER).as_posix()}": p.read_text()
        for p in sorted(FOLDER.rglob("*.py"))
    }
    content = {"__main__.py": _MAIN, "tpujob/__init__.py": "", **files}
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as file:
        for name, text in content.items():
            file.writestr(zipfile.ZipInfo(name, _EPOCH), text)
    return archive.getvalue()
