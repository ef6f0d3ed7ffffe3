"""Sign-in at Google for a deployed backend: login, logout, and the headers of requests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tpujob.adapters.sign_in import session
from tpujob.adapters.sign_in.session import SignInPlace
from tpujob.config.settings import Settings
from tpujob.errors import BadRequest

if TYPE_CHECKING:
    from tpujob.adapters.sign_in.google import Tokens
    from tpujob.config.context import Context


FOREGROUND = 2.0  #: seconds after which a browser that has not returned runs in the foreground


def headers(settings: Settings, context: Context) -> Callable[[bool], Mapping[str, str]]:
    """Return the function that makes the headers of each request of a command; see `session.headers`."""
    place = _place(settings, context)
    return lambda renew: session.headers(place, renew=renew)


def login(
    settings: Settings,
    *,
    open_browser: Callable[[str], bool] | None,
    show: Callable[[str], None],
    ask: Callable[[str], str],
    foreground: float = FOREGROUND,
) -> str:
    """Sign in for the context and return the user's address. `open_browser` says whether a browser was opened. If not,
    or if it is None, this shows the address and asks for the redirect URL. A browser that has not returned after
    `foreground` seconds was opened. Raises Unauthorized, BadRequest, Transient."""
    place = _place(settings, _deployed(settings))
    configured = place.context.sign_in
    if configured.account:
        raise BadRequest(
            f"the context {settings.context} is for programs: it signs in by itself, as {configured.account}",
            hint="`tpujob whoami` shows the identity",
        )
    if not configured.client_id:
        raise BadRequest(
            f"the context {settings.context} names no OAuth client to sign in with",
            hint=f"tpujob use {place.url} --client-id ID --client-secret SECRET; who deployed the backend knows both",
        )
    return session.keep(place, _by_browser(place, open_browser, show, ask, foreground))


def logout(settings: Settings) -> bool:
    """Remove the context's sign-in from this machine, and revoke it. Return whether there was one. Raises BadRequest
    for a context without sign-in; Transient, after the removal, if Google does not answer."""
    return session.end(_place(settings, _deployed(settings)))


def _by_browser(
    place: SignInPlace,
    open_browser: Callable[[str], bool] | None,
    show: Callable[[str], None],
    ask: Callable[[str], str],
    foreground: float,
) -> Tokens:
    from tpujob.adapters.sign_in import google, loopback

    listener = loopback.RedirectListener()  # first, so that the port in the address is ours
    try:
        attempt = google.SignInAttempt.new(listener.redirect)
        address = google.address(place.client, attempt)
        if open_browser and _opens(open_browser, address, show, foreground):
            code = listener.wait(attempt)
        else:
            show(f"Open this in a browser, on any machine:\n{address}")
            show(
                "At the end the browser cannot open a page of 127.0.0.1. That is right: copy its address."
            )
            code = loopback.code_in(ask("Address"), attempt)
        return google.exchange(place.client, attempt, code)
    finally:
        listener.close()


def _opens(
    open_browser: Callable[[str], bool],
    address: str,
    show: Callable[[str], None],
    foreground: float,
) -> bool:
    """Show the address, then open the browser; return False if there is none. A browser in the foreground returns when
    it is closed, which is after the redirect that the caller must answer: it counts as opened."""
    show(f"Sign in with the browser. If none opens:\n{address}")
    answers: list[bool] = []
    opening = threading.Thread(target=lambda: answers.append(open_browser(address)), daemon=True)
    opening.start()
    opening.join(foreground)
    return False not in answers


def _deployed(settings: Settings) -> Context:
    from tpujob.config import context

    current = None if settings.local else context.current(settings)
    if current and current.backend.startswith("https:"):
        return current
    raise BadRequest(
        f"{settings.context} needs no sign-in: its backend is on this machine, and identifies you",
        hint="`tpujob use URL` chooses a deployed one",
    )


def _place(settings: Settings, context: Context) -> SignInPlace:
    return SignInPlace(context, settings.home / "sign-in.json", settings.google_endpoint)
