"""How a process of the emulator says that it is up: a file with its addresses, put in place once it listens."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def write(path: Path, content: dict[str, Any]) -> None:
    """A reader sees the whole file or none. It holds a token, so it is for the owner's eyes."""
    temporary = path.with_suffix(".tmp")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(content, file)
    temporary.replace(path)
