"""The backend process: `python -m tpujob.web --ready FILE --state DIR`. API and reconciler, on loopback."""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
from pathlib import Path

from tpujob.config import settings as settings_module
from tpujob.config.settings import Settings
from tpujob.domain.access import Principal, Role
from tpujob.errors import TpujobError
from tpujob.web.api import create_app
from tpujob.web.door import TokenDoor
from tpujob.web.serving import log_to_stderr, serve
from tpujob.wiring import backend


def main() -> None:
    """Serve until SIGTERM; then finish the running ticks and end."""
    parser = argparse.ArgumentParser(prog="python -m tpujob.web", description=__doc__)
    parser.add_argument(
        "--ready", type=Path, required=True, help="written once the backend listens"
    )
    parser.add_argument("--state", type=Path, required=True, help="the state folder")
    parser.add_argument("--context", default="", help="where jobs run; left out: the current one")
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    log_to_stderr()
    settings = settings_module.load(options.state, context=options.context)
    try:
        _serve(settings, options.ready, options.port)
    except TpujobError as error:  # the command that started this process shows it
        sys.exit(f"{error.message}\n{error.hint}".strip())


def _serve(settings: Settings, ready: Path, port: int) -> None:
    stamp = (
        settings.context_stamp()
    )  # before the file is read, so that a change in between is noticed
    parts = backend.backend(settings)
    place = socket.create_server(("127.0.0.1", port))
    address = f"http://127.0.0.1:{place.getsockname()[1]}"
    door = TokenDoor(settings.token(), Principal(f"uid:{os.getuid()}", settings.user, Role.ADMIN))
    serve(
        place,
        lambda stopping: create_app(
            parts.api.acting_for, door, watch=parts.changes.now, stopping=stopping
        ),
        parts.loop,
        started=lambda: _announce(ready, address, settings.token_file, stamp),
    )


def _announce(ready: Path, url: str, token_file: Path, stamp: str) -> None:
    """Put the ready file in place whole; the socket accepts from here on."""
    record = {"pid": os.getpid(), "url": url, "token_file": str(token_file), "context": stamp}
    temporary = ready.with_suffix(".tmp")
    temporary.write_text(json.dumps(record), encoding="utf-8")
    temporary.replace(ready)


if __name__ == "__main__":
    main()
