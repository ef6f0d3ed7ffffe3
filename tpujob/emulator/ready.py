"""How processes of the emulator find and call each other: ready files and JSON over HTTP. Standard library only."""

from __future__ import annotations

import http.client
import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit


def write(path: Path, content: dict[str, Any]) -> None:
    """Say that the process listens. Atomic, and readable by its owner only, because it holds a token."""
    temporary = path.with_suffix(".tmp")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(content, file)
    temporary.replace(path)


def read(path: Path) -> tuple[str, str]:
    """URL and token of a control interface. Raises FileNotFoundError, other OSErrors, ValueError."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return str(found["control"]), str(found["token"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a ready file") from error


def call(
    where: tuple[str, str], method: str, path: str, body: Any = None, *, timeout: float
) -> tuple[int, bytes]:
    """Status and body of the answer. Raises OSError, http.client.HTTPException."""
    url, token = where
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=timeout)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    text = None if body is None else json.dumps(body)
    try:
        connection.request(method, path, text, headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()
