"""`tpujob open`: the page in the browser, of a local, a shared or a deployed backend."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

from tpujob.cli.backend import connect, current_settings
from tpujob.cli.options import argument, flag
from tpujob.cli.output import note, say
from tpujob.errors import BackendGone

if TYPE_CHECKING:
    from tpujob.config.settings import Settings


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

    now, api = current_settings(), connect()
    path = f"/jobs/{api.get(job)['id']}" if job else "/"
    if there := client.behind_iap(now):
        _show(now, there + path, browser=not print_only)
        return 0
    here = client.page(now)
    if here is None:
        api.whoami()  # a missing sign-in fails here, not in the browser
        return _relay(now, path, browser=not (print_only or code), code=code)
    drawn = client.page_code(now) if code or here.page_needs_code else ""
    _show(now, _address(here.page, path, drawn), browser=not (print_only or code))
    return 0


def _address(page: str, path: str, code: str) -> str:
    from urllib.parse import quote

    to = f"?to={quote(path, safe='/')}" if path != "/" else ""
    return f"{page}/enter/{code}{to}" if code else f"{page}{path}"


def _show(now: Settings, address: str, *, browser: bool) -> None:
    """Open it if there is a screen; else say how another machine's browser gets there."""
    from tpujob.config.settings import has_screen, variable

    if browser and has_screen() and _opens(address):
        say(f"Opened in the browser: {address}", flush=True)
        return
    say(address, flush=True)
    port = urlsplit(address).port
    if address.startswith("http://") and variable("SSH_CONNECTION"):
        import socket

        note("The browser of your own machine finds it there, too, while this runs there:")
        note(f"  ssh -N -L {port}:127.0.0.1:{port} {now.user}@{socket.gethostname()}")


def _opens(address: str) -> bool:
    import webbrowser

    return webbrowser.open(address)


def _relay(now: Settings, path: str, *, browser: bool, code: bool) -> int:
    """Be the way to the page until Ctrl-C."""
    from tpujob.config.settings import for_processes

    words = [sys.executable, "-m", "tpujob.web.proxy", "--context", now.context]
    words += ["--code"] if code else []
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True, env=for_processes()) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        with contextlib.suppress(KeyboardInterrupt):
            try:
                reply = json.loads(child.stdout.readline())
            except ValueError:
                raise BackendGone("the page could not be shown, for the reason above") from None
            _show(now, _address(reply["page"], path, reply["code"]), browser=browser)
            note(f"tpujob: this is the way to the page of {now.context} until Ctrl-C")
            child.wait()
        child.stdin.close()
        return child.wait()
