"""A small HTTP server that speaks as much of Google Secret Manager's REST API as the key store uses, as its reference
pages have it: numbered versions, states, `latest`, ttl, labels, errors as `google.rpc.Status`.
"""

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.support.google_server import Asked, GoogleServer, status

HOST = "secretmanager.googleapis.com"
NUMBER = "471147114711"  #: the service calls a project so, whatever the caller does
_PATH = re.compile(
    rf"{HOST}/v1/projects/(?P<project>[^/]+)/secrets"
    r"(/(?P<secret>[^/:]+)(/versions/(?P<version>[^/:]+))?)?(:(?P<verb>\w+))?"
)


@dataclass
class Secret:
    body: dict[str, Any]
    #: their data in base64; None: destroyed
    versions: list[str | None] = field(default_factory=list[str | None])


@dataclass
class SecretServer(GoogleServer):
    """`before`: called with verb and path of each request, without the lock; it may raise Refusal."""

    secrets: dict[str, Secret] = field(default_factory=dict[str, Secret])
    before: Callable[[str, str], None] = lambda *_: None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, request: Asked) -> Any:
        try:
            self.before(request.verb, request.path)
            match = _PATH.fullmatch(request.path)
            if match is None:
                return super().answer(request)
            with self.lock:
                return self._do(request.verb, match, request.params, request.body)
        except Refusal as refusal:
            return refusal.error

    def _do(
        self, method: str, match: re.Match[str], query: dict[str, list[str]], body: dict[str, Any]
    ) -> dict[str, Any]:
        id, verb = match["secret"], match["verb"]
        name = f"projects/{NUMBER}/secrets/{id}"
        match method, verb:
            case "POST", None if id is None:
                return self._create(query["secretId"][0], body)
            case "GET", None if id is None:
                labels = dict(
                    term.removeprefix("labels.").split("=")
                    for term in query.get("filter", [""])[0].split(" AND ")
                    if term
                )
                return {
                    "secrets": [
                        {"name": f"projects/{NUMBER}/secrets/{i}", **secret.body}
                        for i, secret in self.secrets.items()
                        if labels.items() <= secret.body.get("labels", {}).items()
                    ]
                }
        secret = self.secrets.get(id)
        if secret is None:
            raise Refusal(404, "NOT_FOUND", f"Secret [{name}] not found.")
        match method, verb:
            case "GET", None:
                return {"name": name, **secret.body}
            case "PATCH", None:
                mask = query["updateMask"][0]
                secret.body[mask] = body[mask]
                return {"name": name, **secret.body}
            case "DELETE", None:
                del self.secrets[id]
                return {}
            case "POST", "addVersion":
                secret.versions.append(body["payload"]["data"])
                return {"name": f"{name}/versions/{len(secret.versions)}", "state": "ENABLED"}
        number = len(secret.versions) if match["version"] == "latest" else int(match["version"])
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
    """An error of the service."""

    def __init__(self, code: int, name: str, message: str) -> None:
        super().__init__(message)
        self.error = status(code, name, message)
