"""What the clients of the web API send: plain requests, and the token of Cloud Scheduler."""

from __future__ import annotations

import base64
import http.client
import json
import socket
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from tpujob.web.scheduler import REMOVED


def ask(
    url: str,
    method: str,
    path: str,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    timeout: float = 10,
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


def connection_to(url: str, timeout: float = 10) -> http.client.HTTPConnection:
    """To a server at `http://` or `unix:`, in the clear."""
    if not url.startswith("unix:"):
        return http.client.HTTPConnection(urlsplit(url).netloc, timeout=timeout)
    connection = http.client.HTTPConnection("localhost", timeout=timeout)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(timeout)
    connection.sock.connect(url.removeprefix("unix:"))
    return connection


URL = "https://tpujob-123456789.europe-west4.run.app"
ACCOUNT = "tpujob-tick@my-lab.iam.gserviceaccount.com"


def claims(**changed: Any) -> dict[str, Any]:
    """What Google writes into the token that Cloud Scheduler sends."""
    now = time.time()
    said = {
        "iss": "https://accounts.google.com",
        "aud": URL,
        "email": ACCOUNT,
        "email_verified": True,
        "iat": now - 1,
        "exp": now + 3600,
    }
    return said | changed


def token(said: Any, signature: str = REMOVED) -> str:
    def part(value: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    return f"{part({'alg': 'RS256', 'typ': 'JWT'})}.{part(said)}.{signature}"
