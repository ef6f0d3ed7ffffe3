"""A deployed backend, such as on Cloud Run: `python -m tpujob.web.deployed`.

The process reads a context from a mounted file, and keeps nothing on its disk that must last. Callers are recognised by
Google's signed tokens (`security/sign_in.py`). `deploy/README.md` describes deployment; on a person's machine use
`python -m tpujob.web`.
"""

import argparse
import logging
import socket
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from tpujob.config import context, files
from tpujob.config import settings as settings_module
from tpujob.config.context import Context
from tpujob.config.settings import Settings
from tpujob.config.sign_in import DOORS, DoorKind
from tpujob.domain.access import BACKEND, Role
from tpujob.domain.members import folded
from tpujob.errors import BadRequest, TpujobError
from tpujob.service import Entrance
from tpujob.web.log import Json, log_to_stderr
from tpujob.web.security.sign_in import GCLOUD, SignInAuthenticator, SignInPolicy
from tpujob.web.serving import SocketListener, serve
from tpujob.wiring import backend

log = logging.getLogger(__name__)


def main(words: Sequence[str] | None = None) -> None:
    """Serve until SIGTERM; exit with one sentence when an argument or a file is wrong."""
    options = _options(words)
    log_to_stderr(formatter=Json())
    try:
        _serve(options)
    except TpujobError as error:
        sys.exit(f"{error.message}\n{error.hint}".strip())


def _options(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tpujob.web.deployed", description=__doc__)
    parser.add_argument("--context-file", type=Path, required=True, help="where jobs run")
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
        help="run ticks only in POST /v1/tick: this process may be paused between two requests",
    )
    parser.add_argument("--door", choices=DOORS, help="left out: what the context says")
    parser.add_argument(
        "--tick-account", default="", help="e-mail address of Cloud Scheduler's service account"
    )
    parser.add_argument(
        "--admin", default="", help="the first admin: an e-mail address, used while there is none"
    )
    return parser.parse_args(words)


def _serve(options: argparse.Namespace) -> None:
    settings, stored = prepared(options.state, options.context_file)
    urls: list[str] = options.url
    page = urls[0] if urls else ""
    settings = replace(settings, only_called=options.only_called, page_url=page)
    hosts = hosts_of(urls)
    policy = policy_of(settings, stored, urls, door=options.door, tick_account=options.tick_account)
    if settings.google_endpoint:
        log.warning("the keys of Google come from %s", settings.google_endpoint)
    parts = backend.backend(settings)
    parts.members.open(Entrance(doubt=_no_address))
    if options.admin and not any(m["role"] == Role.ADMIN for m in parts.members.members()):
        parts.members.give_role(BACKEND, options.admin, Role.ADMIN)
    people = SignInAuthenticator(policy, parts.members.recognise, backend.signing_keys(settings))
    port = settings.port if options.port is None else options.port

    serve(
        [SocketListener(socket.create_server((options.host, port)), people)],
        parts,
        with_loop=not options.only_called,
        headers=headers_of(urls),
        hosts=hosts,
        make_pass=parts.make_pass,
    )


def _no_address(name: str) -> str:
    return "" if "@" in name else f"{name} is no e-mail address, by which people sign in here"


def hosts_of(urls: Sequence[str]) -> list[str]:
    """Return the host name of each of these URLs. Raises BadRequest for one without."""
    hosts = [urlsplit(url).hostname or "" for url in urls]
    if "" in hosts:
        wrong = urls[hosts.index("")]
        raise BadRequest(f"--url {wrong!r} names no host", hint="--url https://backend.example.org")
    return hosts


def headers_of(urls: Sequence[str]) -> list[tuple[str, str]]:
    """Return the headers of every answer: HSTS, so that browsers use TLS alone. Empty unless all URLs are HTTPS without
    a port: with a port, other services without TLS may have the same host name."""
    parts = [urlsplit(url) for url in urls]
    if not parts or any(url.scheme != "https" or ":" in url.netloc for url in parts):
        return []
    return [("strict-transport-security", f"max-age={365 * 24 * 3600}")]


def prepared(state: Path | None, context_file: Path) -> tuple[Settings, Context]:
    """Copy the context's file into the state folder, where all code reads it; return its settings and the context.
    Raises BadSpec; BadRequest for a store on the local disk, which would be lost."""
    stored = context.parse(files.read(context_file), str(context_file))
    if stored.store != "firestore":
        raise BadRequest(
            f"{context_file}: store is {stored.store}: its jobs would be lost with this process",
            hint="store: firestore",
        )
    settings = settings_module.load(state, context=stored.name)
    # this process is the backend that the clients' copy of the file names
    context.write(settings, stored.model_copy(update={"backend": ""}))
    return settings, stored


def policy_of(
    settings: Settings,
    deployed_context: Context,
    urls: Sequence[str],
    *,
    door: DoorKind | None = None,
    tick_account: str = "",
) -> SignInPolicy:
    """Return which tokens the context's backend accepts; `door` overrides the context's own. Raises BadRequest for a
    door that would refuse all users, or admit any."""
    kind, sign_in = door or deployed_context.door, deployed_context.sign_in
    if not urls:
        raise BadRequest("--url is missing: a token is for one URL", hint="--url https://...")
    if kind == "iap" and not sign_in.iap_audience:
        raise BadRequest(
            "door: iap needs sign_in.iap_audience",
            hint="/projects/NUMBER/locations/REGION/services/NAME",
        )
    if kind == "iap" and tick_account:
        raise BadRequest(
            "--tick-account: IAP admits only people",
            hint="Cloud Scheduler calls a second service, with --door iam",
        )
    if kind == "iam" and tick_account and not settings.service:
        raise BadRequest(
            "--tick-account with door: iam is only for Cloud Run, which checks the tokens of callers",
            hint="elsewhere: door: public, which verifies the tokens of Cloud Scheduler, too",
        )
    gcloud = {GCLOUD} if sign_in.gcloud else set[str]()
    return SignInPolicy(
        kind,
        clients=sign_in.clients | gcloud,
        urls=frozenset(url.rstrip("/") for url in urls),
        iap_audience=sign_in.iap_audience,
        tick_account=folded(tick_account),
    )


if __name__ == "__main__":
    main()
