"""A small HTTP server that speaks as much of Google Secret Manager's REST API as the key store uses, as its reference
pages have it: numbered versions, states, `latest`, ttl, labels, errors as `google.rpc.Status`.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

HOST = "secretmanager.googleapis.com"
NUMBER = "471147114711"  #: the service calls a project so, whatever the caller does
_PATH = re.compile(
    rf"/{HOST}/v1/projects/(?P<project>[^/]+)/secrets"
    r"(/(?P<secret>[^/:]+)(/versions/(?P<version>[^/:]+))?)?(:(?P<verb>\w+))?"
)


@dataclass
class Secret:
    body: dict[str, Any]
    #: their data in base64; None: destroyed
    versions: list[str | None] = field(default_factory=list[str | None])


class SecretServer:
    """Up from the constructor to `stop`. `before`: called with verb and path of each request, without the lock; it may
    raise Refusal."""

    def __init__(self) -> None:
        self.secrets: dict[str, Secret] = {}
        self.asked: list[str] = []
        self.before: Callable[[str, str], None] = lambda *_: None
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = False
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, method: str, url: str, body: dict[str, Any]) -> dict[str, Any]:
        parts = urlsplit(url)
        self.before(method, parts.path)
        found = _PATH.fullmatch(parts.path)
        if found is None:
            raise Refusal(404, "NOT_FOUND", f"no such path {parts.path}")
        with self._lock:
            self.asked.append(f"{method} {parts.path.partition('/secrets')[2]}")
            return self._do(method, found, parse_qs(parts.query), body)

    def _do(
        self, method: str, found: re.Match[str], query: dict[str, list[str]], body: dict[str, Any]
    ) -> dict[str, Any]:
        id, verb = found["secret"], found["verb"]
        name = f"projects/{NUMBER}/secrets/{id}"
        match method, verb:
            case "POST", None if id is None:
                return self._create(query["secretId"][0], body)
            case "GET", None if id is None:
                wanted = dict(
                    term.removeprefix("labels.").split("=")
                    for term in query.get("filter", [""])[0].split(" AND ")
                    if term
                )
                return {
                    "secrets": [
                        {"name": f"projects/{NUMBER}/secrets/{i}", **secret.body}
                        for i, secret in self.secrets.items()
                        if wanted.items() <= secret.body.get("labels", {}).items()
                    ]
                }
        secret = self.secrets.get(id)
        if secret is None:
            raise Refusal(404, "NOT_FOUND", f"Secret [{name}] not found.")
        match method, verb:
            case "GET", None:
                return {"name": name, **secret.body}
            case "PATCH", None:
                wanted = query["updateMask"][0]
                secret.body[wanted] = body[wanted]
                return {"name": name, **secret.body}
            case "DELETE", None:
                del self.secrets[id]
                return {}
            case "POST", "addVersion":
                secret.versions.append(body["payload"]["data"])
                return {"name": f"{name}/versions/{len(secret.versions)}", "state": "ENABLED"}
        number = len(secret.versions) if found["version"] == "latest" else int(found["version"])
        where = f"{name}/versions/{number}"
        if not 1 <= number <= len(secret.versions):
            raise Refusal(404, "NOT_FOUND", f"Secret Version [{where}] not found.")
        if verb == "destroy":
            secret.versions[number - 1] = None
            return {"name": where, "state": "DESTROYED"}
        data = secret.versions[number - 1]
        if data is None:
            text = f"Secret Version [{where}] is in DESTROYED state."
            raise Refusal(400, "FAILED_PRECONDITION", text)
        return {"name": where, "payload": {"data": data}}

    def _create(self, id: str, body: dict[str, Any]) -> dict[str, Any]:
        name = f"projects/{NUMBER}/secrets/{id}"
        if id in self.secrets:
            raise Refusal(409, "ALREADY_EXISTS", f"Secret [{name}] already exists.")
        labels = body.get("labels", {}).items()
        if any(not re.fullmatch("[a-z0-9_-]{1,63}", word) for pair in labels for word in pair):
            raise Refusal(400, "INVALID_ARGUMENT", "a label has a wrong character")
        if "replication" not in body or not re.fullmatch(r"[A-Za-z0-9_-]{1,255}", id):
            raise Refusal(400, "INVALID_ARGUMENT", "replication and a good secretId are required")
        self.secrets[id] = Secret(dict(body))
        return {"name": name, **body}


class Refusal(Exception):
    """An answer that is none."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": {"code": status, "message": message, "status": code}}


def _handler(server: SecretServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _any(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            try:
                status, answer = 200, server.answer(self.command, self.path, body)
            except Refusal as refusal:
                status, answer = refusal.status, refusal.body
            text = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PATCH = do_DELETE = _any  # noqa: N815 - http.server's names

        def log_message(self, *_: object) -> None: ...

    return Handler
