"""CRC32C, as Cloud Storage has it: a number here, base64 of its four bytes on the wire."""

from __future__ import annotations

import base64
import binascii

from google_crc32c import extend as _extend  # pyright: ignore[reportUnknownVariableType]


def extend(before: int, data: bytes | memoryview) -> int:
    """The checksum of everything so far and of `data`."""
    return int(_extend(before, bytes(data)))  # pyright: ignore[reportUnknownArgumentType]


def encode(crc32c: int) -> str:
    return base64.b64encode(crc32c.to_bytes(4, "big")).decode()


def decode(text: object) -> int | None:
    """None: not given, or no checksum."""
    try:
        found = base64.b64decode(str(text or ""), validate=True)
    except (binascii.Error, ValueError):
        return None
    return int.from_bytes(found, "big") if len(found) == 4 else None
