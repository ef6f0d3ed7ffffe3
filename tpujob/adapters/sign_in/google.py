"""Google's OAuth endpoints for a desktop client: one request each, over TLS, no redirect followed.

https://developers.google.com/identity/protocols/oauth2/native-app
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import secrets
from typing import Any, NamedTuple, cast
from urllib.parse import urlencode, urlsplit

from tpujob.errors import Transient, Unauthorized

SCOPES = "openid email"  #: who it is, and nothing that can be done in their name
TIMEOUT = 30.0  #: seconds for one request
_ISSUERS = ("https://accounts.google.com", "accounts.google.com")


class OAuthClient(NamedTuple):
    """An OAuth client of the lab."""

    id: str
    secret: str
    endpoint: str = ""  #: URL of a server that stands for all of Google's, each below its name


class SignInAttempt(NamedTuple):
    """One try to sign in. Nothing of it outlives the process that made it."""

    state: str
    nonce: str
    #: of PKCE: without it a stolen code is worth nothing
    verifier: str
    redirect: str

    @classmethod
    def new(cls, redirect: str) -> SignInAttempt:
        drawn = secrets.token_urlsafe
        return cls(drawn(32), drawn(32), drawn(48), redirect)


class Tokens(NamedTuple):
    id_token: str
    refresh_token: str = ""


class SignInRefused(Unauthorized):
    """Google's answer to a request for a token, with its name for what is wrong."""

    def __init__(self, name: str, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.name = name


def address(client: OAuthClient, attempt: SignInAttempt) -> str:
    """Where a person signs in, in a browser."""
    hashed = hashlib.sha256(attempt.verifier.encode()).digest()
    asked = {
        "client_id": client.id,
        "redirect_uri": attempt.redirect,
        "response_type": "code",
        "scope": SCOPES,
        "state": attempt.state,
        "nonce": attempt.nonce,
        "code_challenge": base64.urlsafe_b64encode(hashed).rstrip(b"=").decode(),
        "code_challenge_method": "S256",
        "access_type": "offline",
        "prompt": "consent",  # else Google gives no refresh token the second time
    }
    return f"{_url(client, 'accounts.google.com', 'o/oauth2/v2/auth')}?{urlencode(asked)}"


def exchange(client: OAuthClient, attempt: SignInAttempt, code: str) -> Tokens:
    """The tokens for the code that a browser brought. Raises Unauthorized, Transient."""
    found = _token(
        client,
        grant_type="authorization_code",
        code=code,
        code_verifier=attempt.verifier,
        redirect_uri=attempt.redirect,
    )
    tokens = _read(found)
    if claims_of(tokens.id_token).get("nonce") != attempt.nonce:
        raise Unauthorized("Google's answer belongs to another sign-in", hint="try again")
    return tokens


def refresh(client: OAuthClient, refresh_token: str) -> Tokens:
    """A new ID token. Raises Refused when the sign-in has ended, Transient when Google cannot be asked."""
    return _read(_token(client, grant_type="refresh_token", refresh_token=refresh_token))


def revoke(client: OAuthClient, refresh_token: str) -> None:
    """End the sign-in: afterwards Google gives out no token for it. Raises Transient."""
    status, found = _post(client, "revoke", {"token": refresh_token})
    if status != 200 and found.get("error") != "invalid_token":  # that one has ended already
        raise Transient(f"Google did not revoke the sign-in: {_error_text(status, found)}")


def claims_of(token: str) -> dict[str, Any]:
    """Return the claims of a token that came from Google over TLS; to others it proves nothing."""
    try:
        payload = token.split(".")[1]
        found: Any = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        if found["iss"] in _ISSUERS:
            return found
    except (ValueError, LookupError, TypeError):
        pass
    raise Unauthorized("Google's answer has no token that can be read", hint="try again")


def _read(found: dict[str, Any]) -> Tokens:
    try:
        tokens = Tokens(str(found["id_token"]), str(found.get("refresh_token", "")))
    except KeyError:
        raise Unauthorized("Google's answer has no ID token", hint="tpujob login") from None
    claims_of(tokens.id_token)
    return tokens


def _token(client: OAuthClient, **fields: str) -> dict[str, Any]:
    given = {"client_id": client.id, "client_secret": client.secret}
    status, found = _post(client, "token", given | fields)
    if status != 200:
        raise _refused(status, found)
    return found


def _refused(status: int, found: dict[str, Any]) -> Unauthorized | Transient:
    name, text = str(found.get("error", "")), _error_text(status, found)
    if status >= 500 or status == 429:
        return Transient(f"Google issues no token now: {text}")
    hint = {
        "invalid_grant": "sign in again: tpujob login",
        "invalid_client": "the OAuth client of the context is wrong: ask who deployed the backend",
        "admin_policy_enforced": "the admin of your Google Workspace blocks this OAuth client",
        "access_denied": "sign in again: tpujob login",
    }.get(name, "")
    return SignInRefused(name, f"Google refuses to sign you in: {text}", hint=hint)


def _error_text(status: int, found: dict[str, Any]) -> str:
    words = [str(found[name]) for name in ("error", "error_description") if found.get(name)]
    return ascii(", ".join(words))[1:-1][:200] or f"HTTP {status}"


def _url(client: OAuthClient, host: str, path: str) -> str:
    return f"{client.endpoint or 'https:/'}/{host}/{path}"


def _post(client: OAuthClient, path: str, fields: dict[str, str]) -> tuple[int, dict[str, Any]]:
    url = urlsplit(_url(client, "oauth2.googleapis.com", path))
    secure = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    connection = secure(url.hostname or "", url.port, timeout=TIMEOUT)
    try:
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        connection.request("POST", url.path, urlencode(fields), form)
        answer = connection.getresponse()
        found: Any = json.loads(answer.read(1 << 20) or b"{}")
        return answer.status, cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Transient(
            f"cannot request a token from Google ({str(error) or type(error).__name__})"
        ) from error
    finally:
        connection.close()
