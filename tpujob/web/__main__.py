"""A backend process on a person's machine or a login node: `python -m tpujob.web --ready FILE --state DIR`.

It serves on a unix socket and looks after the context's jobs: for its user alone, with the page at a port of loopback,
or with `--socket` for every member.
"""

import argparse
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tpujob.config import settings as settings_module
from tpujob.config import shared_socket
from tpujob.config.files import put
from tpujob.config.members import read as read_members
from tpujob.config.settings import Settings, prepare
from tpujob.domain.access import Principal, Role
from tpujob.domain.members import folded
from tpujob.errors import TpujobError
from tpujob.lib import unix_sockets
from tpujob.service import Entrance
from tpujob.web.log import log_to_stderr
from tpujob.web.security.authenticator import PeerAuthenticator
from tpujob.web.security.browser import BrowserAuthenticator, Sessions, page_at
from tpujob.web.serving import SocketListener, serve
from tpujob.wiring import backend


def main() -> None:
    """Serve until SIGTERM; then finish the running ticks and end."""
    parser = argparse.ArgumentParser(prog="python -m tpujob.web", description=__doc__)
    parser.add_argument(
        "--ready", type=Path, required=True, help="written once the backend listens"
    )
    parser.add_argument("--state", type=Path, required=True, help="the state folder")
    parser.add_argument("--context", default="", help="where jobs run; left out: the current one")
    parser.add_argument("--socket", type=Path, help="for all users of this machine who are members")
    parser.add_argument("--members", type=Path, help="a file of who they are")
    options = parser.parse_args()
    settings = settings_module.load(options.state, context=options.context)
    log_to_stderr(None if options.socket else settings.log_file("backend"))
    try:
        if options.socket:
            _serve_all(settings, options.ready, options.socket, options.members)
        else:
            _serve_own(settings, options.ready)
    except TpujobError as error:  # the command that started this process shows it
        sys.exit(f"{error.message}\n{error.hint}".strip())


def _serve_own(settings: Settings, ready: Path) -> None:
    # before the file is read, so that a change in between is noticed
    stamp = settings.context_stamp()
    prepare(settings)
    page, address = page_at(settings) if settings.page else (None, "")
    parts = backend.backend(replace(settings, page_url=address))
    path = unix_sockets.place(settings.run, "backend.sock")
    own = _own(settings.user)
    parts.members.open(
        Entrance(
            own.name, lambda _: "this backend works for you alone until `tpujob serve` runs it"
        )
    )
    try:
        facts = {"url": f"unix:{path}", "context": stamp}
        listeners = [SocketListener(unix_sockets.listen(path), PeerAuthenticator(own))]
        sessions = Sessions() if page else None
        if page and sessions:
            kernel_says = unix_sockets.tells_peers()
            authenticator = BrowserAuthenticator(own, sessions, kernel_says=kernel_says)
            listeners.append(SocketListener(page, authenticator, loopback=True))
            facts |= {"page": address, "page_needs_code": not kernel_says}
        serve(listeners, parts, started=lambda: _announce(ready, facts), sessions=sessions)
    finally:
        unix_sockets.remove(path)


def _serve_all(settings: Settings, ready: Path, path: Path, members: Path | None) -> None:
    own = _own(shared_socket.login_of(os.geteuid()))
    member_list = read_members(members) if members else None
    parts = backend.backend(settings)
    parts.members.open(Entrance(own.name, _no_login, str(members or "")))
    if member_list is not None:
        parts.members.apply(own, member_list)
    prepare(settings)
    shared_socket.free(path)
    authenticator = PeerAuthenticator(own, parts.members.recognise)
    try:
        facts = {"url": f"unix:{path}", "shared": True}
        listener = SocketListener(unix_sockets.listen(path, 0o666), authenticator)
        serve([listener], parts, started=lambda: _announce(ready, facts))
    finally:
        path.unlink(missing_ok=True)
        ready.unlink(missing_ok=True)


def _own(name: str) -> Principal:
    return Principal(f"uid:{os.geteuid()}", folded(name), Role.ADMIN)


def _no_login(name: str) -> str:
    return "" if shared_socket.has_login(name) else f"this machine knows no login {name}"


def _announce(ready: Path, facts: Mapping[str, Any]) -> None:
    """Put the ready file in place whole; the socket accepts from here on."""
    put(ready, json.dumps({"pid": os.getpid(), **facts}))


if __name__ == "__main__":
    main()
