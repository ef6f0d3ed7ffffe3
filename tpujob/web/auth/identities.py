"""Whose token it is: the rules for Google's ID tokens, and for the assertion of IAP. Pure, on verified claims."""

import re
from collections.abc import Set
from dataclasses import dataclass
from typing import NamedTuple

from starlette.datastructures import Headers

from tpujob.web.auth import identities, tokens
from tpujob.web.auth.tokens import Claims, Untrusted, text

#: https://developers.google.com/identity/openid-connect/openid-connect#validatinganidtoken
ISSUERS = frozenset({"https://accounts.google.com", "accounts.google.com"})
#: https://cloud.google.com/iap/docs/signed-headers-howto
IAP_ISSUER = "https://cloud.google.com/iap"
IAP_SUBJECT = "accounts.google.com:"  #: before the subject, for accounts of Google
#: the client of `gcloud auth print-identity-token`, the same for everybody in the world
GCLOUD = "32555940559.apps.googleusercontent.com"

_SUBJECT = re.compile(r"[!-~]{1,255}", re.ASCII)


class Person(NamedTuple):
    """A person or a service account."""

    id: str  #: Google never gives it to anybody else
    email: str


@dataclass(frozen=True, slots=True)
class Audience:
    """Whom a token must be for."""

    clients: Set[str]  #: OAuth clients through which people sign in
    urls: Set[str]  #: of the backend, for tokens of service accounts


def person(claims: Claims, audience: Audience) -> Person:
    """Raises Untrusted unless Google says who it is, to this backend, through a client of ours."""
    if text(claims, "iss") not in ISSUERS:
        raise Untrusted("the token is not from Google")
    aud = text(claims, "aud")
    if aud not in audience.clients and aud not in audience.urls:
        raise Untrusted("the token is for another audience")
    sub = text(claims, "sub")
    # a service account is its own authorized party
    if "azp" in claims and text(claims, "azp") not in {aud, sub, *audience.clients}:
        raise Untrusted("the token was given to another client")
    if claims.get("email_verified") is not True:
        raise Untrusted("the token has no verified address")
    return _person(sub, text(claims, "email"))


def person_of_iap(claims: Claims, audience: str) -> Person:
    """As `person`, for the assertion that IAP adds to a request."""
    if claims.get("iss") != IAP_ISSUER:
        raise Untrusted("the assertion is not from IAP")
    if text(claims, "aud") != audience:
        raise Untrusted("the assertion is for another audience")
    sub = text(claims, "sub")
    if not sub.startswith(IAP_SUBJECT):
        raise Untrusted("the assertion is about no account of Google")
    return _person(sub.removeprefix(IAP_SUBJECT), text(claims, "email"))


def _person(sub: str, email: str) -> Person:
    if not _SUBJECT.fullmatch(sub):
        raise Untrusted("the token has no sub")
    return Person(f"google:{sub}", email)


# Cloud Scheduler -----------------------------------------------------------------------------------------------------


REMOVED = "SIGNATURE_REMOVED_BY_GOOGLE"
CHECKED = "x-serverless-authorization"  #: what Cloud Run checks in place of `Authorization`


def is_stripped(token: str) -> bool:
    return token.endswith(f".{REMOVED}")


def check(token: str, headers: Headers, account: str, urls: frozenset[str], now: float) -> None:
    """Raises Untrusted unless this is a stripped token of that service account, for one of these URLs, valid at `now`,
    that Cloud Run has checked."""
    if CHECKED in headers:
        raise Untrusted("the token was not checked by Cloud Run")
    if len(token) > tokens.MOST_BYTES:
        raise Untrusted("the token is too long")
    try:
        _, payload, _ = token.split(".")
        claims = tokens.unsigned(payload)
    except (ValueError, RecursionError):
        raise Untrusted("the token is malformed") from None
    tokens.check_times(claims, now)
    person = identities.person(claims, identities.Audience(frozenset(), urls))
    if person.email != account:
        raise Untrusted("the token is not that of the scheduler")
