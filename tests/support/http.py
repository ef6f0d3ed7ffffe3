"""Plain requests, as clients of the web API send them."""

import asyncio
import http.client
import json
import socket
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message

from tests.support.waiting import LONG


def ask(
    url: str,
    method: str,
    path: str,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    timeout: float = LONG,
) -> tuple[int, dict[str, str], Any]:
    connection = connection_to(url, timeout)
    try:
        connection.request(method, path, body=body, headers=dict(headers or {}))
        response = connection.getresponse()
        text = response.read()
        sent = {name.lower(): value for name, value in response.getheaders()}
        is_json = sent.get("content-type", "").startswith("application/json")
        return response.status, sent, json.loads(text) if is_json and text else text
    finally:
        connection.close()


def call_app(
    app: ASGIApp, method: str, path: str, headers: Iterable[tuple[str, str]]
) -> tuple[int, Any]:
    """Return status and body, without a network; headers are sent unchanged."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        sent.append(message)

    raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]
    asyncio.run(
        app({"type": "http", "method": method, "path": path, "headers": raw}, receive, send)
    )
    return sent[0]["status"], json.loads(sent[1]["body"])


def connection_to(url: str, timeout: float = LONG) -> http.client.HTTPConnection:
    """Open a connection to a server at `http://` or `unix:`, without TLS."""
    if not url.startswith("unix:"):
        return http.client.HTTPConnection(urlsplit(url).netloc, timeout=timeout)
    connection = http.client.HTTPConnection("localhost", timeout=timeout)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(timeout)
    connection.sock.connect(url.removeprefix("unix:"))
    return connection
