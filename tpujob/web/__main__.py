"""A backend process on a person's machine or a login node: `python -m tpujob.web --ready FILE --state DIR`.

It serves on a unix socket and looks after the context's jobs. Without `--shared` it is its user's alone.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from tpujob import sockets
from tpujob.config import settings as settings_module
from tpujob.config.settings import Settings, prepare
from tpujob.domain.access import Principal, Role
from tpujob.errors import TpujobError
from tpujob.web.api import create_app
from tpujob.web.log import log_to_stderr
from tpujob.web.peer_door import PeerDoor
from tpujob.web.serving import Listener, serve
from tpujob.wiring import backend


def main() -> None:
    """Serve until SIGTERM; then finish the running ticks and end."""
    parser = argparse.ArgumentParser(prog="python -m tpujob.web", description=__doc__)
    parser.add_argument(
        "--ready", type=Path, required=True, help="written once the backend listens"
    )
    parser.add_argument("--state", type=Path, required=True, help="the state folder")
    parser.add_argument("--context", default="", help="where jobs run; left out: the current one")
    options = parser.parse_args()
    settings = settings_module.load(options.state, context=options.context)
    log_to_stderr(settings.log_file("backend"))
    try:
        _serve(settings, options.ready)
    except TpujobError as error:  # the command that started this process shows it
        sys.exit(f"{error.message}\n{error.hint}".strip())


def _serve(settings: Settings, ready: Path) -> None:
    # before the file is read, so that a change in between is noticed
    stamp = settings.context_stamp()
    parts = backend.backend(settings)
    prepare(settings)
    path = sockets.place(settings.run, "backend.sock")
    own = Principal(f"uid:{os.geteuid()}", settings.user, Role.ADMIN)
    try:
        serve(
            [Listener(sockets.listen(path), PeerDoor(own))],
            lambda door, stopping: create_app(
                parts.api.acting_for, door, watch=parts.changes.now, stopping=stopping
            ),
            parts.loop,
            started=lambda: _announce(ready, f"unix:{path}", stamp),
        )
    finally:
        sockets.remove(path)


def _announce(ready: Path, url: str, stamp: str) -> None:
    """Put the ready file in place whole; the socket accepts from here on."""
    record = {"pid": os.getpid(), "url": url, "context": stamp}
    temporary = ready.with_suffix(".tmp")
    temporary.write_text(json.dumps(record), encoding="utf-8")
    temporary.replace(ready)


if __name__ == "__main__":
    main()
