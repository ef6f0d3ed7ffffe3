"""CRC32C, as Cloud Storage has it: a number here, base64 of its four bytes on the wire."""

import base64
import binascii
from typing import BinaryIO

from google_crc32c import extend as _extend  # pyright: ignore[reportUnknownVariableType]

_READ = 1 << 20


def extend(before: int, data: bytes | memoryview) -> int:
    """The checksum of everything so far and of `data`."""
    return int(_extend(before, bytes(data)))  # pyright: ignore[reportUnknownArgumentType]


def of_file(content: BinaryIO) -> tuple[int, int]:
    """The length and the checksum of all of it. Raises OSError."""
    content.seek(0)
    size = crc32c = 0
    while data := content.read(_READ):
        size += len(data)
        crc32c = extend(crc32c, data)
    return size, crc32c


def encode(crc32c: int) -> str:
    return base64.b64encode(crc32c.to_bytes(4, "big")).decode()


def decode(text: object) -> int | None:
    """None: not given, or no checksum."""
    try:
        found = base64.b64decode(str(text or ""), validate=True)
    except (binascii.Error, ValueError):
        return None
    return int.from_bytes(found, "big") if len(found) == 4 else None
