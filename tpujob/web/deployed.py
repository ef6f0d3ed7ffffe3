"""The backend where it is deployed: `python -m tpujob.web.deployed`, such as on Cloud Run.

It reads a context and a token from mounted files, and keeps nothing on its disk that must last. `deploy/README.md` says
how to deploy it; on a person's machine the backend is `python -m tpujob.web`.
"""

from __future__ import annotations

import argparse
import socket
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from tpujob.config import context
from tpujob.config import settings as settings_module
from tpujob.config.settings import Settings
from tpujob.domain.access import Principal, Role
from tpujob.errors import BadRequest, TpujobError
from tpujob.web.api import create_app
from tpujob.web.door import TokenDoor
from tpujob.web.log import log_to_stderr
from tpujob.web.scheduler import Scheduler
from tpujob.web.serving import Listener, serve
from tpujob.wiring import backend

#: characters of a token, at least: `openssl rand -hex 32` gives 64
SHORTEST_TOKEN = 32
#: whoever shows the token
LAB = Principal("token", "lab", Role.ADMIN)


def main(words: Sequence[str] | None = None) -> None:
    """Serve until SIGTERM; exit with one sentence when an argument or a file is wrong."""
    options = _options(words)
    log_to_stderr()
    try:
        _serve(options)
    except TpujobError as error:
        sys.exit(f"{error.message}\n{error.hint}".strip())


def _options(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tpujob.web.deployed", description=__doc__)
    parser.add_argument("--context-file", type=Path, required=True, help="where jobs run")
    parser.add_argument("--token-file", type=Path, required=True, help="what clients show")
    parser.add_argument("--state", type=Path, help="a folder that may be lost with this process")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on")
    parser.add_argument("--port", type=int, help="left out: $PORT, or any")
    parser.add_argument(
        "--url",
        action="append",
        default=[],
        help="under which it is known; once for each name, as it answers under no other",
    )
    parser.add_argument(
        "--only-called",
        action="store_true",
        help="look after jobs only in POST /v1/tick: between two requests this process may stand still",
    )
    parser.add_argument(
        "--tick-account", default="", help="of Cloud Scheduler, for whom Cloud Run checks tokens"
    )
    return parser.parse_args(words)


def _serve(options: argparse.Namespace) -> None:
    settings = prepared(options.state, options.context_file, options.token_file)
    settings = replace(settings, only_called=options.only_called)
    urls: list[str] = options.url
    hosts = hosts_of(urls)
    scheduler = _scheduler(settings, options.tick_account, urls)
    parts = backend.backend(settings)
    port = settings.port if options.port is None else options.port
    door = TokenDoor(settings.token(), LAB, scheduler)
    serve(
        [Listener(socket.create_server((options.host, port)), door)],
        lambda door, stopping: create_app(
            parts.api.acting_for,
            door,
            watch=parts.changes.now,
            stopping=stopping,
            hosts=hosts,
            make_pass=lambda sweep: parts.loop.make_pass(sweep=sweep),
        ),
        parts.loop,
        with_loop=not options.only_called,
    )


def hosts_of(urls: Sequence[str]) -> list[str]:
    """The host name of each of these URLs. Raises BadRequest for one without."""
    hosts = [urlsplit(url).hostname or "" for url in urls]
    if "" in hosts:
        wrong = urls[hosts.index("")]
        raise BadRequest(f"--url {wrong!r} names no host", hint="--url https://backend.example.org")
    return hosts


def prepared(state: Path | None, context_file: Path, token_file: Path) -> Settings:
    """The settings of that context, with its file and token copied into the state folder, where all code reads them.
    Raises BadRequest for a store on the local disk, which would be lost."""
    found = context.parse(_text(context_file), str(context_file))
    if found.store != "firestore":
        raise BadRequest(
            f"{context_file}: store is {found.store}: its jobs would be lost with this process",
            hint="store: firestore",
        )
    token = _text(token_file).strip()
    if len(token) < SHORTEST_TOKEN:
        raise BadRequest(
            f"the token in {token_file} is shorter than {SHORTEST_TOKEN} characters",
            hint="openssl rand -hex 32",
        )
    settings = settings_module.load(state, context=found.name)
    # this process is the backend that the clients' copy of the file names
    context.write(settings, found.model_copy(update={"backend": ""}))
    settings_module.keep_token(settings, token)
    return settings


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f"cannot read {path}: {error}") from error


def _scheduler(settings: Settings, account: str, urls: Sequence[str]) -> Scheduler | None:
    if not account:
        return None
    if not settings.service:
        raise BadRequest(
            "--tick-account is only for Cloud Run, which checks the tokens of callers",
            hint="elsewhere whoever calls /v1/tick needs the backend's token",
        )
    if not urls:
        raise BadRequest("--tick-account needs --url: a token is for one URL")
    return Scheduler(account, urls[0])


if __name__ == "__main__":
    main()
