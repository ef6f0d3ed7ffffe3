"""How processes of the emulator find and call each other: ready files, and JSON over HTTP on Unix sockets. Standard
library only."""

import http.client
import json
import os
import socket
from pathlib import Path
from typing import Any


def write(path: Path, content: dict[str, Any]) -> None:
    """Say that the process listens. Atomic, and readable by its owner only."""
    temporary = path.with_suffix(".tmp")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(content, file)
    temporary.replace(path)


def read(path: Path) -> Path:
    """The socket of a control interface. Raises FileNotFoundError, other OSErrors, ValueError."""
    try:
        return Path(json.loads(path.read_text(encoding="utf-8"))["control"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a ready file") from error


def call(
    where: Path, method: str, path: str, body: Any = None, *, timeout: float
) -> tuple[int, bytes]:
    """Status and body of the answer. Raises OSError, http.client.HTTPException."""
    connection = _Connection(where, timeout)
    text = None if body is None else json.dumps(body)
    try:
        connection.request(method, path, text, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


class _Connection(http.client.HTTPConnection):
    def __init__(self, where: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._where = where

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._where))
