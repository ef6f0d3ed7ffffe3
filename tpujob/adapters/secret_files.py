"""Secrets in files of this machine: a folder (0700) for each owner, in it a file (0600) for each secret."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

from tpujob.config import files
from tpujob.errors import NotFound, StoreError
from tpujob.ports import KeptSecret


class SecretFiles:
    """Implements `ports.Secrets`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def put(self, owner: str, name: str, value: str) -> None:
        for folder in (self._root, self._folder(owner)):
            files.private_folder(folder)
        files.put(self._folder(owner) / name, json.dumps({"value": value}))

    def get(self, owner: str, name: str) -> str:
        path = self._folder(owner) / name
        try:
            return json.loads(path.read_text(encoding="utf-8"))["value"]
        except FileNotFoundError as error:
            raise NotFound(f"no secret {name} is set") from error
        except (OSError, ValueError, LookupError, TypeError) as error:
            # without the error's text, which may contain the value
            raise StoreError(f"{path} cannot be read: {type(error).__name__}") from None

    def list(self, owner: str) -> list[KeptSecret]:
        try:
            paths = [p for p in self._folder(owner).iterdir() if not p.name.startswith(".")]
        except FileNotFoundError:
            return []
        return [KeptSecret(path.name, path.stat().st_mtime) for path in sorted(paths)]

    def remove(self, owner: str, name: str) -> None:
        (self._folder(owner) / name).unlink(missing_ok=True)

    def _folder(self, owner: str) -> Path:
        return self._root / (quote(owner, safe="") or "nobody")
