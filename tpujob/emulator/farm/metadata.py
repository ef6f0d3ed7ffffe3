"""The metadata server of a TPU VM: values by path, folders, `recursive`, `wait_for_change`.

The store is flat (`instance/preempted` -> `TRUE`); folders are common prefixes of paths.
"""

import asyncio
import hashlib
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from starlette.responses import Response

from tpujob.emulator.http_server import Request

ROOT = "/computeMetadata/v1/"
PREEMPTED = "instance/preempted"
MAINTENANCE = "instance/maintenance-event"
NO_MAINTENANCE = "NONE"
UPCOMING = "instance/upcoming-maintenance"
#: the answer while no maintenance is announced (documented)
NOTHING_UPCOMING = '{"error": "no notifications have been received yet, try again later"}'
COMING_MAINTENANCE = "TERMINATE_ON_HOST_MAINTENANCE"
SSH_KEYS = "instance/attributes/ssh-keys"
OS_LOGIN = "instance/attributes/enable-oslogin"
GUEST_ATTRIBUTES = "instance/attributes/enable-guest-attributes"
NAME = "instance/name"
_HEADERS = {
    "Metadata-Flavor": "Google",
    "Server": "Metadata Server for VM",
    "Content-Type": "text/plain; charset=utf-8",
}
_PROJECT = "tpujob-emulator"
_NUMERIC_PROJECT = "414231801221"


def vm_facts(
    *,
    slice_name: str,
    zone: str,
    accelerator: str,
    host: int,
    addresses: list[str],
    physical: str,
    attributes: Mapping[str, str],
) -> dict[str, str]:
    """Return all values for host `host` of a slice. `attributes`: the node's own metadata."""
    email = f"emulated-vm@{_PROJECT}.iam.gserviceaccount.com"
    name = f"{slice_name}-w-{host}"
    account = {
        "aliases": "default",
        "email": email,
        "scopes": "https://www.googleapis.com/auth/cloud-platform",
        # not a secret: the emulated storage does not check tokens
        "token": json.dumps(
            {"access_token": "emulated", "expires_in": 3599, "token_type": "Bearer"}
        ),
    }
    env = {
        "ACCELERATOR_TYPE": accelerator,
        "CONSUMER_PROJECT_ID": _PROJECT,
        "NODE_ID": slice_name,
        "WORKER_ID": str(host),
        "ZONE": zone,
    }
    own = {
        **attributes,
        "accelerator-type": accelerator,
        "agent-worker-number": str(host),
        "physical-host": physical,
        "tpu-env": "".join(f"{key}: '{value}'\n" for key, value in env.items()),
        "worker-network-endpoints": ",".join(f"unknown:unknown:{a}" for a in addresses),
    }
    instance = {
        "hostname": f"{name}.{zone}.c.{_PROJECT}.internal",
        "id": str(int(hashlib.sha256(name.encode()).hexdigest()[:15], 16)),
        "maintenance-event": NO_MAINTENANCE,
        "name": name,
        "network-interfaces/0/ip": addresses[host],
        "preempted": "FALSE",
        "upcoming-maintenance": NOTHING_UPCOMING,
        "zone": f"projects/{_NUMERIC_PROJECT}/zones/{zone}",
        **{f"attributes/{k}": v for k, v in own.items()},
        **{f"service-accounts/{a}/{k}": v for a in ("default", email) for k, v in account.items()},
    }
    return {
        "project/project-id": _PROJECT,
        "project/numeric-project-id": _NUMERIC_PROJECT,
        **{f"instance/{k}": v for k, v in instance.items()},
    }


class MetadataServer:
    """The metadata of one host. `set` wakes requests that wait for a change."""

    def __init__(self, facts: Mapping[str, str]) -> None:
        self._facts = dict(facts)
        self._changed = asyncio.Event()

    def get(self, path: str) -> str:
        return self._facts.get(path, "")

    def set(self, path: str, value: str) -> None:
        self._facts[path] = value
        self._changed.set()
        self._changed = asyncio.Event()

    async def answer(self, request: Request) -> Response:
        """Answer a request as the real server does: the header is required, a proxied request is refused, a folder
        needs its slash or `recursive=true`."""
        path = unquote(request.path)
        if path == "/":
            return _text(200, "computeMetadata/")
        if request.method not in ("GET", "HEAD"):
            return _text(405)
        if (
            request.headers.get("metadata-flavor") != "Google"
            or "x-forwarded-for" in request.headers
        ):
            return _text(403, "Missing Metadata-Flavor:Google header.")
        if not path.startswith(ROOT):
            return _text(404)
        if request.query_params.get("wait_for_change", "").lower() == "true":
            await self._wait_for_change(request)
        text = self._read(request)
        if text is None:
            return _text(404, "not found")
        is_json = _recursive(request) or path.endswith("/token")
        kind = "application/json" if is_json else "application/text"
        return Response(text, headers={**_HEADERS, "Content-Type": kind, "ETag": _etag(text)})

    async def _wait_for_change(self, request: Request) -> None:
        """Wait until the value differs from `last_etag` (default: from now), or `timeout_sec` has passed."""
        old_etag = request.query_params.get("last_etag") or _etag(self._read(request) or "")
        seconds = request.query_params.get("timeout_sec", "")
        try:
            async with asyncio.timeout(float(seconds) if seconds.isdigit() else None):
                while _etag(self._read(request) or "") == old_etag:
                    await self._changed.wait()
        except TimeoutError:
            return

    def _read(self, request: Request) -> str | None:
        path = unquote(request.path).removeprefix(ROOT)
        if _recursive(request):
            below = self._below(path.rstrip("/") + "/" if path else "")
            return json.dumps(_nested(below)) if below else None
        if path == "" or path.endswith("/"):
            below = self._below(path)
            heads = {p.split("/", 1)[0] + ("/" if "/" in p else "") for p in below}
            return "".join(f"{h}\n" for h in sorted(heads)) if below else None
        return self._facts.get(path)

    def _below(self, folder: str) -> dict[str, str]:
        n = len(folder)
        return {p[n:]: v for p, v in sorted(self._facts.items()) if p.startswith(folder)}


def _text(status: int, line: str = "") -> Response:
    return Response(f"{line}\n" if line else None, status, _HEADERS)


def _recursive(request: Request) -> bool:
    return request.query_params.get("recursive", "").lower() == "true"


def _etag(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _nested(flat: Mapping[str, str]) -> dict[str, Any]:
    """Return the JSON of `recursive=true`: names in camel case, attributes unchanged, scopes and aliases as lists."""
    tree: dict[str, Any] = {}
    for path, value in flat.items():
        *folders, leaf = path.split("/")
        branch = tree
        for folder in folders:
            branch = branch.setdefault(_camel(folder), {})
        raw = "attributes" in folders
        is_list = leaf in ("scopes", "aliases")
        branch[leaf if raw else _camel(leaf)] = value.split("\n") if is_list else value
    return tree


def _camel(name: str) -> str:
    head, *rest = name.split("-")
    return head + "".join(word.capitalize() for word in rest) if "@" not in name else name
