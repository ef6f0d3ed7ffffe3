"""The public keys of an issuer of tokens: fetched from its URL, kept for as long as it says, and asked for again with
care, as anybody can send a token that names an unknown key."""

import json
import logging
import threading
import time
from collections.abc import Callable
from typing import Any, cast

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.hazmat.primitives.serialization import load_pem_public_key

log = logging.getLogger(__name__)

SHORTEST = 300.0  #: seconds for which fetched keys are kept, whatever their issuer says
LONGEST = 86_400.0  #: and at most; older ones are not believed, not even while the issuer is down
PAUSE = 30.0  #: seconds between two fetches, at least

#: a document, and the seconds that it may be kept; 0: its issuer does not say
Fetched = tuple[bytes, float]


class Keys:
    """The keys of one issuer, by their id. Threads may share it."""

    def __init__(
        self, fetch: Callable[[], Fetched], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`fetch`: asks the issuer for a JSON object of PEM texts by id. It may fail in any way."""
        self._fetch, self._clock = fetch, clock
        self._flight = threading.Lock()
        self._keys: dict[str, PublicKeyTypes] = {}
        self._fresh_until = self._asked = self._got = float("-inf")

    def find(self, kid: str) -> PublicKeyTypes | None:
        """The key of that id; None: the issuer has none. Waits for the issuer only if the key is not known, or if this
        is the first call after the keys were to be asked for again."""
        known = self._known(kid)
        if known and self._clock() < self._fresh_until:
            return known
        if not self._flight.acquire(blocking=known is None):
            return known  # another thread is asking
        try:
            outdated = self._clock() >= self._fresh_until or kid not in self._keys
            if outdated and self._clock() >= self._asked + PAUSE:
                self._renew()
        finally:
            self._flight.release()
        return self._known(kid)

    def _known(self, kid: str) -> PublicKeyTypes | None:
        return self._keys.get(kid) if self._clock() < self._got + LONGEST else None

    def _renew(self) -> None:
        self._asked = self._clock()
        try:
            document, max_age = self._fetch()
            keys = _read(document)
        except Exception as error:  # the old keys stay
            log.warning("the keys of a signer cannot be fetched: %s", ascii(error)[:300])
            return
        self._keys, self._got = keys, self._asked
        self._fresh_until = self._asked + min(max(max_age, SHORTEST), LONGEST)


def _read(document: bytes) -> dict[str, PublicKeyTypes]:
    """Raises ValueError for what is no JSON object of at least one certificate or key."""
    found: Any = json.loads(document)
    if not isinstance(found, dict) or not found:
        raise ValueError("the issuer sent no keys")
    pems = cast("dict[str, str]", found)
    return {kid: _key(pem.encode()) for kid, pem in pems.items()}


def _key(pem: bytes) -> PublicKeyTypes:
    if b"CERTIFICATE" in pem:
        return cast(PublicKeyTypes, x509.load_pem_x509_certificate(pem).public_key())
    return load_pem_public_key(pem)
