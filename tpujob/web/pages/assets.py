"""The files of `web/static/`, each at an address that changes with its content, so that a browser asks for it once."""

import base64
import gzip
import hashlib
import mimetypes
from functools import cache
from pathlib import Path
from typing import NamedTuple

from fastapi import FastAPI, Request
from fastapi.responses import Response

from tpujob.errors import NotFound
from tpujob.web.middleware.security import FOR_GOOD

FOLDER = Path(__file__).parents[1] / "static"
SHOWN = (".css", ".js", ".svg")


class Asset(NamedTuple):
    address: str  #: below the top of the page
    integrity: str  #: as a browser verifies it
    media_type: str
    body: bytes
    packed: bytes  #: with gzip


@cache
def assets() -> dict[str, Asset]:
    """By name. Read once: files do not change while the backend runs."""
    files = (path for path in sorted(FOLDER.rglob("*")) if path.suffix in SHOWN)
    return {path.name: _asset(path) for path in files}


def _asset(path: Path) -> Asset:
    body = path.read_bytes()
    digest = hashlib.sha384(body)
    return Asset(
        address=f"/static/{path.stem}.{digest.hexdigest()[:8]}{path.suffix}",
        integrity="sha384-" + base64.b64encode(digest.digest()).decode(),
        media_type=mimetypes.types_map[path.suffix],
        body=body,
        packed=gzip.compress(body, 9, mtime=0),
    )


@cache
def _by_address() -> dict[str, Asset]:
    return {asset.address: asset for asset in assets().values()}


def add(app: FastAPI) -> None:
    @app.get("/static/{name}", include_in_schema=False)
    def static(name: str, request: Request) -> Response:
        asset = _by_address().get(f"/static/{name}")
        if asset is None:
            raise NotFound(f"there is no file {name[:80]!r}", hint="load the page again")
        packed = "gzip" in request.headers.get("accept-encoding", "")
        headers = {"cache-control": FOR_GOOD, "vary": "accept-encoding"}
        if packed:
            headers["content-encoding"] = "gzip"
        body = asset.packed if packed else asset.body
        return Response(body, media_type=asset.media_type, headers=headers)

    _ = static
