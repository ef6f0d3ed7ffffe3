"""How a request of Cloud Scheduler is authenticated: by the token of its service account, as Cloud Run passes it on.

Cloud Run checks the signature of a caller's ID token, lets in whoever may invoke the service, and then replaces the
signature (https://cloud.google.com/run/docs/troubleshooting#signature-removed). So a token that still has a signature
was not checked, and is refused. Where Cloud Run's check is switched off, anybody can write such a token; all it allows
is one more pass over the jobs.
"""

from __future__ import annotations

import base64
import binascii
import json
import time
from dataclasses import dataclass
from typing import Any, cast

TICK_PATH = "/v1/tick"  #: what such a token opens
REMOVED = "SIGNATURE_REMOVED_BY_GOOGLE"
ISSUERS = frozenset({"https://accounts.google.com", "accounts.google.com"})
SKEW = 30.0  #: seconds that Google's clock and ours may differ by


@dataclass(frozen=True, slots=True)
class Scheduler:
    account: str  #: e-mail address of its service account
    audience: str  #: the URL that its tokens are for

    def sent(self, token: str) -> bool:
        """Whether this is its token, checked by Cloud Run and valid now."""
        header, _, rest = token.partition(".")
        payload, _, signature = rest.partition(".")
        claims = _claims(payload)
        if not header or signature != REMOVED or claims is None:
            return False
        now = time.time()
        return (
            claims.get("iss") in ISSUERS
            and claims.get("aud") == self.audience
            and claims.get("email") == self.account
            and claims.get("email_verified") is True
            and _number(claims.get("exp")) > now - SKEW
            and _number(claims.get("iat"), late=True) < now + SKEW
        )


def _claims(payload: str) -> dict[str, Any] | None:
    try:
        text = base64.b64decode(payload + "=" * (-len(payload) % 4), altchars=b"-_", validate=True)
        found = json.loads(text)
    except (binascii.Error, ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def _number(value: object, *, late: bool = False) -> float:
    """A time of a token; what is not a number is never valid."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return float("inf") if late else 0.0
    return float(value)
