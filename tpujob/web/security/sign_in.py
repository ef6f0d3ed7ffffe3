"""Recognises callers of a deployed backend. The door in front of the backend selects the checks: `iam` is Cloud Run's
own check, `iap` is Identity-Aware Proxy, `public` is no door."""

import re
import time
from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import NamedTuple

from anyio import CapacityLimiter, to_thread
from starlette.datastructures import Headers
from starlette.types import Scope

from tpujob.config.sign_in import DoorKind
from tpujob.domain.access import SCHEDULER, Principal
from tpujob.domain.members import folded
from tpujob.errors import Unauthorized
from tpujob.web.security import tokens
from tpujob.web.security.authenticator import TICK_PATH, Recognise, bearer, check_same_origin
from tpujob.web.security.tokens import Claims, Fetched, Keys, Untrusted, text

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


def person_of_token(claims: Claims, clients: Set[str], urls: Set[str]) -> Person:
    """Return the person in a token. Raise Untrusted unless Google issued it, with a verified address, for one of our
    `urls`, as tokens of service accounts, or one of our OAuth `clients`."""
    if text(claims, "iss") not in ISSUERS:
        raise Untrusted("the token is not from Google")
    aud = text(claims, "aud")
    if aud not in clients and aud not in urls:
        raise Untrusted("the token is for another audience")
    sub = text(claims, "sub")
    # a service account is its own authorized party
    if "azp" in claims and text(claims, "azp") not in {aud, sub, *clients}:
        raise Untrusted("the token was given to another client")
    if claims.get("email_verified") is not True:
        raise Untrusted("the token has no verified address")
    return _person(sub, text(claims, "email"))


def person_of_iap(claims: Claims, audience: str) -> Person:
    """Return the person in the assertion that IAP adds to a request. Raise Untrusted unless it is for `audience`."""
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
    return Person(f"google:{sub}", folded(email))


# Cloud Scheduler -----------------------------------------------------------------------------------------------------


REMOVED = "SIGNATURE_REMOVED_BY_GOOGLE"
CHECKED = "x-serverless-authorization"  #: what Cloud Run checks in place of `Authorization`


def is_stripped(token: str) -> bool:
    return token.endswith(f".{REMOVED}")


def check_scheduler(
    token: str, headers: Headers, account: str, urls: frozenset[str], now: float
) -> None:
    """Raise Untrusted unless `token` is a stripped token of that service account, for one of `urls`, valid at `now`,
    and checked by Cloud Run."""
    if CHECKED in headers:
        raise Untrusted("the token was not checked by Cloud Run")
    claims = tokens.unverified(token)
    tokens.check_times(claims, now)
    person = person_of_token(claims, frozenset(), urls)
    if person.email != account:
        raise Untrusted("the token is not that of the scheduler")


#: where the issuers' keys are
GOOGLE_KEYS = "https://www.googleapis.com/oauth2/v1/certs"
IAP_KEYS = "https://www.gstatic.com/iap/verify/public_key"
ASSERTION = "x-goog-iap-jwt-assertion"
MOST_AT_ONCE = 16  #: requests that are being recognised; the store is asked for each of them


@dataclass(frozen=True, slots=True)
class SignInPolicy:
    """The tokens that a deployed backend accepts."""

    kind: DoorKind
    clients: frozenset[str]  #: OAuth clients through which people sign in
    urls: frozenset[str]  #: of this backend
    iap_audience: str = ""  #: of the assertions of IAP
    #: e-mail address of Cloud Scheduler's service account; empty: none calls
    tick_account: str = ""


class SignInAuthenticator:
    """Recognises people and service accounts by tokens that Google signed, and Cloud Scheduler. Fails closed."""

    def __init__(
        self,
        policy: SignInPolicy,
        recognise: Recognise,
        fetch: Callable[[str], Fetched],
        now: Callable[[], float] = time.time,
    ) -> None:
        """`recognise`: the member of that id and address; raises Forbidden for strangers. `fetch`: the keys at a URL,
        and for how many seconds they may be kept."""
        self._policy, self._recognise, self._now = policy, recognise, now
        self._google = Keys(lambda: fetch(GOOGLE_KEYS))
        self._iap = Keys(lambda: fetch(IAP_KEYS))
        self._limiter = CapacityLimiter(MOST_AT_ONCE)

    async def principal(self, scope: Scope, headers: Headers) -> Principal:
        # in a thread: keys may have to be fetched, and the list of members is in the store
        return await to_thread.run_sync(self._principal, scope, headers, limiter=self._limiter)

    def _principal(self, scope: Scope, headers: Headers) -> Principal:
        try:
            if self._policy.kind == "iap":
                person = self._by_iap(headers)
                check_same_origin(scope, headers, "https")
                return self._recognise(person.id, person.email)
            return self._by_token(scope, headers)
        except Untrusted as error:
            raise Unauthorized(str(error), hint="sign in again: tpujob login") from error

    def _by_token(self, scope: Scope, headers: Headers) -> Principal:
        policy, token = self._policy, bearer(headers)
        ticks = bool(policy.tick_account) and scope["path"] == TICK_PATH
        if ticks and policy.kind == "iam" and is_stripped(token):
            check_scheduler(token, headers, policy.tick_account, policy.urls, self._now())
            return SCHEDULER
        claims = tokens.verified(token, "RS256", self._google.find, self._now())
        person = person_of_token(claims, policy.clients, policy.urls)
        if ticks and person.email == policy.tick_account and claims["aud"] in policy.urls:
            return SCHEDULER
        return self._recognise(person.id, person.email)

    def _by_iap(self, headers: Headers) -> Person:
        assertions = headers.getlist(ASSERTION)
        if len(assertions) != 1:
            raise Untrusted("the request did not come through IAP")
        claims = tokens.verified(assertions[0], "ES256", self._iap.find, self._now())
        return person_of_iap(claims, self._policy.iap_audience)
