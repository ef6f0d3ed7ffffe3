"""The headers with which a command shows a backend who runs it; a token is kept until shortly before it ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tpujob.adapters.sign_in import google, token_store
from tpujob.adapters.sign_in.google import OAuthClient, Tokens
from tpujob.adapters.sign_in.token_store import StoredToken
from tpujob.errors import Unauthorized

if TYPE_CHECKING:
    from tpujob.config.context import Context

EARLY = 300.0  #: seconds before its end after which a token is not used any more


class SignInPlace(NamedTuple):
    """A backend, and where on this machine it is kept who one is there."""

    context: Context
    file: Path
    endpoint: str = ""  #: URL of a server that stands for all of Google's; empty: Google's own

    @property
    def url(self) -> str:
        return self.context.backend.rstrip("/")

    @property
    def client(self) -> OAuthClient:
        sign_in = self.context.sign_in
        return OAuthClient(sign_in.client_id, sign_in.client_secret, self.endpoint)


def headers(
    place: SignInPlace, now: Callable[[], float] = time.time, *, renew: bool = False
) -> Mapping[str, str]:
    """Return the headers of each request; with `renew`, with a new token, as the kept one was refused. Raises
    Unauthorized when there is no sign-in; Transient; StoreError.

    The one header is for Cloud Run, which takes the signature out of what it checks, the other for the backend."""
    bearer = f"Bearer {_token(place, now(), renew)}"
    if place.context.door == "iap":
        return {
            "Authorization": bearer,
            "Origin": place.url,
        }  # a command is no page of another origin
    return {"Authorization": bearer, "X-Serverless-Authorization": bearer}


def keep(place: SignInPlace, tokens: Tokens) -> str:
    """Store a sign-in: afterwards commands send it. Return the address of the account."""
    if not tokens.refresh_token:
        raise Unauthorized("Google's answer has no refresh token", hint="tpujob login")
    token_store.save(place.file, _stored(place, place.client, tokens, time.time()))
    return str(google.claims_of(tokens.id_token).get("email", "?"))


def end(place: SignInPlace) -> bool:
    """Remove the stored sign-in and revoke its refresh token. Return whether there was one. Raises Transient when
    Google could not be reached; the stored sign-in is removed all the same."""
    found = token_store.load(place.file)
    token_store.forget(place.file)
    if found is None:
        return False
    if found.refresh_token:
        google.revoke(place.client, found.refresh_token)
    return True


def _token(place: SignInPlace, now: float, renew: bool) -> str:
    account = place.context.sign_in.account
    found = token_store.load(place.file)
    if found is not None and not found.is_for(place.url, account):
        found = None
    if found is not None and not renew and now < found.until <= now + 86_400:
        return found.id_token
    renewed = _program(place, account, now) if account else _person(place, found, now)
    token_store.save(place.file, renewed)
    return renewed.id_token


def _person(place: SignInPlace, found: StoredToken | None, now: float) -> StoredToken:
    client = place.client
    if found is None or client.id != found.client_id or not found.refresh_token:
        raise Unauthorized(f"you are not signed in at {place.url}", hint="tpujob login")
    try:
        tokens = google.refresh(client, found.refresh_token)
    except google.SignInRefused as error:
        if error.name == "invalid_grant":
            token_store.forget(place.file)
        raise
    return _stored(place, client, Tokens(tokens.id_token, found.refresh_token), now)


def _program(place: SignInPlace, account: str, now: float) -> StoredToken:
    from tpujob.adapters.sign_in import programs

    # behind IAP a token has to be for a client that IAP lets in
    audience = place.client.id if place.context.door == "iap" else place.url
    token = programs.id_token(account, audience, place.endpoint)
    return _stored(place, OAuthClient("", ""), Tokens(token), now)


def _stored(place: SignInPlace, client: OAuthClient, tokens: Tokens, now: float) -> StoredToken:
    """Used for as long as it lasts, counted from now, as this machine's clock may be behind Google's; for less where it
    was given out earlier."""
    claims = google.claims_of(tokens.id_token)
    issued, ends = float(claims.get("iat", 0)), float(claims.get("exp", 0))
    lasts = min(ends - issued, ends - now)
    return StoredToken(
        place.url,
        place.context.sign_in.account,
        client.id,
        tokens.refresh_token,
        tokens.id_token,
        now + lasts - EARLY,
    )
