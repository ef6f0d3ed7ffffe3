"""Recognises callers of a deployed backend. What stands in front of it decides which checks there are: `iam` is Cloud
Run's own check, `iap` is Identity-Aware Proxy, `public` is nothing."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from anyio import CapacityLimiter, to_thread
from starlette.datastructures import Headers
from starlette.types import Scope

from tpujob.config.sign_in import DoorKind
from tpujob.domain.access import SCHEDULER, Principal
from tpujob.errors import Unauthorized
from tpujob.web.auth import identities, tokens
from tpujob.web.auth.authenticator import AGAIN, TICK_PATH, Recognise, bearer, check_same_origin
from tpujob.web.auth.identities import Person
from tpujob.web.auth.signing_keys import Fetched, Keys
from tpujob.web.auth.tokens import Untrusted

#: where the issuers' keys are
GOOGLE_KEYS = "https://www.googleapis.com/oauth2/v1/certs"
IAP_KEYS = "https://www.gstatic.com/iap/verify/public_key"
ASSERTION = "x-goog-iap-jwt-assertion"
MOST_AT_ONCE = 16  #: requests that are being recognised; the store is asked for each of them


@dataclass(frozen=True, slots=True)
class SignInPolicy:
    """Whose tokens are believed."""

    kind: DoorKind
    clients: frozenset[str]  #: OAuth clients through which people sign in
    urls: frozenset[str]  #: of this backend
    iap_audience: str = ""  #: of the assertions of IAP
    tick_account: str = (
        ""  #: e-mail address of Cloud Scheduler's service account; empty: none calls
    )


class SignInAuthenticator:
    """Recognises people and service accounts by what Google has signed, and Cloud Scheduler. Fails closed."""

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
        self._audience = identities.Audience(policy.clients, policy.urls)
        self._limiter = CapacityLimiter(MOST_AT_ONCE)

    async def principal(self, scope: Scope, headers: Headers) -> Principal:
        # in a thread: keys may have to be fetched, and the list of members is in the store
        return await to_thread.run_sync(self._principal, scope, headers, limiter=self._limiter)

    def _principal(self, scope: Scope, headers: Headers) -> Principal:
        try:
            if self._policy.kind == "iap":
                person = self._by_iap(headers)
                check_same_origin(scope, headers, "https")
                return self._member(person, scope)
            return self._by_token(scope, headers)
        except Untrusted as error:
            raise Unauthorized(str(error), hint="sign in again: tpujob login") from error

    def _by_token(self, scope: Scope, headers: Headers) -> Principal:
        policy, token = self._policy, bearer(headers)
        ticks = bool(policy.tick_account) and scope["path"] == TICK_PATH
        if ticks and policy.kind == "iam" and identities.is_stripped(token):
            identities.check(token, headers, policy.tick_account, policy.urls, self._now())
            return SCHEDULER
        claims = tokens.verified(token, "RS256", self._google.find, self._now())
        person = identities.person(claims, self._audience)
        if ticks and person.email == policy.tick_account and claims["aud"] in policy.urls:
            return SCHEDULER
        return self._member(person, scope)

    def _by_iap(self, headers: Headers) -> Person:
        given = headers.getlist(ASSERTION)
        if len(given) != 1:
            raise Untrusted("the request did not come through IAP")
        claims = tokens.verified(given[0], "ES256", self._iap.find, self._now())
        return identities.person_of_iap(claims, self._policy.iap_audience)

    def _member(self, person: Person, scope: Scope) -> Principal:
        return self._recognise(person.id, person.email, again=AGAIN in scope.get("state", {}))
