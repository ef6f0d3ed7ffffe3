"""The headers with which a command shows a backend who runs it; a token is kept until shortly before it ends, in one
file for each context that only its owner can read."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tpujob.adapters.sign_in import google
from tpujob.adapters.sign_in.google import OAuthClient, Tokens
from tpujob.config import files
from tpujob.errors import StoreError, Unauthorized

if TYPE_CHECKING:
    from tpujob.config.context import Context


EARLY = 300.0  #: seconds before its end after which a token is not used any more


class SignInPlace(NamedTuple):
    """A backend, and the file on this machine with the sign-in for it."""

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
    save_token(place.file, _stored(place, place.client, tokens, time.time()))
    return str(google.claims_of(tokens.id_token).get("email", "?"))


def end(place: SignInPlace) -> bool:
    """Remove the stored sign-in and revoke its refresh token. Return whether there was one. Raises Transient when
    Google could not be reached; the stored sign-in is removed all the same."""
    found = load_token(place.file)
    forget_token(place.file)
    if found is None:
        return False
    if found.refresh_token:
        google.revoke(place.client, found.refresh_token)
    return True


def _token(place: SignInPlace, now: float, renew: bool) -> str:
    account = place.context.sign_in.account
    found = load_token(place.file)
    if found is not None and not found.is_for(place.url, account):
        found = None
    if found is not None and not renew and now < found.until <= now + 86_400:
        return found.id_token
    renewed = _program(place, account, now) if account else _person(place, found, now)
    save_token(place.file, renewed)
    return renewed.id_token


def _person(place: SignInPlace, found: StoredToken | None, now: float) -> StoredToken:
    client = place.client
    if found is None or client.id != found.client_id or not found.refresh_token:
        raise Unauthorized(f"you are not signed in at {place.url}", hint="tpujob login")
    try:
        tokens = google.refresh(client, found.refresh_token)
    except google.SignInRefused as error:
        if error.name == "invalid_grant":
            forget_token(place.file)
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


# The stored sign-in ---------------------------------------------------------------------------------------------------


MOST_BYTES = 65_536  #: of the file


class StoredToken(NamedTuple):
    """A sign-in. It holds for one backend, one account and one OAuth client."""

    backend: str  #: its URL
    account: str  #: a program's; empty: a person's
    client_id: str
    refresh_token: str = ""  #: of a person, until they log out
    id_token: str = ""
    until: float = 0.0  #: when `id_token` is not used any more, by this machine's clock

    def is_for(self, backend: str, account: str) -> bool:
        """Whether it may be sent there: a backend could use a token that was given to another one."""
        return (self.backend, self.account) == (backend, account)


def load_token(path: Path) -> StoredToken | None:
    """Return the stored token; None: there is none that can be read. Raises StoreError when the file is a link, belongs
    to another user, or is open to others."""
    text = _own(path)
    if text is None:
        return None
    try:
        found: Any = json.loads(text)
        return StoredToken(**found)
    except (ValueError, TypeError):
        return None


def save_token(path: Path, kept: StoredToken) -> None:
    """Store the token whole, so that only its owner can read it. Raises StoreError."""
    files.private_folder(path.parent)
    files.put(path, json.dumps(kept._asdict()))


def forget_token(path: Path) -> None:
    path.unlink(missing_ok=True)


def _own(path: Path) -> str | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unsafe(path, "cannot be opened, or is a link") from error
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise _unsafe(path, "is not a file of yours")
        if stat.S_IMODE(found.st_mode) & 0o077:
            raise _unsafe(path, "is open to other users")
        return os.read(descriptor, MOST_BYTES).decode(errors="replace")
    finally:
        os.close(descriptor)


def _unsafe(path: Path, what: str) -> StoreError:
    return StoreError(
        f"{path} holds your sign-in for a backend, and {what}",
        hint=f"remove it, then sign in again: rm {path}; tpujob login",
    )
