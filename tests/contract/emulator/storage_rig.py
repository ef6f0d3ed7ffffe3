"""A server of the emulated Cloud Storage for tests, the official client, and raw requests."""

import http.client
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage

from tests.support.waiting import LONG, until
from tpujob.emulator.storage import StorageServer

BUCKET = "test-bucket"


@contextmanager
def running(state: Path, *options: Any) -> Iterator[StorageServer]:
    """`given`: the faults of the server, and what counts its operations."""
    server = StorageServer(state, 0, *options)
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def official(url: str) -> Iterator[storage.Client]:
    """Google's client, and a bucket to work in."""
    client = storage.Client(
        "test-project", credentials=AnonymousCredentials(), client_options={"api_endpoint": url}
    )
    client._http.hooks["response"].append(_read_refusal)
    if not client.bucket(BUCKET).exists():
        client.create_bucket(BUCKET, location="us-central2")
    try:
        yield client
    finally:
        client.close()


def _read_refusal(response: requests.Response, **_: Any) -> None:
    """Google's client drops the refusal of a download that it repeats unread, and so leaves its socket open."""
    if not response.ok:
        _ = response.content


def ask(
    url: str, method: str, path: str, body: bytes | None = None, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    """One request with nothing between the test and the wire."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=LONG)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, named)
        answer = connection.getresponse()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def send_part(url: str, head: str, body: bytes, arrived: Callable[[], bool] = lambda: True) -> None:
    """Send a request that says more than it holds, and cut the connection once that has arrived: the server asks the
    kernel whose the connection is, and one that is closed already is nobody's."""
    place = urlsplit(url)
    with socket.create_connection((place.hostname, place.port), timeout=LONG) as wire:
        wire.sendall(head.replace("\n", "\r\n").encode() + b"\r\n\r\n" + body)
        until(arrived, "what was sent before the cut arrives")


def error_of(body: bytes) -> Any:
    return json.loads(body)["error"]


def files_below(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())
