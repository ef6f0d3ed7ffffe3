"""Calls to Google's OAuth endpoints, as a desktop client: over TLS, without redirects.

https://developers.google.com/identity/protocols/oauth2/native-app
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from typing import Any, NamedTuple, cast
from urllib.parse import urlencode

from tpujob.errors import Transient, Unauthorized
from tpujob.lib.http import HttpRequest, fetch
from tpujob.lib.plain_http import PlainHttp, connection_to

SCOPES = "openid email"  #: the user's identity alone: no right to act for them
TIMEOUT = 30.0  #: seconds for one request
_ISSUERS = ("https://accounts.google.com", "accounts.google.com")


class OAuthClient(NamedTuple):
    """The OAuth client of a lab's backend."""

    id: str
    secret: str
    endpoint: str = ""  #: URL of a server that has all of Google's hosts, each below its name


class SignInAttempt(NamedTuple):
    """One try to sign in. Never stored."""

    state: str
    nonce: str
    verifier: str  #: of PKCE: a stolen code is worthless without it
    redirect: str

    @classmethod
    def new(cls, redirect: str) -> SignInAttempt:
        draw = secrets.token_urlsafe
        return cls(draw(32), draw(32), draw(48), redirect)


class Tokens(NamedTuple):
    id_token: str
    refresh_token: str = ""


class SignInRefused(Unauthorized):
    """Google's refusal of a token. `name`: Google's code for the reason."""

    def __init__(self, name: str, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.name = name


def address(client: OAuthClient, attempt: SignInAttempt) -> str:
    """Return the URL at which a person signs in, in a browser."""
    hashed = hashlib.sha256(attempt.verifier.encode()).digest()
    query = {
        "client_id": client.id,
        "redirect_uri": attempt.redirect,
        "response_type": "code",
        "scope": SCOPES,
        "state": attempt.state,
        "nonce": attempt.nonce,
        "code_challenge": base64.urlsafe_b64encode(hashed).rstrip(b"=").decode(),
        "code_challenge_method": "S256",
        "access_type": "offline",
        "prompt": "consent",  # else a second sign-in gets no refresh token
    }
    return f"{_url(client, 'accounts.google.com', 'o/oauth2/v2/auth')}?{urlencode(query)}"


def exchange(client: OAuthClient, attempt: SignInAttempt, code: str) -> Tokens:
    """Return the tokens for the code that a browser brought. Raises Unauthorized, Transient."""
    answer = _request_token(
        client,
        grant_type="authorization_code",
        code=code,
        code_verifier=attempt.verifier,
        redirect_uri=attempt.redirect,
    )
    tokens = _parse_tokens(answer)
    if claims_of(tokens.id_token).get("nonce") != attempt.nonce:
        raise Unauthorized("Google's answer belongs to another sign-in", hint="try again")
    return tokens


def refresh(client: OAuthClient, refresh_token: str) -> Tokens:
    """Return a new ID token. Raises Unauthorized when the sign-in has ended, Transient when Google does not answer."""
    answer = _request_token(client, grant_type="refresh_token", refresh_token=refresh_token)
    return _parse_tokens(answer)


def revoke(client: OAuthClient, refresh_token: str) -> None:
    """End the sign-in: Google issues no more tokens for it. Raises Transient."""
    status, answer = _post(client, "revoke", {"token": refresh_token})
    if status != 200 and answer.get("error") != "invalid_token":  # the sign-in has ended already
        raise Transient(f"Google did not revoke the sign-in: {_error_text(status, answer)}")


def claims_of(token: str) -> dict[str, Any]:
    """Return the claims of a token that came from Google over TLS, without a check of its signature."""
    try:
        payload = token.split(".")[1]
        claims: Any = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        if claims["iss"] in _ISSUERS:
            return claims
    except (ValueError, LookupError, TypeError):
        pass
    raise Unauthorized("Google's answer has no token that can be read", hint="try again")


def _parse_tokens(answer: dict[str, Any]) -> Tokens:
    try:
        tokens = Tokens(str(answer["id_token"]), str(answer.get("refresh_token", "")))
    except KeyError:
        raise Unauthorized("Google's answer has no ID token", hint="tpujob login") from None
    claims_of(tokens.id_token)
    return tokens


def _request_token(client: OAuthClient, **fields: str) -> dict[str, Any]:
    credentials = {"client_id": client.id, "client_secret": client.secret}
    status, answer = _post(client, "token", credentials | fields)
    if status != 200:
        raise _refusal(status, answer)
    return answer


def _refusal(status: int, answer: dict[str, Any]) -> Unauthorized | Transient:
    name, text = str(answer.get("error", "")), _error_text(status, answer)
    if status >= 500 or status == 429:
        return Transient(f"Google issues no token now: {text}")
    hint = {
        "invalid_grant": "sign in again: tpujob login",
        "invalid_client": "the OAuth client of the context is wrong: ask who deployed the backend",
        "admin_policy_enforced": "the admin of your Google Workspace blocks this OAuth client",
        "access_denied": "sign in again: tpujob login",
    }.get(name, "")
    return SignInRefused(name, f"Google refuses to sign you in: {text}", hint=hint)


def _error_text(status: int, answer: dict[str, Any]) -> str:
    words = [str(answer[name]) for name in ("error", "error_description") if answer.get(name)]
    return ascii(", ".join(words))[1:-1][:200] or f"HTTP {status}"


def _url(client: OAuthClient, host: str, path: str) -> str:
    return f"{client.endpoint or 'https:/'}/{host}/{path}"


def _post(client: OAuthClient, path: str, fields: dict[str, str]) -> tuple[int, dict[str, Any]]:
    url, form = _url(client, "oauth2.googleapis.com", path), urlencode(fields).encode()
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    http = PlainHttp(lambda: connection_to(url))
    try:
        reply = fetch(http, HttpRequest("POST", url, headers, form, TIMEOUT), 1 << 20)
        answer: Any = json.loads(reply.body or b"{}")
    except (OSError, ValueError) as error:
        raise Transient(
            f"cannot request a token from Google ({str(error) or type(error).__name__})"
        ) from error
    finally:
        http.close()
    return reply.status, cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}
