"""Keys and signatures of what hosts send to the backend, to each other and to later hosts: HMAC-SHA256.

The backend derives each key from a secret that only backends have. Keys are never stored: not in records, in the
bucket or in backups. A host gets its keys over SSH.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Union

Part = Union[str, bytes]


def derive(secret: bytes, *purpose: str) -> str:
    """Return the key for that purpose, in hex. Equal words give equal keys."""
    return _mac(secret, "key", purpose)


def sign(key: str, kind: str, *parts: Part) -> str:
    """Return the signature of these parts, in hex, which is valid for parts of this `kind` only."""
    return _mac(key.encode(), kind, parts)


def verify(key: str, signature: object, kind: str, *parts: Part) -> bool:
    """Return whether a holder of `key` signed exactly these parts. `signature` is untrusted."""
    return same(sign(key, kind, *parts), signature)


def same(right: str, signature: object) -> bool:
    """Return whether a signature is the right one, in constant time."""
    untrusted = signature.encode("utf-8", "replace") if isinstance(signature, str) else b""
    return hmac.compare_digest(untrusted, right.encode())


def digest(data: bytes) -> str:
    """Return the SHA-256 of `data`, in hex: signed in place of long content."""
    return hashlib.sha256(data).hexdigest()


def _mac(key: bytes, kind: str, parts: "tuple[Part, ...]") -> str:
    mac = hmac.new(key, digestmod=hashlib.sha256)
    for part in ("tpujob", kind, *parts):
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        mac.update(b"%d:" % len(data) + data)  # the length keeps lists of parts distinct
    return mac.hexdigest()
