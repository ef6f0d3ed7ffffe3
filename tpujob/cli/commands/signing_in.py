"""`tpujob login` and `logout`: who you are, for a deployed backend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tpujob.cli.backend import current_settings
from tpujob.cli.options import flag
from tpujob.cli.output import note, say, screen
from tpujob.domain.text import clean
from tpujob.errors import BadRequest

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

    now = current_settings()
    was = sign_in.logout(now)
    say(f"Signed out of {now.context}." if was else "You were not signed in.")


def sign_in(now: Settings, *, browser: bool = True) -> None:
    """Sign in for that context, and say as whom."""
    from tpujob.config.settings import has_screen
    from tpujob.wiring import sign_in as wiring

    opened = _open if browser and has_screen() else None
    who = wiring.login(now, open_browser=opened, show=note, ask=_ask)
    say(f"Signed in as {clean(who)}, for {now.context}.")


def _open(address: str) -> bool:
    import webbrowser

    return webbrowser.open(address)


def _ask(what: str) -> str:
    if not screen().asks:
        raise BadRequest(
            "signing in needs a terminal",
            hint="Programs use a service account: tpujob use URL --account machine",
        )
    return str(typer.prompt(what, err=True))
