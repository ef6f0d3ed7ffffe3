"""The stored sign-in of a context, and the headers by which a command identifies its user to the backend. Tokens are
reused until shortly before they expire. Each context has a file, which only its owner can read."""

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

EARLY = 300.0  #: seconds before its expiry from which on a token is not used any more


class SignInPlace(NamedTuple):
    """A backend, and the file on this machine with the sign-in for it."""

    context: Context
    file: Path
    endpoint: str = ""  #: see `OAuthClient`

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
    """Return the headers of a request. `renew`: get a new token, because the stored one was refused. Raises
    Unauthorized without a sign-in; Transient, StoreError. Cloud Run checks X-Serverless-Authorization and removes its
    signature; the backend checks Authorization."""
    bearer = f"Bearer {_token(place, now(), renew)}"
    if place.context.door == "iap":
        # Origin: a command is no page of another site
        return {"Authorization": bearer, "Origin": place.url}
    return {"Authorization": bearer, "X-Serverless-Authorization": bearer}


def keep(place: SignInPlace, tokens: Tokens) -> str:
    """Store a sign-in for later commands. Returns the e-mail address of the account. Raises Unauthorized."""
    if not tokens.refresh_token:
        raise Unauthorized("Google's answer has no refresh token", hint="tpujob login")
    save_token(place.file, _to_store(place, place.client, tokens, time.time()))
    return str(google.claims_of(tokens.id_token).get("email", "?"))


def end(place: SignInPlace) -> bool:
    """Remove the stored sign-in and revoke its refresh token. Returns whether a sign-in was stored. Raises Transient,
    after the removal, when Google does not answer."""
    stored = load_token(place.file)
    forget_token(place.file)
    if stored is None:
        return False
    if stored.refresh_token:
        google.revoke(place.client, stored.refresh_token)
    return True


def _token(place: SignInPlace, now: float, renew: bool) -> str:
    """Return the stored ID token if it is valid and `renew` is not set; else a new one, which is stored."""
    account = place.context.sign_in.account
    stored = load_token(place.file)
    if stored is not None and not stored.is_for(place.url, account):
        stored = None
    if stored is not None and not renew and now < stored.until <= now + 86_400:
        return stored.id_token
    new = _program_token(place, account, now) if account else _person_token(place, stored, now)
    save_token(place.file, new)
    return new.id_token


def _person_token(place: SignInPlace, stored: StoredToken | None, now: float) -> StoredToken:
    client = place.client
    if stored is None or client.id != stored.client_id or not stored.refresh_token:
        raise Unauthorized(f"you are not signed in at {place.url}", hint="tpujob login")
    try:
        tokens = google.refresh(client, stored.refresh_token)
    except google.SignInRefused as error:
        if error.name == "invalid_grant":
            forget_token(place.file)
        raise
    return _to_store(place, client, Tokens(tokens.id_token, stored.refresh_token), now)


def _program_token(place: SignInPlace, account: str, now: float) -> StoredToken:
    from tpujob.adapters.sign_in import programs

    # behind IAP the audience must be a client that IAP accepts
    audience = place.client.id if place.context.door == "iap" else place.url
    token = programs.id_token(account, audience, place.endpoint)
    return _to_store(place, OAuthClient("", ""), Tokens(token), now)


def _to_store(place: SignInPlace, client: OAuthClient, tokens: Tokens, now: float) -> StoredToken:
    """Return a sign-in to store. Its token is used for its lifetime from now on, as our clock may be behind Google's,
    but never after its expiry."""
    claims = google.claims_of(tokens.id_token)
    issued_at, expires_at = float(claims.get("iat", 0)), float(claims.get("exp", 0))
    lifetime = min(expires_at - issued_at, expires_at - now)
    return StoredToken(
        place.url,
        place.context.sign_in.account,
        client.id,
        tokens.refresh_token,
        tokens.id_token,
        now + lifetime - EARLY,
    )


# The stored sign-in ---------------------------------------------------------------------------------------------------


MAX_FILE = 65_536  #: of the file


class StoredToken(NamedTuple):
    """A sign-in for one backend, one account and one OAuth client."""

    backend: str  #: its URL
    account: str  #: of a program; empty: a person's sign-in
    client_id: str
    refresh_token: str = ""  #: of a person; valid until they log out
    id_token: str = ""
    until: float = 0.0  #: when to stop using `id_token`, by this machine's clock

    def is_for(self, backend: str, account: str) -> bool:
        """Return whether the token may be sent to this backend, which could misuse a token for another one."""
        return (self.backend, self.account) == (backend, account)


def load_token(path: Path) -> StoredToken | None:
    """Return the stored token; None when the file is missing or damaged. Raises StoreError when the file is a link,
    belongs to another user, or is open to others."""
    text = _read_private(path)
    if text is None:
        return None
    try:
        fields: Any = json.loads(text)
        return StoredToken(**fields)
    except (ValueError, TypeError):
        return None


def save_token(path: Path, token: StoredToken) -> None:
    """Store the token atomically, readable by its owner alone. Raises StoreError."""
    files.private_folder(path.parent)
    files.put(path, json.dumps(token._asdict()))


def forget_token(path: Path) -> None:
    path.unlink(missing_ok=True)


def _read_private(path: Path) -> str | None:
    """Return the text of a file that only this user can read; None: missing. Raises StoreError for any other file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unsafe_file_error(path, "cannot be opened, or is a link") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise _unsafe_file_error(path, "is not a file of yours")
        if stat.S_IMODE(status.st_mode) & 0o077:
            raise _unsafe_file_error(path, "is open to other users")
        return os.read(descriptor, MAX_FILE).decode(errors="replace")
    finally:
        os.close(descriptor)


def _unsafe_file_error(path: Path, problem: str) -> StoreError:
    return StoreError(
        f"{path} holds your sign-in for a backend, and {problem}",
        hint=f"remove it, then sign in again: rm {path}; tpujob login",
    )
