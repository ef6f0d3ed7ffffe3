"""The commands that need a browser: `tpujob open`, `login` and `logout`."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote, urlsplit

import typer

from tpujob.cli.backend import connect, current_settings
from tpujob.cli.options import argument, flag
from tpujob.cli.output import get_screen, note, say
from tpujob.domain.text import clean
from tpujob.errors import BackendGone, BadRequest

if TYPE_CHECKING:
    from tpujob.config.settings import Settings


def login(
    no_browser: Annotated[
        bool,
        flag("Print the address; paste back the one at which the browser ends.", "--no-browser"),
    ] = False,
) -> None:
    """Sign in at Google for the deployed backend of the context."""
    sign_in(current_settings(), browser=not no_browser)


def logout() -> None:
    """Revoke the sign-in, here and at Google."""
    from tpujob.wiring import sign_in

    settings = current_settings()
    signed_out = sign_in.logout(settings)
    say(f"Signed out of {settings.context}." if signed_out else "You were not signed in.")


def sign_in(settings: Settings, *, browser: bool = True) -> None:
    """Sign in for the context of the settings, and print the identity."""
    from tpujob.config.settings import has_screen
    from tpujob.wiring import sign_in as wiring

    open_browser = _open if browser and has_screen() else None
    identity = wiring.login(settings, open_browser=open_browser, show=note, ask=_ask)
    say(f"Signed in as {clean(identity)}, for {settings.context}.")


def _open(address: str) -> bool:
    import webbrowser

    return webbrowser.open(address)


def _ask(prompt: str) -> str:
    if not get_screen().asks:
        raise BadRequest(
            "signing in needs a terminal",
            hint="Programs use a service account: tpujob use URL --account machine",
        )
    return str(typer.prompt(prompt, err=True))


# Open a page of a local, a shared or a deployed backend --------------------------------------------------------------


def open_page(
    job: Annotated[str, argument("[JOB]", "Default: the list of jobs.")] = "",
    print_only: Annotated[bool, flag("Print the address only.", "--print")] = False,
    code: Annotated[
        bool, flag("Print a one-time address for another browser, valid for a minute.", "--code")
    ] = False,
) -> int:
    """Open the page of your jobs, or of one, in the browser.

    For a remote or shared backend it forwards requests until Ctrl-C."""
    from tpujob.wiring import client

    settings = current_settings()
    api = connect()
    path = f"/jobs/{api.get(job)['id']}" if job else "/"
    if public_url := client.behind_iap(settings):
        _show(settings, public_url + path, browser=not print_only)
        return 0
    browser = not (print_only or code)
    local = client.page(settings)
    if local is None:
        api.whoami()  # a missing sign-in fails here, not in the browser
        return _forward(settings, path, browser=browser, code=code)
    one_time_code = client.page_code(settings) if code or local.page_needs_code else ""
    _show(settings, _address(local.page, path, one_time_code), browser=browser)
    return 0


def _address(page: str, path: str, code: str) -> str:
    to = f"?to={quote(path, safe='/')}" if path != "/" else ""
    return f"{page}/enter/{code}{to}" if code else f"{page}{path}"


def _show(settings: Settings, address: str, *, browser: bool) -> None:
    """Open the address if there is a screen; else print it, and how a browser on another machine can open it."""
    from tpujob.config.settings import has_screen, variable

    if browser and has_screen() and _open(address):
        say(f"Opened in the browser: {address}", flush=True)
        return
    say(address, flush=True)
    port = urlsplit(address).port
    if address.startswith("http://") and variable("SSH_CONNECTION"):
        import socket

        note("To open it on your own machine, run this there:")
        note(f"  ssh -N -L {port}:127.0.0.1:{port} {settings.user}@{socket.gethostname()}")


def _forward(settings: Settings, path: str, *, browser: bool, code: bool) -> int:
    """Forward requests for the page until Ctrl-C, and return the proxy's exit code."""
    from tpujob.config.settings import for_processes

    args = [sys.executable, "-P", "-m", "tpujob.web.proxy", "--context", settings.context]
    args += ["--code"] if code else []
    pipe = subprocess.PIPE
    with subprocess.Popen(args, stdin=pipe, stdout=pipe, text=True, env=for_processes()) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        with contextlib.suppress(KeyboardInterrupt):
            try:
                reply = json.loads(child.stdout.readline())
            except ValueError:
                raise BackendGone("the page could not be shown, for the reason above") from None
            _show(settings, _address(reply["page"], path, reply["code"]), browser=browser)
            note(f"tpujob: serving the page of {settings.context} until Ctrl-C")
            child.wait()
        child.stdin.close()
        return child.wait()
