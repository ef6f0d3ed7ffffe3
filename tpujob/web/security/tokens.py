"""Verifies signed tokens (JWS, RFC 7515) and returns their claims. google-auth reads tokens and keys, and verifies
signatures; its own checks of a token know neither `crit` nor `nbf`, and accept an `exp` that is no finite number."""
# google-auth has no types that a checker can follow.
# pyright: reportUnknownMemberType=false

import base64
import contextlib
import json
import logging
import math
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal, cast

from google.auth import crypt, jwt

MAX_TOKEN = 8192  #: of a token
SKEW = 30.0  #: seconds that the issuer's clock and ours may differ by

Algorithm = Literal["RS256", "ES256"]
Claims = dict[str, Any]

_VERIFIERS = {"RS256": crypt.RSAVerifier, "ES256": crypt.ES256Verifier}
#: bytes of a signature: as many as the RSA key has, of 2048 bits or more; two numbers of 32 bytes (RFC 7518, 3.4)
_LENGTHS = {"RS256": range(256, MAX_TOKEN), "ES256": range(64, 65)}


class Untrusted(Exception):
    """A token is refused. The message is one sentence, without any part of the token."""


def verified(token: str, alg: Algorithm, find: Callable[[str], str | None], now: float) -> Claims:
    """Return the claims of a token that is valid at `now` and signed with that algorithm by a key that `find` returns,
    as PEM text. Raise Untrusted for any other token. The caller checks the audience."""
    claims = unverified(token)
    try:
        _check_signature(token, alg, find)
    except Untrusted:
        raise
    except Exception:  # a token is hostile: anything unforeseen refuses it
        raise Untrusted("the token is malformed") from None
    check_times(claims, now)
    return claims


def unverified(token: str) -> Claims:
    """Return the claims of a token, whose signature is not looked at. Raise Untrusted when it cannot be read."""
    if len(token) > MAX_TOKEN:
        raise Untrusted(f"the token is longer than {MAX_TOKEN} bytes")
    try:
        return cast(Claims, jwt.decode(token, verify=False))
    except (ValueError, RecursionError):  # not chained: the message has parts of the token
        raise Untrusted("the token is malformed") from None


def check_times(claims: Claims, now: float) -> None:
    """Raise Untrusted unless the claims have times of validity that include `now`, give or take `SKEW`."""
    if _seconds(claims, "exp") <= now - SKEW:
        raise Untrusted(f"the token has expired: it is {_clock(now)} by the backend's clock")
    for name in ("iat", "nbf"):
        if (name == "iat" or name in claims) and _seconds(claims, name) >= now + SKEW:
            raise Untrusted(
                f"the token is not valid yet: it is {_clock(now)} by the backend's clock"
            )


def text(claims: Claims, name: str) -> str:
    """Return the claim. Raise Untrusted unless it is a non-empty text."""
    value = claims.get(name)
    if not isinstance(value, str) or not value:
        raise Untrusted(f"the token has no {name}")
    return value


def _check_signature(token: str, alg: Algorithm, find: Callable[[str], str | None]) -> None:
    head = jwt.decode_header(token)
    if head.get("alg") != alg or "crit" in head:
        raise Untrusted(f"the token is not signed with {alg}")
    key = find(text(head, "kid"))
    if key is None:
        raise Untrusted("the token is signed with an unknown key")
    signed, _, encoded = token.rpartition(".")
    signature = base64.urlsafe_b64decode(encoded + "==")
    if (
        base64.urlsafe_b64encode(signature).rstrip(b"=").decode() != encoded  # another spelling
        or len(signature) not in _LENGTHS[alg]
        or not _VERIFIERS[alg].from_string(key).verify(signed.encode(), signature)
    ):
        raise Untrusted("the signature of the token is wrong")


def _seconds(claims: Claims, name: str) -> float:
    value = claims.get(name)
    with contextlib.suppress(OverflowError):
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
    raise Untrusted(f"the token does not say {name}")


def _clock(now: float) -> str:
    return f"{datetime.fromtimestamp(now, UTC):%H:%M:%S} UTC"


# The public keys of an issuer: fetched from its URL, cached as long as the issuer allows


log = logging.getLogger(__name__)

MIN_KEY_AGE = 300.0  #: seconds for which fetched keys are kept, whatever their issuer says
MAX_KEY_AGE = (
    86_400.0  #: and at most; older ones are not believed, not even while the issuer is down
)
PAUSE = 30.0  #: seconds between two fetches, at least

#: a document, and the seconds that it may be kept; 0: its issuer does not say
Fetched = tuple[bytes, float]


class Keys:
    """The keys of one issuer, by their id. Threads may share it."""

    def __init__(
        self, fetch: Callable[[], Fetched], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`fetch` requests a JSON object of PEM texts by id from the issuer, and may raise anything."""
        self._fetch, self._clock = fetch, clock
        self._flight = threading.Lock()
        self._keys: dict[str, str] = {}
        self._fresh_until = self._asked = self._got = float("-inf")

    def find(self, kid: str) -> str | None:
        """Return the key of that id; None: the issuer has none. Waits for the issuer only if the key is unknown, or in
        the first call after the keys were due."""
        cached = self._known(kid)
        if cached and self._clock() < self._fresh_until:
            return cached
        if not self._flight.acquire(blocking=cached is None):
            return cached  # another thread is asking
        try:
            outdated = self._clock() >= self._fresh_until or kid not in self._keys
            if outdated and self._clock() >= self._asked + PAUSE:
                self._renew()
        finally:
            self._flight.release()
        return self._known(kid)

    def _known(self, kid: str) -> str | None:
        return self._keys.get(kid) if self._clock() < self._got + MAX_KEY_AGE else None

    def _renew(self) -> None:
        self._asked = self._clock()
        try:
            document, max_age = self._fetch()
            keys = _read(document)
        except Exception as error:  # the old keys stay
            log.warning("the keys of a signer cannot be fetched: %s", ascii(error)[:300])
            return
        self._keys, self._got = keys, self._asked
        self._fresh_until = self._asked + min(max(max_age, MIN_KEY_AGE), MAX_KEY_AGE)


def _read(document: bytes) -> dict[str, str]:
    """Return the keys by id. Raise ValueError unless the document is a JSON object of at least one certificate or
    key."""
    keys: Any = json.loads(document)
    if not isinstance(keys, dict) or not keys:
        raise ValueError("the issuer sent no keys")
    for pem in cast("dict[str, str]", keys).values():
        crypt.RSAVerifier.from_string(pem)  # reads keys of any kind
    return cast("dict[str, str]", keys)
