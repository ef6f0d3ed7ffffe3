"""Keys and signatures for what hosts say to the backend, to each other and to later hosts. HMAC-SHA256 throughout.

The backend derives each key from a secret that it alone has, so a key is kept nowhere: the records, the bucket
and the backups of both hold none. A host gets its keys over SSH.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Union

Part = Union[str, bytes]


def derive(secret: bytes, *purpose: str) -> str:
    """The key for that purpose, in hex: the same for the same words, and of no use for others."""
    return _mac(secret, "key", purpose)


def sign(key: str, kind: str, *parts: Part) -> str:
    """The signature of these parts, in hex. `kind`: what they are, so that one thing does not pass for another."""
    return _mac(key.encode(), kind, parts)


def verify(key: str, signature: object, kind: str, *parts: Part) -> bool:
    """Return whether the key's holder signed exactly these parts. `signature` may be anything."""
    return same(sign(key, kind, *parts), signature)


def same(right: str, signature: object) -> bool:
    """Whether a signature is the right one; how long that takes does not tell how much of it is."""
    given = signature.encode("utf-8", "replace") if isinstance(signature, str) else b""
    return hmac.compare_digest(given, right.encode())


def digest(data: bytes) -> str:
    """What stands for content that is too long to be signed itself."""
    return hashlib.sha256(data).hexdigest()


def _mac(key: bytes, kind: str, parts: "tuple[Part, ...]") -> str:
    made = hmac.new(key, digestmod=hashlib.sha256)
    for part in ("tpujob", kind, *parts):
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        made.update(b"%d:" % len(data) + data)  # with its length: no two lists of parts look alike
    return made.hexdigest()
