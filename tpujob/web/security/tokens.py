"""Verifies signed tokens (JWS, RFC 7515) and returns their claims. Signatures are verified by `cryptography`."""

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

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.serialization import load_pem_public_key

MAX_TOKEN = 8192  #: of a token
SKEW = 30.0  #: seconds that the issuer's clock and ours may differ by
SMALLEST_RSA = 2048  #: bits

Claims = dict[str, Any]


class Untrusted(Exception):
    """A token is refused. The message is one sentence, without any part of the token."""


def verified(
    token: str,
    alg: Literal["RS256", "ES256"],
    find: Callable[[str], PublicKeyTypes | None],
    now: float,
) -> Claims:
    """Return the claims of a token that is valid at `now` and signed with that algorithm by a key that `find` returns.
    Raise Untrusted for any other token. The caller checks the audience."""
    try:
        return _verified(token, alg, find, now)
    except Untrusted:
        raise
    except Exception as error:  # a token is hostile: anything unforeseen refuses it
        raise Untrusted("the token is malformed") from error


def unsigned(payload: str) -> Claims:
    """Return the claims in that part of a token, unverified. Raises ValueError or RecursionError when it cannot be
    read."""
    claims: Any = json.loads(_bytes(payload))
    if not isinstance(claims, dict):
        raise ValueError("not a JSON object")
    return cast(Claims, claims)


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


def _verified(
    token: str, alg: str, find: Callable[[str], PublicKeyTypes | None], now: float
) -> Claims:
    if len(token) > MAX_TOKEN:
        raise Untrusted(f"the token is longer than {MAX_TOKEN} bytes")
    header, payload, signature = token.split(".")
    head = unsigned(header)
    if head.get("alg") != alg or "crit" in head:
        raise Untrusted(f"the token is not signed with {alg}")
    key = find(text(head, "kid"))
    if key is None:
        raise Untrusted("the token is signed with an unknown key")
    try:
        _verify(key, alg, _bytes(signature), f"{header}.{payload}".encode("ascii"))
    except InvalidSignature:
        raise Untrusted("the signature of the token is wrong") from None
    claims = unsigned(payload)
    check_times(claims, now)
    return claims


def _verify(key: PublicKeyTypes, alg: str, signature: bytes, signed: bytes) -> None:
    """Raise InvalidSignature for a wrong signature, ValueError for a key of another kind."""
    if alg == "RS256" and isinstance(key, rsa.RSAPublicKey) and key.key_size >= SMALLEST_RSA:
        key.verify(signature, signed, padding.PKCS1v15(), hashes.SHA256())
    elif (
        alg == "ES256"
        and isinstance(key, ec.EllipticCurvePublicKey)
        and isinstance(key.curve, ec.SECP256R1)
        and len(signature) == 64  # RFC 7518, section 3.4: r and s, 32 bytes each
    ):
        r, s = (int.from_bytes(half, "big") for half in (signature[:32], signature[32:]))
        key.verify(encode_dss_signature(r, s), signed, ec.ECDSA(hashes.SHA256()))
    else:
        raise ValueError("a key of another kind")


def _bytes(part: str) -> bytes:
    """Decode base64url as in RFC 7515: no padding, no other letters, one spelling for each value. Raise ValueError."""
    data = base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
    if base64.urlsafe_b64encode(data).rstrip(b"=") != part.encode("ascii"):
        raise ValueError("not the usual spelling")
    return data


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
        self._keys: dict[str, PublicKeyTypes] = {}
        self._fresh_until = self._asked = self._got = float("-inf")

    def find(self, kid: str) -> PublicKeyTypes | None:
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

    def _known(self, kid: str) -> PublicKeyTypes | None:
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


def _read(document: bytes) -> dict[str, PublicKeyTypes]:
    """Return the keys by id. Raise ValueError unless the document is a JSON object of at least one certificate or
    key."""
    keys: Any = json.loads(document)
    if not isinstance(keys, dict) or not keys:
        raise ValueError("the issuer sent no keys")
    pems = cast("dict[str, str]", keys)
    return {kid: _key(pem.encode()) for kid, pem in pems.items()}


def _key(pem: bytes) -> PublicKeyTypes:
    if b"CERTIFICATE" in pem:
        return cast(PublicKeyTypes, x509.load_pem_x509_certificate(pem).public_key())
    return load_pem_public_key(pem)
