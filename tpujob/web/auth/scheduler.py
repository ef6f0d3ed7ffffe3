"""How a request of Cloud Scheduler is recognised behind Cloud Run's own check: by the token of its service account, as
Cloud Run passes it on.

Cloud Run checks the signature of a caller's ID token, lets in whoever may invoke the service, and then replaces the
signature (https://cloud.google.com/run/docs/troubleshooting#signature-removed). It checks `X-Serverless-Authorization`
alone where there is one, and then passes `Authorization` on as it was sent: without a signature anybody may have
written that. So a stripped token is believed only where the check is on, alone, and for a pass over the jobs.
"""

from starlette.datastructures import Headers

from tpujob.web.auth import identities, tokens
from tpujob.web.auth.tokens import Untrusted

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
